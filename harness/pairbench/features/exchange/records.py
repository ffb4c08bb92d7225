"""Makes rows of a store from what another tool measured.

One file is one process, so one round: the independent unit, whatever number of samples it holds. The intervals say
how well the process knows its own median, by order statistics, and nothing of other processes. Those tools measure one
benchmark after the other, so there are no pairs of samples, and a speedup's interval is that of two independent medians.

Which parameter of somebody's benchmarks tells implementations apart, and what each benchmark then is to us.
"""

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pairbench.analyze.latencies import interval_columns
from pairbench.analyze.records import environment_columns
from pairbench.errors import UsageError
from pairbench.features.exchange.values import Axes, ForeignRun, Result, Timing, word
from pairbench.model.case import Case, format_value
from pairbench.model.latency import CALL, p50_of
from pairbench.model.plan import BASELINE
from pairbench.model.record import Record, Samples
from pairbench.stats import FEWEST_ALONE, Interval, outliers, percentile, ratio_interval


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """The parameter whose values are implementations of one operator."""

    axis: str
    baseline: str = BASELINE
    """Value of the parameter for the plain implementation."""

    @classmethod
    def parse(cls, text: str) -> "Pairing":
        """Return what `AXIS` or `AXIS:BASELINE` means."""
        axis, colon, baseline = text.partition(":")
        if not axis or (colon and not baseline):
            raise UsageError(
                f"--implementation {text!r}: expected AXIS or AXIS:BASELINE, such as implementation:reference"
            )
        return cls(axis=axis, baseline=word(baseline) if baseline else BASELINE)

    def split(self, result: Result) -> tuple[str, Axes]:
        """Return the implementation that a result is of, and the axes that are left."""
        axes = dict(result.axes)
        if self.axis not in axes:
            return BASELINE, result.axes
        value = format_value(axes.pop(self.axis))
        return BASELINE if value == self.baseline else value, tuple(axes.items())

    def check(self, results: Iterable[Result]) -> None:
        """Refuse a pairing that pairs nothing."""
        values: set[str] = set()
        axes: set[str] = set()
        empty = True
        for result in results:  # once through: a history is long
            empty = False
            axes.update(axis for axis, _ in result.axes)
            values.update(format_value(value) for axis, value in result.axes if axis == self.axis)
        if empty:
            return  # nothing could be read, and that is what has to be said
        if not values:
            raise UsageError(
                f"--implementation {self.axis!r}: no benchmark has such a parameter, expected one of "
                f"{', '.join(sorted(axes)) or 'none, for none has any'}"
            )
        if self.baseline not in values:
            raise UsageError(
                f"--implementation {self.axis}: it never is {self.baseline!r}, so there is no baseline; expected "
                f"{self.axis}:BASELINE with one of {', '.join(sorted(values))}"
            )
        if self.baseline != BASELINE and BASELINE in values:
            raise UsageError(
                f"--implementation {self.axis}:{self.baseline}: another of its values is called {BASELINE!r}, which is what "
                "the baseline is called here; leave BASELINE out, or rename that value"
            )


def split(result: Result, pairing: Pairing | None) -> tuple[str, Axes]:
    """Return the implementation that a result is of, and the axes of its case; everything is a baseline without a pairing."""
    return pairing.split(result) if pairing else (BASELINE, result.axes)


MODE = "eager"
_Z = 1.959964
"""Standard normal quantile of a 95 % interval."""
_UNKNOWN_STOP = "unknown"
_LATEST_NS = 2**63 - 1
"""What a column holds: a file may say that a sample is the mean of any number of calls."""


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """One file as rows."""

    source: str
    run_id: str
    records: tuple[Record, ...]
    samples: tuple[Samples, ...]
    left_out: tuple[str, ...]


def rows_of(run: ForeignRun, pairing: Pairing | None = None) -> ImportedRun:
    """Return a file's results as rows, speedups included where the pairing finds a baseline."""
    shared = {**asdict(run.origin), **environment_columns(run.environment)}
    pairs = [(_record(result, pairing, shared), result.timing) for result in run.results]
    own = _with_speedups(pairs)
    samples = [
        _samples(record, [timing.samples_ns], timing.calls_per_sample)
        for record, timing in zip(own, (timing for _, timing in pairs), strict=True)
        if timing and timing.samples_ns
    ]
    samples += [_samples(record, rounds) for record, rounds in run.restored if rounds]
    return ImportedRun(
        source=run.source,
        run_id=run.origin.run_id,
        records=(*own, *(record for record, _ in run.restored)),
        samples=tuple(itertools.chain.from_iterable(samples)),
        left_out=run.left_out,
    )


def _record(result: Result, pairing: Pairing | None, shared: dict[str, Any]) -> Record:
    implementation, axes = split(result, pairing)
    case = Case(operator=result.operator, axes=axes, tier="")
    return Record(
        **shared,
        suite=result.suite,
        operator=result.operator,
        definition_hash=result.definition_hash,
        case=case.key,
        axes=json.dumps(dict(axes)),
        dtype=case.dtype,
        implementation=implementation,
        role=BASELINE if implementation == BASELINE else "variant",
        mode=MODE,
        status=result.status,
        reason=result.reason,
        peak_bytes=result.peak_bytes,
        **(_latency_columns(result.timing) if result.timing else {}),
    )


def _latency_columns(timing: Timing) -> dict[str, Any]:
    columns: dict[str, Any] = {"timer": timing.timer, "n_samples": timing.n_samples, "n_rounds": 1}
    columns |= {"call_p50_ns": timing.p50_ns, "round_p50_ns": (timing.p50_ns,)}
    if timing.samples_ns:
        p50 = order_interval(timing.samples_ns, 50)
        columns |= interval_columns("call_p50_ns", p50) | {"round_p50_ns": (p50.estimate,)}
        if timing.calls_per_sample == 1:
            p95 = order_interval(timing.samples_ns, 95)
            columns |= interval_columns("call_p95_ns", p95) | {"round_p95_ns": (p95.estimate,)}
    return columns


def order_interval(samples: Sequence[float], q: float) -> Interval:
    """Return a percentile of one process' samples with its 95 % interval between two order statistics.

    It never reaches beyond the samples, and fewer than six have none.
    """
    if len(samples) < FEWEST_ALONE:
        return Interval(percentile(samples, q), math.nan, math.nan)
    ordered = sorted(samples)
    last, part = len(ordered) - 1, q / 100
    reach = _Z * math.sqrt(len(ordered) * part * (1 - part))
    low = max(0, math.floor(len(ordered) * part - reach))
    high = min(last, math.ceil(len(ordered) * part + reach))
    return Interval(percentile(ordered, q), ordered[low], ordered[high])


def _with_speedups(pairs: Sequence[tuple[Record, Timing | None]]) -> list[Record]:
    controls = {_case(record): record for record, _ in pairs if record.role == BASELINE}
    return [
        replace(record, **_speedup_columns(record, control))
        if record.role != BASELINE and (control := controls.get(_case(record)))
        else record
        for record, _ in pairs
    ]


def _case(record: Record) -> tuple[str, str | None]:
    return record.suite, record.case


def _speedup_columns(record: Record, control: Record) -> dict[str, Any]:
    ours, theirs = (p50_of(one, CALL) for one in (record, control))
    if ours is None or theirs is None:
        return {}
    return interval_columns(CALL.speedup, ratio_interval(theirs, ours))


def _samples(record: Record, rounds: Sequence[Sequence[float]], calls: int = 1) -> list[Samples]:
    """Return raw samples as rows. No tool says when each was taken, so `at_ns` is what the samples before took."""
    names = (record.operator, record.case, record.implementation, record.mode, record.timer)
    operator, case, implementation, mode, timer = (name or "" for name in names)
    return [
        Samples(
            run_id=record.run_id,
            device_name=record.device_name,
            device_uuid=record.device_uuid,
            suite=record.suite,
            operator=operator,
            case=case,
            implementation=implementation,
            mode=mode,
            timer=timer,
            round=number,
            stop_reason=record.stop_reason or _UNKNOWN_STOP,
            block=tuple(range(len(values))),
            position=(0,) * len(values),
            at_ns=tuple(min(int(calls * taken), _LATEST_NS) for taken in itertools.accumulate(values, initial=0.0))[
                :-1
            ],
            call_ns=tuple(values),
            host_ns=None,
            device_ns=None,
            throttled=(False,) * len(values),
            outlier=tuple(bool(label) for label in outliers(values)),
        )
        for number, values in enumerate(rounds)
    ]
