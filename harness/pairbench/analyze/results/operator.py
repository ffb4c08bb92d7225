"""The newest records of an operator on one device model, put in order for a page of results."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from pairbench.analyze.results.claims import judged
from pairbench.analyze.results.losses import losses_of
from pairbench.analyze.site.facts import environment_of
from pairbench.model.case import Case
from pairbench.model.latency import CALL, DEVICE, RESULT_COLUMNS, p50_of, result_of, speedup_of
from pairbench.model.load import withheld
from pairbench.model.outcome import Status
from pairbench.model.plan import BASELINE, OperatorDescription
from pairbench.model.record import Record
from pairbench.model.results import CaseResults, ContributingRun, ModeResults, OperatorResults, StepGain
from pairbench.model.settings import MODES, OWN_TIMERS, about_precision
from pairbench.stats import Interval, speedup_interval

COLUMNS = (
    *("run_id", "confirms", "started_at", "commit", "commit_at", "branch", "dirty", "suite", "operator"),
    *("definition_hash", "case", "axes", "tier", "dtype", "float32_precision", "implementation", "role", "mode"),
    *("device_kind", "device_name", "device_uuid", "hostname"),
    *("driver", "cuda", "cudnn", "torch", "triton", "python", "cpu"),
    *("environment_hash", "environment", "status", "reason", "first_call_ns", "n_rounds"),
    *(*RESULT_COLUMNS, "round_p50_ns", "device_round_p50_ns"),
    *("max_abs_error", "mean_abs_error", "oracle_ratio"),
    *("warm_first_call_ns", "compilations", "recompilations", "graph_breaks"),
    *("launches_per_call", "kernels_per_call", "syncs_per_call"),
    *("launch_status", "peak_bytes", "flops", "bytes_moved", "gbps", "roofline_fraction"),
)
"""The columns of a record that are needed here."""

_BAD = {status for status in Status if status.bad}
_NONE = Interval(0.0, 0.0, 0.0)
_Key = tuple[str, str, str]
"""Case, implementation and mode together name a row of an operator."""
_Timed = tuple[str, str | None, str | None, str | None]
"""Run, device, case and mode together name what was timed side by side."""


def results_of(
    operator: OperatorDescription, records: Sequence[Record], tiers: Collection[str]
) -> OperatorResults | None:
    """Return what is known of an operator; None where no case in these tiers was ever tried.

    Args:
        operator: as its suite declares it now.
        records: all of it on one device model, of any run.
        tiers: of the cases to take.
    """
    declared = {case.key: case for case in operator.cases if case.tier in tiers}
    known = [record for record in records if record.case in declared and record.implementation and record.mode]
    if not known:
        return None
    newest = _newest(known, operator.definition_hash)
    baselines = {_timed_with(record): record for record in known if record.implementation == BASELINE}
    cases = tuple(
        _case_results(case, operator, newest, baselines)
        for case in sorted(declared.values(), key=lambda case: _size(case, operator.costs))
        if any(key == case.key for key, _, _ in newest)
    )
    names = [item.name for item in operator.implementations]
    # In the order of cases, and of implementations in each, as everything on the page.
    shown = [record for case in cases for mode in case.modes for record in _of(mode) if record.implementation in names]
    return OperatorResults(
        operator=operator,
        device_name=known[0].device_name,
        runs=_runs(shown),
        notes=_notes(shown),
        cases=cases,
        claims=judged(operator, cases, tiers),
        losses=losses_of(cases),
        refused=tuple(record for record in shown if record.status in _BAD),
        skipped=tuple(record for record in shown if record.status == Status.SKIPPED),
        outdated=tuple(
            dict.fromkeys(str(record.case) for record in shown if record.definition_hash != operator.definition_hash)
        ),
        missing=tuple(case for key, case in declared.items() if key not in {found.case.key for found in cases}),
    )


def _newest(records: Iterable[Record], definition: str) -> dict[_Key, Record]:
    """Return the newest record of each series.

    One of the definition that is declared now goes before all others; what measured, or failed to, before a skip, for
    an interrupted run skips what it did not come to; and our own clocks before Triton's, which is there to be compared with.
    """
    found: dict[_Key, tuple[tuple[object, ...], Record]] = {}
    for record in records:
        key = (str(record.case), str(record.implementation), str(record.mode))
        place = (
            record.definition_hash == definition,
            record.status != Status.SKIPPED,
            record.timer is None or record.timer in OWN_TIMERS.values(),
            record.run_id,
        )
        if key not in found or place > found[key][0]:
            found[key] = place, record
    return {key: record for key, (_, record) in found.items()}


def _case_results(
    case: Case, operator: OperatorDescription, newest: Mapping[_Key, Record], baselines: Mapping[_Timed, Record]
) -> CaseResults:
    modes = [mode for mode in MODES if any(key[0] == case.key and key[2] == mode for key in newest)]
    return CaseResults(
        case=case,
        bytes_moved=operator.costs.get(case.key, (None, None))[1],
        modes=tuple(_mode_results(case, mode, operator, newest, baselines) for mode in modes),
    )


def _mode_results(
    case: Case,
    mode: str,
    operator: OperatorDescription,
    newest: Mapping[_Key, Record],
    baselines: Mapping[_Timed, Record],
) -> ModeResults:
    names = [item.name for item in operator.implementations if item.name != BASELINE]
    variants = tuple(newest[key] for name in names if (key := (case.key, name, mode)) in newest)
    measured = [record for record in variants if record.status == Status.MEASURED and speedup_of(record)]
    best = max(measured, key=lambda record: speedup_of(record) or _NONE, default=None)
    own = {str(record.implementation): found for record in variants if (found := baselines.get(_timed_with(record)))}
    return ModeResults(
        mode=mode,
        baseline=own.get(str(best.implementation) if best else "") or newest.get((case.key, BASELINE, mode)),
        best=best,
        variants=variants,
        baselines=own,
        steps=steps_of(variants, {item.name: item.builds_on for item in operator.implementations}),
    )


def _timed_with(record: Record) -> _Timed:
    """Return what a variant has in common with the baseline that it was timed with."""
    return record.run_id, record.device_uuid, record.case, record.mode


def _of(mode: ModeResults) -> list[Record]:
    return [*([mode.baseline] if mode.baseline else []), *mode.variants]


def _size(case: Case, costs: Mapping[str, tuple[float, float]]) -> tuple[object, ...]:
    """Return what sorts cases of one dtype beside one another, the smallest first."""
    flops, moved = costs.get(case.key, (0.0, 0.0))
    numbers = tuple(float(value) for _, value in case.axes if isinstance(value, int | float))
    return case.dtype or "", moved, flops, numbers, case.key


def _runs(records: Iterable[Record]) -> tuple[ContributingRun, ...]:
    by_run: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_run[record.run_id].append(record)
    return tuple(
        ContributingRun(
            record=by_run[run_id][0],
            records=len(by_run[run_id]),
            rounds=tuple(sorted({record.n_rounds for record in by_run[run_id] if record.n_rounds})),
        )
        for run_id in sorted(by_run, reverse=True)
    )


def _notes(records: Sequence[Record]) -> tuple[str, ...]:
    flags = [environment_of(record).get("flags") or {} for record in records]
    # Of records before schema version 9 only the setting is known.
    precisions = [one.float32_precision for one in records if one.device_kind == "cuda"]
    tf32 = sum(
        one.float32_precision == "tf32" or (one.float32_precision is None and bool(flag.get("matmul.allow_tf32")))
        for one, flag in zip(records, flags, strict=True)
    )
    others = sorted({record.timer for record in records if record.timer and record.timer not in OWN_TIMERS.values()})
    line = f"{tf32} of {len(records)} records were made with TF32 on" if tf32 else about_precision(precisions)
    told = [line] if line else []
    told += sorted(
        {f"speedups withheld: {why}" for one in records if (why := withheld(one.device_kind, one.environment))}
    )
    return (*told, *(f"some were timed by {timer}" for timer in others))


def steps_of(variants: Sequence[Record], builds_on: Mapping[str, str]) -> dict[str, StepGain]:
    """Return the step of each variant that builds on another of the same run, by the variant's name.

    Args:
        variants: of one case in one mode, one record of each.
        builds_on: for each implementation the variant it builds on, if any.
    """
    timed = {
        str(record.implementation): record
        for record in variants
        if p50_of(record) and not withheld(record.device_kind, record.environment)
    }
    pairs = {name: (timed.get(builds_on.get(name, "")), record) for name, record in timed.items()}
    return {
        name: StepGain(over=builds_on[name], gain=_gain(before, record))
        for name, (before, record) in pairs.items()
        if before is not None and before.run_id == record.run_id
    }


def _gain(before: Record, record: Record) -> Interval:
    """Return how many times as fast a step is, by its rounds, each one process that timed both; of one round, without an interval."""
    latency = DEVICE if {result_of(before), result_of(record)} == {DEVICE} else CALL
    ours, theirs = (getattr(one, latency.rounds[0]) or () for one in (record, before))
    if len(ours) == len(theirs) > 1:
        return speedup_interval([[value] for value in theirs], [[value] for value in ours])
    medians = (p50_of(one, latency) for one in (before, record))
    slower, faster = (math.nan if median is None else median.estimate for median in medians)
    return Interval(slower / faster, math.nan, math.nan)
