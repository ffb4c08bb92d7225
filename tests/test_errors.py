"""The error tree: what its docstring draws is what there is, and each error knows its exit code."""

import inspect
import re

import pytest

from pairbench import errors

CLASSES = {
    name: value
    for name, value in vars(errors).items()
    # An interruption is no error of anybody's, and stands beside the tree.
    if inspect.isclass(value) and value.__module__ == errors.__name__ and value is not errors.InterruptedRunError
}


def drawn_tree() -> dict[str, str | None]:
    """Read the docstring's drawing as class -> base."""
    tree: dict[str, str | None] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        if not (found := re.match(r"([ │├└─]*)(\w+Error)\b", line)):
            continue
        depth, name = len(found[1]), found[2]
        while path and path[-1][0] >= depth:
            path.pop()
        tree[name] = path[-1][1] if path else None
        path.append((depth, name))
    return tree


def test_the_tree_is_as_drawn() -> None:
    tree = {
        name: base.__name__ if (base := error.__bases__[0]) in CLASSES.values() else None
        for name, error in CLASSES.items()
    }
    assert drawn_tree() == tree


@pytest.mark.parametrize("error", CLASSES.values(), ids=lambda error: str(error.__name__))
def test_exit_code_says_whose_fault_it_is(error: type[errors.PairbenchError]) -> None:
    assert issubclass(error, errors.PairbenchError) and error.__doc__
    assert error("suite 'a.py': gone").exit_code == (2 if issubclass(error, errors.UsageError) else 4)
    assert str(error("operator 'a': no cases")) == "operator 'a': no cases"


def test_a_wrong_declaration_is_a_value_error() -> None:
    """So that an author's own code can catch it without importing our tree."""
    assert issubclass(errors.DeclarationError, ValueError)
