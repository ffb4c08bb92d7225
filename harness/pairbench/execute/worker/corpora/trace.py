"""A definition of FlashInfer-Trace or SOL-ExecBench as an operator: `run` of its reference is the baseline, each workload a case.

The rules of names, cases and inputs are in docs/problems.md; histories depend on them.
"""

import inspect
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from pairbench.errors import SuiteError
from pairbench.execute.worker.corpora import build
from pairbench.execute.worker.faults import message_of
from pairbench.execute.worker.problems import bound, name_of
from pairbench.model.claim import Claim
from pairbench.model.operator import Operator, Variant
from pairbench.model.plain import Value
from pairbench.model.tolerance import REASSOCIATED
from pairbench.suite import traces
from pairbench.suite.load import PROBLEM, place_in_suite
from pairbench.suite.modules import load_module, load_text

_SHORT = 8  # the characters of a uuid that stand in a case's key, where they tell workloads apart


def operator_of(path: Path, against: str) -> Operator:
    """Return the operator of a definition, with the solutions of its data set and the candidates in `against`."""
    problem = traces.read_problem(path)
    left_out: list[tuple[str, str]] = []
    try:
        workloads = problem.workloads(left_out)
    except traces.LeftOutError as error:
        raise SuiteError(f"suite {path.name}: {error}") from None
    try:
        module = load_text(path, {"reference.py": problem.reference}, "reference.py")
    except BaseException as error:
        raise SuiteError(f"{place_in_suite(path, error)}: {type(error).__name__}: {message_of(error)}") from error
    run = getattr(module, "run", None)
    for name, function in (
        ("run", run),
        *([(problem.custom, getattr(module, problem.custom, None))] * bool(problem.custom)),
    ):
        if not callable(function):
            raise SuiteError(f"suite {path.name}: 'reference' defines no function {name}")
    cases = _cases(problem, workloads)
    made = Cases(problem=problem, by_name={str(dict(one)["workload"]): two for one, two in cases})
    entry = Returning(function=run, outputs=tuple(problem.outputs))
    space = {"__name__": module.__name__, "problem_digest": problem.digest, "made": made, "entry": entry}
    space["custom"] = getattr(module, problem.custom) if problem.custom else None
    baseline = bound(_reference, space)
    baseline.__doc__ = run.__doc__ or problem.description
    variants = {"compiled": Variant(bound(_call, space), prepare=bound(_compiled, space), kind="library")}
    for one in problem.solutions(against, left_out):
        if why := build.why_not(one):
            left_out.append(("solution", f"{one.path.name}: {why}"))
            continue
        digest = _digest(one)
        own = {"__name__": module.__name__, "solution_digest": digest, "solution": Prepared(one=one, problem=problem)}
        prepare = bound(_prepare, own)
        variants[_variant_name(one.name, variants)] = Variant(
            bound(_call, own), prepare=prepare, needs=build.needs(one)
        )
    smallest = min(cases, key=lambda one: _bytes(problem, one[1], [*problem.inputs.values()]))
    floats = all(spec.shape is None or spec.dtype.startswith(("float", "bfloat")) for spec in problem.inputs.values())
    operator = Operator(
        name_of(problem.name, "problem"),
        baseline=baseline,
        variants=variants,
        inputs=bound(_inputs, space),
        cases={"smoke": [smallest[0]], "real": [one for one, _ in cases if one is not smallest[0]]},
        constants=["case axes"],
        tolerance=REASSOCIATED,
        # Indices say what is read of other inputs, and nobody knows which they are.
        cost=made.cost if floats else None,
        source=f"{PROBLEM}{problem.form}'s form: {problem.name}",
        claims=_claims(problem, cases, variants),
    )
    vars(operator).update(left_out=tuple(left_out))
    return operator


class Returning(Value):
    """A function of the inputs with its outputs in the order of the definition: one alone, or a tuple."""

    function: Callable[..., Any]
    outputs: tuple[str, ...]

    def __call__(self, *inputs: Any) -> Any:
        found = self.function(*inputs)
        if isinstance(found, torch.Tensor):
            return found
        if isinstance(found, dict):
            found = tuple(found.get(name) for name in self.outputs)
        if isinstance(found, list | tuple) and len(found) == len(self.outputs):
            return tuple(found) if len(found) > 1 else found[0]
        if isinstance(found, list | tuple):
            raise SuiteError(f"returned {len(found)} outputs, expected {len(self.outputs)}: {', '.join(self.outputs)}")
        return found


class Cases(Value):
    """What a case stands for, by the value of its axis `workload`."""

    problem: traces.Problem
    by_name: dict[str, traces.Workload]

    def cost(self, workload: str, **_: object) -> tuple[float, float]:
        """Return no floating-point operations, which a definition does not tell, and the bytes of all inputs and outputs."""
        one = self.by_name[workload]
        return 0.0, float(_bytes(self.problem, one, [*self.problem.inputs.values(), *self.problem.outputs.values()]))


def _cases(
    problem: traces.Problem, workloads: Sequence[traces.Workload]
) -> list[tuple[dict[str, Any], traces.Workload]]:
    """Return the axes of each workload's case: those that the workload gives, and the beginning of its uuid."""
    short = Counter(one.uuid[:_SHORT] for one in workloads)
    given = [name for name, rule in problem.axes.items() if rule is None]
    return [
        (
            {
                **{traces.axis_name(name): one.sizes[name] for name in given},
                "workload": one.uuid if short[one.uuid[:_SHORT]] > 1 else one.uuid[:_SHORT],
            },
            one,
        )
        for one in workloads
    ]


def _bytes(problem: traces.Problem, workload: traces.Workload, specs: Sequence[traces.Spec]) -> int:
    shapes = [(problem.shape(spec, workload.sizes), getattr(torch, spec.dtype).itemsize) for spec in specs]
    return sum(math.prod(shape) * size for shape, size in shapes if shape is not None)


def _claims(problem: traces.Problem, cases: Any, variants: dict[str, Variant]) -> list[Claim]:
    """Return the speedups that the data set's traces state, of the solutions and workloads that were taken."""
    axes_by_uuid = {workload.uuid: axes for axes, workload in cases}
    claims = []
    for one in traces.traces_of(problem):
        found, name = one["evaluation"], name_of(str(one.get("solution")), "solution")
        speedup = (found.get("performance") or {}).get("speedup_factor")
        axes = axes_by_uuid.get((one.get("workload") or {}).get("uuid"))
        hardware = (found.get("environment") or {}).get("hardware")
        sound = isinstance(speedup, int | float) and 0 < speedup < math.inf and isinstance(hardware, str) and hardware
        if sound and axes and name in variants:
            source = f"trace of {found.get('timestamp') or problem.name}"
            claims.append(Claim(speedup=speedup, device=hardware, source=source, cases=[axes], implementation=name))
    return claims


def _variant_name(text: str, taken: dict[str, Variant]) -> str:
    name = name_of(text, "solution")
    while name in taken:  # other characters of it are the same
        name += "_"
    return name


def _digest(one: traces.Solution) -> str:
    sources = one.sources or {one.path.name: one.path.read_text(errors="replace")}
    texts = {name: traces.code_of(text) if name.endswith(".py") else text for name, text in sources.items()}
    return traces.digest_of([one.languages, one.entry, one.function, one.into_outputs, texts, one.options])


class Prepared(Value):
    """A solution that is not loaded yet: only the process that calls it does so."""

    one: traces.Solution
    problem: traces.Problem

    def entry(self, case: dict[str, Any]) -> Callable[..., Any]:
        """Load the solution, and return a function of the inputs that returns the outputs, as its `run` or into new ones."""
        one, path = self.one, self.one.path
        if not one.sources:
            module: Any = load_module(path.resolve())
        elif one.languages[0] in traces.NATIVE:
            module = build.built(one)
        else:
            module = load_text(path.resolve(), one.sources, one.entry)
        function = getattr(module, one.function, None)
        if not callable(function):
            raise SuiteError(f"{path.name} defines no function {one.function}")
        into = one.into_outputs
        if into is None:
            takes = inspect.signature(function).parameters.values()
            into = sum(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in takes) > len(
                self.problem.inputs
            )
        if not into:
            return Returning(function=function, outputs=tuple(self.problem.outputs))
        forms = []
        for name, spec in self.problem.outputs.items():
            if (shape := self.problem.shape(spec, case["sizes"])) is None:
                raise SuiteError(f"{path.name} writes into outputs, and {name!r} is a Python scalar, which it cannot")
            forms.append((shape, getattr(torch, spec.dtype)))

        def into_new(*inputs: Any) -> Any:
            outputs = tuple(torch.empty(shape, dtype=dtype, device=case["device"]) for shape, dtype in forms)
            function(*inputs, *outputs)
            return outputs if len(outputs) > 1 else outputs[0]

        return into_new


# These run in a namespace of the problem or of the candidate, see `problems.bound`, so they import what else they need. Each names the
# digest, so that hashes cover it.


def _reference(**inputs):  # type: ignore[no-untyped-def]
    assert problem_digest  # type: ignore[name-defined]  # noqa: F821
    del inputs["case axes"]
    return entry(*inputs.values())  # type: ignore[name-defined]  # noqa: F821


def _call(**inputs):  # type: ignore[no-untyped-def]
    function = inputs.pop("entry function")
    del inputs["case axes"]
    return function(*inputs.values())


def _compiled(**constants):  # type: ignore[no-untyped-def]
    import torch

    assert problem_digest  # type: ignore[name-defined]  # noqa: F821
    return {"entry function": torch.compile(entry)}  # type: ignore[name-defined]  # noqa: F821


def _inputs(make, /, *, workload, **axes):  # type: ignore[no-untyped-def]
    from pairbench.execute.worker.corpora.values import inputs_of

    assert problem_digest  # type: ignore[name-defined]  # noqa: F821
    return inputs_of(made.problem, made.by_name[workload], make, custom)  # type: ignore[name-defined]  # noqa: F821


def _prepare(**constants):  # type: ignore[no-untyped-def]
    assert solution_digest  # type: ignore[name-defined]  # noqa: F821
    return {"entry function": solution.entry(constants["case axes"])}  # type: ignore[name-defined]  # noqa: F821
