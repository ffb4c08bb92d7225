"""Recipes for CI systems and clusters: whole files for projects to copy, with the settings to change at their top.

They are read and printed as text: no YAML is made or parsed here.
"""

import re
from importlib.resources import files
from typing import NamedTuple

from pairbench.errors import SelectionError

_HEAD = re.compile(r"(?:#!/.+\n)?# For: (?P<purpose>.+)\n# File: (?P<place>\S+)\n")


class Recipe(NamedTuple):
    name: str  # names of the system and of its runner's device, such as github-cpu
    purpose: str  # the file's first line: where it runs and what it does there
    place: str  # the file's second line: its path in a repository
    text: str


def recipes() -> tuple[Recipe, ...]:
    read: list[Recipe] = []
    for file in sorted(files(__name__).iterdir(), key=str):
        if file.name.endswith((".yml", ".sh")):
            name, text = file.name.rpartition(".")[0], file.read_text(encoding="utf-8")
            head = _HEAD.match(text)
            assert head is not None, f"recipe {name} does not begin with '# For: ...' and '# File: ...'"
            read.append(Recipe(name=name, purpose=head["purpose"], place=head["place"], text=text))
    return tuple(read)


def recipe(name: str) -> Recipe:
    known = {one.name: one for one in recipes()}
    if name not in known:
        raise SelectionError(f"there is no recipe {name!r}, expected one of {', '.join(known)}")
    return known[name]
