"""Each error knows its exit code."""

import inspect

import pytest

from pairbench import errors

CLASSES = {
    name: value
    for name, value in vars(errors).items()
    # An interruption is no error of anybody's, and stands beside them.
    if inspect.isclass(value) and value.__module__ == errors.__name__ and value is not errors.InterruptedRunError
}


@pytest.mark.parametrize("error", CLASSES.values(), ids=lambda error: str(error.__name__))
def test_exit_code_says_whose_fault_it_is(error: type[errors.PairbenchError]) -> None:
    assert issubclass(error, errors.PairbenchError) and error.__doc__
    assert error("suite 'a.py': gone").exit_code == (2 if issubclass(error, errors.UsageError) else 4)
    assert str(error("operator 'a': no cases")) == "operator 'a': no cases"


def test_a_wrong_declaration_is_a_value_error() -> None:
    """So that an author's own code can catch it without importing our tree."""
    assert issubclass(errors.DeclarationError, ValueError)
