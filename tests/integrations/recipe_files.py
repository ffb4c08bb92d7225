"""The content of a recipe, for tests that look inside."""

import importlib
from typing import Any

from pairbench.integrations.recipes import recipe


def content(name: str) -> dict[str, Any]:
    """Return a recipe as what its YAML means, as YAML 1.2 has it: `on` is a word."""
    yaml: Any = importlib.import_module("ruamel.yaml")
    found: dict[str, Any] = yaml.YAML(typ="safe").load(recipe(name).text)
    return found
