"""Facts about records for pages and tables, the columns of a record about time, and the values of a series' newest record."""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, get_type_hints

from numpy.typing import ArrayLike

from pairbench.model import record as stored
from pairbench.model.environment import withheld
from pairbench.model.outcome import STOP_REASONS, EntrySamples, Outcome, Status, TimedRound
from pairbench.model.plan import Entry
from pairbench.model.record import CALL, DEVICE, ENDS, HOST, LATENCIES, STREAM, Latency, LazyRecords, Record, Series
from pairbench.model.site import RunHead, SeriesFacts, SeriesStatus
from pairbench.stats import latency_intervals, lower_mean, percentile, percentiles, ratio_interval, speedup_interval

_HEAD = (
    *("run_id", "started_at", "device_name", "hostname", "commit", "commit_at", "branch", "confirms"),
    *("environment_hash", "pull_request"),
)
_VERSIONS = ("driver", "cuda", "cudnn", "torch", "triton", "python", "cpu")
_TEXTS = (
    *("timer", "device_timer", "bound", "stop_reason", "launch_status", "throttle_reasons"),
    *("definition_hash", "implementation_hash", "device_uuid", "float32_precision", "best_alternative"),
)
_HINTS = get_type_hints(Record)
NUMBERS = tuple(item.name for item in fields(Record) if _HINTS[item.name] in (int | None, float | None))


def series_facts(
    record: Record,
    series: Series,
    gate_status: SeriesStatus,
    *,
    samples: ArrayLike | None = None,
    columns: Collection[str] = NUMBERS,
) -> SeriesFacts:
    """Return the facts of a series' newest record, with some number columns besides those of its result, whose samples are in ns."""
    # `numbers` has the columns under their names, except that `speedup` is the result's, as `p50_ns` and `p95_ns` are: on a GPU the device's where it has
    # one, else the call's. `texts["latency"]` names it, and `texts["speedup_of"]` the latency of the speedup: the call's, too, where the baseline has none.
    held = vars(record)
    values = {name: held[name] for name in columns} | _result(record)
    texts = ((name, held[name]) for name in _TEXTS)
    return SeriesFacts(
        series=series,
        role=record.role or "",
        tier=record.tier or "",
        dtype=record.dtype or "",
        axes=_object(record.axes),
        **{name: held[name] for name in ("run_id", "status", "reason", "kernels")},
        gate_status=gate_status,
        numbers={name: value for name, value in values.items() if value is not None and math.isfinite(value)},
        texts={"latency": stored.result_of(record).name, "speedup_of": stored.speedup_is_of(record).name}
        | {name: value for name, value in texts if value}
        | ({"reuses_output": "yes"} if record.reuses_output else {})
        | ({"consumes": ", ".join(record.consumes)} if record.consumes else {})
        | ({"withheld": why} if (why := withheld(record.device_kind, record.environment)) else {}),
        quantiles=percentiles(samples, range(101)) if samples is not None else (),
    )


def _result(record: Record) -> dict[str, float | None]:
    """Return the result of a record under the same names on every device; the call's speedup is `call_speedup` beside it."""
    latency = stored.result_of(record)
    intervals = (stored.p50_of(record, latency), stored.p95_of(record, latency), stored.speedup_of(record))
    hidden = withheld(record.device_kind, record.environment)
    values: dict[str, float | None] = {f"call_{CALL.speedup}": None if hidden else record.speedup}
    for name, interval in zip(("p50_ns", "p95_ns", "speedup"), intervals, strict=True):
        values |= stored.interval_columns(name, interval) if interval else {f"{name}{end}": None for end in ENDS}
    return values


def run_head(first: Record, records: LazyRecords) -> RunHead:
    """Return the head of a run from its first record and the columns of all."""
    versions = {name: getattr(first, name) for name in _VERSIONS}
    uuids, timers = (tuple(sorted({one for one in records.values(name) if one})) for name in ("device_uuid", "timer"))
    return RunHead(
        **{name: getattr(first, name) for name in _HEAD},
        device_uuids=uuids,
        dirty=any(records.values("dirty")),
        versions={name: value for name, value in versions.items() if value},
        statuses=Counter(records.values("status")),
        **{name: getattr(first, f"commit_{name}") for name in ("subject", "author", "number")},
        timers=timers,
    )


def remeasured_blocks(records: Iterable[Record]) -> int:
    by_case = {
        (record.device_uuid, record.suite, record.case): record.remeasured_blocks
        for record in records
        if record.remeasured_blocks is not None
    }
    return sum(by_case.values())


def environment_of(record: Record) -> Mapping[str, Any]:
    return _object(record.environment)


def ceilings_of(record: Record) -> Mapping[str, float]:
    observed = environment_of(record).get("observed")
    ceilings = observed.get("ceilings") if isinstance(observed, dict) else None
    if not isinstance(ceilings, dict):
        return {}
    return {name: float(value) for name, value in ceilings.items() if isinstance(value, int | float)}


def _object(text: str | None) -> dict[str, Any]:
    try:
        content = json.loads(text or "{}")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


Rounds = list[list[float]]


def sampled_rounds(outcome: Outcome) -> dict[Latency, Rounds]:
    """Return the samples of an outcome in ns, of each round, without the throttled blocks that were measured again."""
    # A latency other than the call's is left out where a round lacks it.
    timed = [(item, samples) for item in outcome.rounds if (samples := samples_of(item, outcome.entry)) is not None]

    def kept(latency: Latency) -> Rounds:
        rounds = []
        for item, samples in timed:
            values = samples.on_device_ns if latency is DEVICE else getattr(samples, f"{latency.name}_ns")
            if values is None:
                return []
            labelled = zip(values, item.throttled, strict=False)
            good = [value for value, throttled in labelled if value is not None and not (item.remeasured and throttled)]
            # Of a stream there are few samples, and none may be left.
            rounds += [good] if good or latency not in (DEVICE, STREAM) else []
        return rounds

    return {latency: rounds for latency in LATENCIES if (rounds := kept(latency)) or latency is CALL}


def samples_of(timed: TimedRound, entry: Entry) -> EntrySamples | None:
    return next((samples for samples in timed.entries if samples.entry == entry), None)


def samples_of_rounds(outcome: Outcome) -> list[EntrySamples]:
    return [own for timed in outcome.rounds if (own := samples_of(timed, outcome.entry))]


def latency_columns(outcome: Outcome, control: Outcome | None, *, resamples: int) -> dict[str, Any]:
    """Return the columns of an outcome's latencies, and speedups over the control of its mode; none unless it was measured."""
    rounds = sampled_rounds(outcome)
    if outcome.status is not Status.MEASURED or not rounds[CALL]:
        return {}
    samples = samples_of_rounds(outcome)
    firsts = [item.first_call_ns for item in samples if item.first_call_ns is not None]
    # The configurations that rounds chose, each with the number of these rounds unless all did.
    counts, size = Counter(text for item in samples for text in item.autotuned), len(samples)
    chosen = [f"{text} (in {count} of {size} rounds)" if count < size else text for text, count in counts.items()]
    columns: dict[str, Any] = {"n_samples": sum(map(len, rounds[CALL])), "n_rounds": len(rounds[CALL])}
    device_timer = samples[0].device_timer if DEVICE in rounds else None
    columns |= {"timer": outcome.rounds[0].timer, "device_timer": device_timer, "autotuned": tuple(chosen) or None}
    columns["warm_first_call_ns"] = percentile(firsts, 50) if firsts else None
    columns["stop_reason"] = max((timed.stop_reason for timed in outcome.rounds), key=STOP_REASONS.index)
    # On a CPU the call is the host's work, to the last digit: its interval is not drawn twice.
    distinct = [latency for latency in LATENCIES if latency is not HOST or rounds.get(HOST) != rounds[CALL]]
    for latency in distinct:
        if latency in rounds:
            columns |= _percentile_columns(latency, rounds[latency], resamples)
    columns |= _speedup_columns(rounds, distinct, outcome, control, resamples)
    if HOST not in distinct:
        names = {CALL.p50: HOST.p50, CALL.p95: HOST.p95, CALL.speedup: HOST.speedup}
        ends = {f"{call}{end}": f"{host}{end}" for call, host in names.items() for end in ENDS}
        ends |= dict(zip(CALL.rounds, HOST.rounds, strict=True))
        columns |= {host: columns[call] for call, host in ends.items() if call in columns}
    device_ns, host_ns = columns.get(DEVICE.p50), columns.get(HOST.p50)
    limit = "host" if (host_ns or 0) > (device_ns or 0) else "device"
    return columns | {"bound": None if device_ns is None or host_ns is None else limit}


def best_columns(
    outcome: Outcome, columns: Mapping[str, Any], control: Outcome | None, others: Iterable[Outcome], *, resamples: int
) -> dict[str, Any]:
    """Return the columns of a variant's speedup over the fastest of its control, over which `columns` has the speedups, and of other implementations."""
    if control is None or not columns.get(CALL.speedup):
        return {}
    rounds, over = sampled_rounds(outcome), {_named(control.entry): columns}
    over |= {_named(one.entry): _speedup_columns(rounds, (DEVICE, CALL), outcome, one, resamples) for one in others}
    known = {name: found for name, found in over.items() if found.get(CALL.speedup)}
    latency = DEVICE if all(found.get(DEVICE.speedup) for found in known.values()) else CALL
    best = min(known, key=lambda name: known[name][latency.speedup])
    found = {f"speedup_over_best{end}": known[best][f"{latency.speedup}{end}"] for end in ENDS}
    return found | {"best_alternative": best}


def _named(entry: Entry) -> str:
    return entry.implementation if entry.mode == "eager" else f"{entry.implementation} ({entry.mode})"


def _percentile_columns(latency: Latency, rounds: Rounds, resamples: int) -> dict[str, Any]:
    p50, p95 = latency_intervals([_quietest(rounds)] if latency is HOST else rounds, (50, 95), resamples=resamples)
    of_rounds = [percentiles(values, (50, 95)) for values in rounds]
    lists = dict(zip(latency.rounds, zip(*of_rounds, strict=True), strict=True))
    if latency is CALL:
        lists |= {f"call_{name}": values for name, values in lists.items()}
    if latency is HOST:
        lists[stored.HOST_JUDGED] = tuple(map(lower_mean, rounds))
    return {**stored.interval_columns(latency.p50, p50), **stored.interval_columns(latency.p95, p95), **lists}


def _quietest(rounds: Rounds) -> list[float]:
    """Return the round with the lowest median, which is the host's time."""
    # Other work on a core slows whole rounds, up to fourfold, and never makes one faster. Over four runs of one code on an H200, 38 series, the medians of all
    # rounds together differed by 18 % (90 % of the series: by up to 90 %), those of the quietest rounds by 16 % (21 %).
    return min(rounds, key=lambda values: percentile(values, 50))


def _speedup_columns(
    rounds: dict[Latency, Rounds], latencies: Sequence[Latency], outcome: Outcome, control: Outcome | None, draws: int
) -> dict[str, float | None]:
    if control is None or control.status is not Status.MEASURED or outcome.entry.role == "baseline":
        return {}
    columns: dict[str, float | None] = {}
    beside = sampled_rounds(control)
    timers, of_control = ({own.device_timer for own in samples_of_rounds(side)} for side in (outcome, control))
    for latency in latencies:
        # A replay is not divided by launches, whose pauses it does not have.
        replayed = latency is DEVICE and timers != of_control
        ours, theirs = (side.get(STREAM if replayed else latency, []) for side in (rounds, beside))
        if latency is HOST and ours and theirs:
            ours, theirs = [_quietest(ours)], [_quietest(theirs)]
        if not ours or not theirs:
            continue
        if latency in (HOST, STREAM) or replayed or len(ours) != len(theirs):
            # Samples that are not paired by blocks.
            intervals = (latency_intervals(side, (50,), resamples=draws)[0] for side in (theirs, ours))
            speedup = ratio_interval(*intervals)
        else:
            # Triton's do_bench takes a number of samples of its own of each; the first of both are paired.
            pairs = [list(zip(*both, strict=False)) for both in zip(theirs, ours, strict=True)]
            sides = ([[pair[side] for pair in of_round] for of_round in pairs] for side in (0, 1))
            speedup = speedup_interval(*sides, resamples=draws)
        columns |= stored.interval_columns(latency.speedup, speedup)
    return columns
