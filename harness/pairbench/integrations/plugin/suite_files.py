"""Which of the files that pytest comes across are suites."""

import ast
import fnmatch
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_MENTIONS = re.compile(r"\bpairbench\b[\s\S]*\bOperator\b")


@dataclass(frozen=True, kw_only=True)
class SuiteFiles:
    """The rule: what the settings list is a suite, and so is what the command line names and what looks like one.

    A folder that only the command line names stands for the files in it, not for those in folders below: `pytest tests`
    must not go looking for suites among the data of tests. In it, what looks like a suite assigns an operator at its top
    level.
    """

    listed: tuple[Path, ...]
    """The suite files that the settings list, those in folders below a listed one too."""
    named: tuple[Path, ...]
    """Files and folders of the command line."""
    test_patterns: tuple[str, ...]
    """Names of test files, as pytest's `python_files` gives them; those are pytest's own."""

    def takes(self, file: Path) -> bool:
        """Return whether a file is a suite."""
        file = file.resolve()  # pytest keeps links as they are
        if file.suffix != ".py" or not file.is_file():
            return False
        if file in self.listed:
            return True
        if self.is_test(file):
            return False
        text = file.read_text(errors="replace") if file in self.named or file.parent in self.named else ""
        return _MENTIONS.search(text) is not None and (file in self.named or _assigns_an_operator(text))

    def is_test(self, file: Path) -> bool:
        """Return whether pytest would take a file that nobody named for one of tests."""
        known = any(fnmatch.fnmatch(file.name, pattern) for pattern in self.test_patterns)
        return known or file.name in ("conftest.py", "__init__.py")

    def in_reach(self) -> tuple[Path, ...]:
        """Return the suites that pytest can come across, as far as paths tell."""
        return tuple(dict.fromkeys(file for file in self._candidates() if self.takes(file)))

    def _candidates(self) -> Iterable[Path]:
        for place in self.named:
            if not place.is_dir():
                yield place
                continue
            yield from sorted(place.glob("*.py"))
            yield from (file for file in self.listed if file.is_relative_to(place))


@functools.cache
def _assigns_an_operator(text: str) -> bool:
    """Return whether a module does so at its top level; a text that is no Python may well be meant to."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError):
        return True
    calls = [node.value for node in module.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    names = [getattr(call.func, "id", None) or getattr(call.func, "attr", None) for call in calls]
    return "Operator" in names


def named_places(arguments: Iterable[str], folder: Path) -> tuple[Path, ...]:
    """Return the files and folders that pytest's arguments name, such as `suites/conv.py::causal_conv3d[...]`."""
    return tuple((folder / re.split(r"::|\[", argument, maxsplit=1)[0]).resolve() for argument in arguments)
