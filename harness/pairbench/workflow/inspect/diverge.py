"""Where a variant leaves its baseline: both run on the same inputs, and outputs of modules of one name are compared."""

from pathlib import Path

from pairbench.config import Config
from pairbench.errors import SelectionError
from pairbench.execute.parent.pool import WorkerContext
from pairbench.execute.parent.steps import inspect
from pairbench.execute.protocol import DivergeCase, Ended
from pairbench.model.divergence import CaseDivergence, Divergence, NoDivergence
from pairbench.model.environment import Device
from pairbench.model.plan import Entry, PlannedCase
from pairbench.workflow.inspect.one_case import Wanted, open_case


def find_divergence(config: Config, wanted: Wanted, variant: str) -> CaseDivergence:
    """Return how far the modules of a variant are from the baseline's, one after the other.

    Raises:
        UsageError: what is wanted is not there, or several.
        InterruptedRunError: the user interrupted.
    """
    with open_case(config, wanted) as whole:
        entry = _entry(whole.planned, variant)
        one = whole.only((entry,))
        found = one.work("diverge", lambda device: _diverge(one.context, device, one.planned, entry))
        return CaseDivergence(operator=one.planned.operator, case=one.planned.case, device=one.device, result=found)


def _entry(planned: PlannedCase, variant: str) -> Entry:
    known = {entry.implementation: entry for entry in planned.entries if entry.role == "variant"}
    if variant not in known:
        raise SelectionError(f"{planned.operator.name} has no variant {variant!r}, expected one of {', '.join(known)}")
    return known[variant]


def _diverge(context: WorkerContext, device: Device, planned: PlannedCase, entry: Entry) -> Divergence | NoDivergence:
    if entry in planned.skipped:
        return NoDivergence(entry=entry, reason=planned.skipped[entry], bad=False)
    job = DivergeCase(
        path=Path(planned.operator.path), operator=planned.operator.name, case=planned.case, entries=(entry,)
    )
    # Triton's interpreter computes what the kernels do, which is all that is asked here.
    for _, answer in inspect(context, device, [job], interpret=device.kind == "cpu"):
        if isinstance(answer, Ended):
            return NoDivergence(entry=entry, reason=f"{answer.status}: {answer.reason}", bad=answer.status.bad)
        assert isinstance(answer, Divergence | NoDivergence)
        return answer
    return NoDivergence(entry=entry, reason="the worker gave no answer; please report this", bad=True)
