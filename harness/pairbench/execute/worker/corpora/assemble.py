"""What operators of all JSON and text forms have in common: the functions whose hashes begin their histories, and how candidates are loaded.

Inputs are in the order of the reference's arguments; beside them is the constant `case axes`, for which a candidate is prepared.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from pairbench.execute.worker.inputs import Make
from pairbench.execute.worker.problems import bound, name_of
from pairbench.model.operator import Operator, Variant
from pairbench.model.tolerance import REASSOCIATED


class Loadable(Protocol):
    """A candidate that is not loaded yet: only the process that calls it does so."""

    def entry(self, case: dict[str, Any]) -> Callable[..., Any]: ...


class Candidate(NamedTuple):
    name: str
    digest: str
    solution: Loadable
    needs: tuple[str, ...] = ()


def assembled(
    name: str,
    *,
    home: str,
    digest: str,
    entry: Callable[..., Any],
    made: Callable[[str, Make], dict[str, Any]],
    cases: Sequence[dict[str, Any]],
    sizes: Sequence[float],
    candidates: Iterable[Candidate],
    left_out: Iterable[tuple[str, str]],
    summary: str = "",
    **more: Any,
) -> Operator:
    """Return the operator of a problem: its smallest case by `sizes` is smoke, and all others are real; `made` makes the inputs of a case by its axis `workload`, and `home` is the module that the operator stands for."""
    space = {"__name__": home, "problem_digest": digest, "entry": entry, "made": made}
    baseline = bound(_reference, space)
    baseline.__doc__ = summary
    variants = {"compiled": Variant(bound(_call, space), prepare=bound(_compiled, space), kind="library")}
    for one in candidates:
        own = {"__name__": home, "solution_digest": one.digest, "solution": one.solution}
        key = name_of(one.name, "solution")
        while key in variants:  # other characters of it are the same
            key += "_"
        variants[key] = Variant(bound(_call, own), prepare=bound(_prepare, own), needs=one.needs)
    smallest = min(range(len(cases)), key=sizes.__getitem__)
    operator = Operator(
        name_of(name, "op"),
        baseline=baseline,
        variants=variants,
        inputs=bound(_inputs, space),
        cases={"smoke": [cases[smallest]], "real": [*cases[:smallest], *cases[smallest + 1 :]]},
        constants=["case axes"],
        tolerance=REASSOCIATED,
        **more,
    )
    vars(operator).update(left_out=tuple(left_out))
    return operator


# These run in a namespace of the problem or of the candidate, see `problems.bound`. Each that is not timed alone names the digest, so that
# hashes cover it.
# mypy: disable-error-code="no-untyped-def, name-defined"
# ruff: noqa: F821, ARG001


def _reference(**inputs):
    assert problem_digest
    del inputs["case axes"]
    return entry(*inputs.values())


def _call(**inputs):
    function = inputs.pop("entry function")
    del inputs["case axes"]
    return function(*inputs.values())


def _compiled(**constants):
    import torch

    assert problem_digest
    return {"entry function": torch.compile(entry)}


def _inputs(make, /, *, workload, **axes):
    assert problem_digest
    return made(workload, make)


def _prepare(**constants):
    assert solution_digest
    return {"entry function": solution.entry(constants["case axes"])}
