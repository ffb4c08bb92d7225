"""Recipes for CI systems and clusters: whole files that a project copies, with what is to be changed at their top.

They are read as text and handed on as they are: whoever uses one owns it, and no YAML is made or understood here.
"""

import re
from dataclasses import dataclass
from importlib.resources import files

from pairbench.errors import SelectionError

_HEAD = re.compile(r"(?:#!/.+\n)?# For: (?P<purpose>.+)\n# File: (?P<place>\S+)\n")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A file for a CI system, or a cluster."""

    name: str
    """Name of the system and of what its runner has, such as github-cpu."""
    purpose: str
    """What the file is for, as its first line says: where it runs and what it does there."""
    place: str
    """Path in a repository where it belongs; its second line."""
    text: str


def recipes() -> tuple[Recipe, ...]:
    """Return all recipes by name."""
    found = (file for file in files(__name__).iterdir() if file.name.endswith((".yml", ".sh")))
    return tuple(
        _read(file.name.rpartition(".")[0], file.read_text(encoding="utf-8")) for file in sorted(found, key=str)
    )


def recipe(name: str) -> Recipe:
    """Return the recipe of that name."""
    known = {one.name: one for one in recipes()}
    if name not in known:
        raise SelectionError(f"there is no recipe {name!r}, expected one of {', '.join(known)}")
    return known[name]


def _read(name: str, text: str) -> Recipe:
    head = _HEAD.match(text)
    assert head is not None, f"recipe {name} does not begin with '# For: ...' and '# File: ...'"
    return Recipe(name=name, purpose=head["purpose"], place=head["place"], text=text)
