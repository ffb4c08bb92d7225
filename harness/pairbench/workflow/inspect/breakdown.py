"""Where one call spends its time: each implementation of a case in a worker that profiles and never times."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from pairbench.config import Config
from pairbench.errors import SelectionError, UsageError
from pairbench.execute.parent.pool import WorkerContext
from pairbench.execute.parent.scout import probe_environment
from pairbench.execute.parent.steps import inspect
from pairbench.execute.protocol import BreakDownCase, Ended
from pairbench.model.breakdown import Breakdown, CaseBreakdown, KeptBreakdown, NoBreakdown
from pairbench.model.environment import Commit, Device, Environment
from pairbench.model.plan import PlannedCase
from pairbench.store.breakdowns import write_breakdown
from pairbench.workflow.git.commit import read_commit
from pairbench.workflow.inspect.one_case import Wanted, open_case
from pairbench.workflow.setup import stamp


@dataclass(frozen=True, kw_only=True)
class WantedBreakdown(Wanted):
    """Which call to break down, and what to keep of it."""

    implementations: tuple[str, ...] = ("baseline",)
    """Names of implementations, or `all`."""
    trace: Path | None = None
    """The file that the profiler's trace is written to; None for no trace."""
    keep: bool = False
    """Whether the breakdowns are kept in the store."""


def break_down(config: Config, wanted: WantedBreakdown) -> tuple[CaseBreakdown, str | None]:
    """Return the breakdowns of a case's implementations, and where they are kept, if they are.

    Raises:
        UsageError: what is wanted is not there, or several.
        StoreError: they cannot be kept.
        InterruptedRunError: the user interrupted.
    """
    with open_case(config, wanted) as whole:
        names = _names(whole.planned, wanted.implementations)
        one = whole.only(tuple(entry for entry in whole.planned.entries if entry.implementation in names))
        _check_trace(wanted.trace, names)
        parts = one.work("breakdown", lambda device: _break_down(one.context, device, one.planned, wanted.trace))
        found = CaseBreakdown(
            operator=one.planned.operator, case=one.planned.case, device=one.device, parts=tuple(parts)
        )
        if not wanted.keep or not any(isinstance(part, Breakdown) for part in parts):
            return found, None
        environment = probe_environment(one.context, one.device)
        commit = read_commit(Path(one.planned.operator.path).parent)
        return found, write_breakdown(config.store, kept_of(found, environment, commit))


def _names(planned: PlannedCase, wanted: tuple[str, ...]) -> tuple[str, ...]:
    known = tuple(entry.implementation for entry in planned.entries)
    if "all" in wanted:
        return known
    for name in wanted:
        if name not in known:
            raise SelectionError(
                f"{planned.operator.name} has no implementation {name!r}, expected one of {', '.join(known)}, or all"
            )
    return tuple(dict.fromkeys(wanted))


def _check_trace(trace: Path | None, names: tuple[str, ...]) -> None:
    if trace is None:
        return
    if len(names) > 1:
        raise UsageError(f"--trace takes one implementation at a time, got {', '.join(names)}")
    if not trace.resolve().parent.is_dir():
        raise UsageError(f"--trace {str(trace)!r}: its folder does not exist")


def kept_of(found: CaseBreakdown, environment: Environment, commit: Commit | None) -> KeptBreakdown:
    """Return what is stored of a case's breakdowns that were made now."""
    now = dt.datetime.now(dt.UTC)
    known = {name: getattr(environment, name) for name in ("driver", "cuda", "cudnn", "torch", "triton", "python")}
    return KeptBreakdown(
        breakdown_id=stamp(now),
        made_at=now.isoformat(timespec="milliseconds"),
        device_name=found.device.name,
        environment_hash=environment.hash,
        versions={name: version for name, version in known.items() if version},
        commit=commit.sha if commit else None,
        suite=found.operator.suite,
        operator=found.operator.name,
        case=found.case.key,
        parts=tuple(part for part in found.parts if isinstance(part, Breakdown)),
    )


def _break_down(
    context: WorkerContext, device: Device, planned: PlannedCase, trace: Path | None
) -> list[Breakdown | NoBreakdown]:
    """Break down each implementation in a worker that never times."""
    entries = planned.entries
    left_out = {**planned.skipped, **planned.untimed}
    jobs = [
        BreakDownCase(
            path=Path(planned.operator.path),
            operator=planned.operator.name,
            case=planned.case,
            entries=(entry,),
            trace=trace.resolve() if trace else None,
        )
        for entry in entries
        if entry not in left_out
    ]
    found: dict[str, Breakdown | NoBreakdown] = {
        entry.implementation: NoBreakdown(entry=entry, reason=left_out[entry], bad=False)
        for entry in entries
        if entry in left_out
    }
    for job, answer in inspect(context, device, jobs):
        (entry,) = job.entries
        if isinstance(answer, Ended):
            reason = f"{answer.status}: {answer.reason}"
            found[entry.implementation] = NoBreakdown(entry=entry, reason=reason, bad=answer.status.bad)
        else:
            found[entry.implementation] = answer
    return [found[entry.implementation] for entry in entries]
