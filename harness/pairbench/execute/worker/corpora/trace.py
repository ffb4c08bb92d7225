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
from pairbench.execute.worker.corpora import build, values
from pairbench.execute.worker.corpora.assemble import Candidate, assembled
from pairbench.execute.worker.faults import message_of
from pairbench.execute.worker.inputs import Make
from pairbench.execute.worker.problems import name_of
from pairbench.model.claim import Claim
from pairbench.model.operator import Operator
from pairbench.model.plain import Value
from pairbench.suite import traces
from pairbench.suite.load import PROBLEM, place_in_suite
from pairbench.suite.modules import load_module, load_text

_SHORT = 8  # the characters of a uuid that stand in a case's key, where they tell workloads apart


def operator_of(path: Path, against: str) -> Operator:
    """Return the operator of a definition, with the solutions of its data set and the candidates in `against`."""
    problem = traces.read_problem(path)
    left_out: list[tuple[str, str]] = []
    workloads = problem.workloads(left_out)
    try:
        module = load_text(path, {"reference.py": problem.reference}, "reference.py")
    except BaseException as error:
        raise SuiteError(f"{place_in_suite(path, error)}: {type(error).__name__}: {message_of(error)}") from error
    for name in filter(None, ("run", problem.custom)):
        if not callable(getattr(module, name, None)):
            raise SuiteError(f"suite {problem.label}: 'reference' defines no function {name}")
    candidates = []
    for one in problem.solutions(against, left_out):
        if why := build.why_not(one):
            left_out.append(("candidate" if one.path == Path(against) else "solution", f"{one.path.name}: {why}"))
        else:
            loadable = Loadable(one=one, problem=problem)
            candidates.append(Candidate(one.name, one.digest, loadable, build.needs(one)))
    cases = _cases(problem, workloads)
    made = Cases(
        problem=problem,
        by_name={str(case["workload"]): one for case, one in zip(cases, workloads, strict=True)},
        custom=getattr(module, problem.custom) if problem.custom else None,
    )
    floats = all(spec.shape is None or "float" in spec.dtype for spec in problem.inputs.values())
    return assembled(
        problem.name,
        home=module.__name__,
        digest=problem.digest,
        entry=Returning(function=module.run, outputs=tuple(problem.outputs)),
        made=made,
        cases=cases,
        sizes=[made.cost(str(case["workload"]))[1] for case in cases],
        candidates=candidates,
        left_out=left_out,
        summary=module.run.__doc__ or problem.description,
        # Indices say what is read of other inputs, and nobody knows which they are.
        cost=made.cost if floats else None,
        source=f"{PROBLEM}{problem.form}'s form: {problem.name}",
        claims=_claims(problem, made, cases, {name_of(one.name, "solution") for one in candidates}),
    )


class Returning(Value):
    """A function of the inputs, with its outputs in the order of the definition: one alone, or a tuple."""

    function: Callable[..., Any]
    outputs: tuple[str, ...]

    def __call__(self, *inputs: Any) -> Any:
        found = self.function(*inputs)
        if isinstance(found, dict):
            found = tuple(found.get(name) for name in self.outputs)
        if not isinstance(found, list | tuple):
            return found
        if len(found) != len(self.outputs):
            raise SuiteError(f"returned {len(found)} outputs, expected {len(self.outputs)}: {', '.join(self.outputs)}")
        return tuple(found) if len(found) > 1 else found[0]


class Cases(Value):
    """What a case stands for, by the value of its axis `workload`."""

    problem: traces.Problem
    by_name: dict[str, traces.Workload]
    custom: Callable[..., Any] | None

    def __call__(self, workload: str, make: Make) -> dict[str, Any]:
        return values.inputs_of(self.problem, self.by_name[workload], make, self.custom)

    def cost(self, workload: str, **_: object) -> tuple[float, float]:
        """Return no floating-point operations, which a definition does not tell, and the bytes of all inputs and outputs."""
        sizes, both = self.by_name[workload].sizes, (self.problem.inputs, self.problem.outputs)
        specs = [(self.problem.shape(spec, sizes), spec.dtype) for side in both for spec in side.values()]
        held = (math.prod(shape) * getattr(torch, dtype).itemsize for shape, dtype in specs if shape is not None)
        return 0.0, float(sum(held))


def _cases(problem: traces.Problem, workloads: Sequence[traces.Workload]) -> list[dict[str, Any]]:
    """Return the axes of each workload's case: those that the workload gives, and the beginning of its uuid."""
    short = Counter(one.uuid[:_SHORT] for one in workloads)
    given = [name for name, rule in problem.axes.items() if rule is None]
    named = [one.uuid if short[one.uuid[:_SHORT]] > 1 else one.uuid[:_SHORT] for one in workloads]
    return [
        {**{traces.axis_name(axis): one.sizes[axis] for axis in given}, "workload": name}
        for name, one in zip(named, workloads, strict=True)
    ]


def _claims(problem: traces.Problem, made: Cases, cases: Sequence[dict[str, Any]], names: set[str]) -> list[Claim]:
    """Return the speedups that the data set's traces state, of the solutions and workloads that were taken."""
    axes_by_uuid = {made.by_name[str(axes["workload"])].uuid: axes for axes in cases}
    claims = []
    for one in traces.traces_of(problem):
        found, name = one["evaluation"], name_of(str(one.get("solution")), "solution")
        speedup = (found.get("performance") or {}).get("speedup_factor")
        axes = axes_by_uuid.get(str((one.get("workload") or {}).get("uuid")))
        hardware = str((found.get("environment") or {}).get("hardware") or "")
        sound = isinstance(speedup, int | float) and 0 < speedup < math.inf and hardware
        if sound and axes and name in names:
            source = f"trace of {found.get('timestamp') or problem.name}"
            claims.append(Claim(speedup=speedup, device=hardware, source=source, cases=[axes], implementation=name))
    return claims


class Loadable(Value):
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
            places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            into = sum(parameter.kind in places for parameter in takes) > len(self.problem.inputs)
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
