"""`pairbench export`: runs of a store as CSV with every column, or a run as a file of pytest-benchmark.

pytest-benchmark reads that file as its own, and `pairbench import` restores the records from it.
"""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import pandas as pd

from pairbench.config import Config
from pairbench.errors import StoreError, UsageError
from pairbench.features.exchange.pytest_benchmark import (
    ENVIRONMENT_COLUMNS,
    KEY,
    ROUND_SIZES,
    SAMPLES_OF,
    extra_info_of,
    machine_info_of,
    run_info_of,
    steady,
)
from pairbench.model.latency import CALL, DEVICE, STREAM, Latency, result_of, sampled_as
from pairbench.model.plain import plain
from pairbench.model.record import Record, Samples, Series, columns
from pairbench.report.render import to_json
from pairbench.store.reader import read_samples
from pairbench.workflow.selectors import Picked, RunSelector
from pairbench.workflow.setup import store_of

FORMAT_VERSION = "5.0.0"
STATS_OF = "stats_of"
"""Name in extra_info of the kind of values behind the stats: `samples`, or `round_p50_ns` for medians of rounds."""

_S = 1e-9

_Place = tuple[Series | None, str | None]  # a series and a device


class Exported(NamedTuple):
    document: dict[str, Any]
    not_measured: tuple[str, ...]
    """Names of records without a latency; they are in the document for `pairbench import` only."""


def benchmark_document(records: Sequence[Record], samples: Sequence[Samples]) -> Exported:
    first = records[0]
    rounds = _by_place(samples)
    machine = machine_info_of(first)
    several = len({record.device_uuid or record.device_name for record in records}) > 1
    benchmarks, rest = [], []
    for record in records:
        latency = result_of(record)
        of_record = rounds.get((Series.of(record), record.device_uuid), {})
        timed = _timed(record, latency, of_record.get(sampled_as(record, of_record), []))
        # The environment's columns in which it differs from the first record, for it ran on another device.
        own = machine_info_of(record)
        differing = {name: own.get(name) for name in ENVIRONMENT_COLUMNS if own.get(name) != machine.get(name)}
        extra = extra_info_of(record) | differing
        if timed is None:
            rest.append((record, extra))
        else:
            benchmarks.append(_benchmark(record, timed, extra, several=several))
    document = {
        "machine_info": {
            "node": first.hostname,
            "processor": first.cpu,
            "python_version": first.python,
            "cpu": {"brand_raw": first.cpu},
            KEY: steady(machine),
        },
        "commit_info": {
            "id": first.commit or "unversioned",
            "time": first.commit_at,
            "author_time": None,
            "dirty": bool(first.dirty),
            "project": KEY,
            "branch": first.branch or "(unknown)",
        },
        "benchmarks": benchmarks,
        "datetime": first.started_at,
        "version": FORMAT_VERSION,
        KEY: {
            "environment": machine["environment"],
            "run": run_info_of(first),
            "not_measured": [extra for _, extra in rest],
        },
    }
    return Exported(document, tuple(f"{_name(record)} ({record.status})" for record, _ in rest))


def stats_of(seconds: Sequence[float]) -> dict[str, Any]:
    """Return pytest-benchmark's statistics, as it defines them, of at least one latency in s."""
    ordered = sorted(seconds)
    mean = statistics.fmean(ordered)
    squares = math.fsum((value - mean) ** 2 for value in ordered)  # statistics.stdev takes a second for a large run
    deviation = math.sqrt(squares / (len(ordered) - 1)) if len(ordered) > 1 else 0.0
    q1, q3 = _quartiles(ordered)
    reach = 1.5 * (q3 - q1)
    inside = [value for value in ordered if q1 - reach <= value <= q3 + reach]
    far = sum(not mean - deviation <= value <= mean + deviation for value in ordered)
    total = math.fsum(ordered)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": deviation,
        "rounds": len(ordered),
        "median": statistics.median(ordered),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": len(ordered) - len(inside),
        "stddev_outliers": far,
        "outliers": f"{far};{len(ordered) - len(inside)}",
        "ld15iqr": inside[0],
        "hd15iqr": inside[-1],
        "ops": len(ordered) / total,
        "total": total,
        "iterations": 1,
    }


def _quartiles(ordered: Sequence[float]) -> tuple[float, float]:
    """Return both quartiles: medians of the halves; for odd numbers the mean of both ways to halve."""
    count = len(ordered)
    if count == 1:
        return ordered[0], ordered[0]
    if count % 2 == 0:
        return statistics.median(ordered[: count // 2]), statistics.median(ordered[count // 2 :])
    n, q = divmod(count, 4)
    if q == 1:
        return 0.25 * ordered[n - 1] + 0.75 * ordered[n], 0.75 * ordered[3 * n] + 0.25 * ordered[3 * n + 1]
    return 0.75 * ordered[n] + 0.25 * ordered[n + 1], 0.25 * ordered[3 * n + 1] + 0.75 * ordered[3 * n + 2]


def _timed(record: Record, latency: Latency, rounds: Sequence[Sequence[float]]) -> dict[str, Any] | None:
    """Return the stats of a record's samples, else of its medians of rounds, and what they are of; None where it has no latency."""
    if record.status != "measured":
        return None
    if rounds:
        seconds = [value * _S for values in rounds for value in values]
        sizes = [len(values) for values in rounds]
        how = {STATS_OF: "samples", SAMPLES_OF: latency.name, ROUND_SIZES: sizes}
        return {**how, **stats_of(seconds), "data": seconds}
    p50 = getattr(record, latency.p50)
    medians = getattr(record, latency.rounds[0]) or (() if p50 is None else (p50,))
    medians = tuple(value for value in medians if value is not None and 0 < value < math.inf)
    if not medians:
        return None
    return {STATS_OF: "round_p50_ns", SAMPLES_OF: latency.name, **stats_of([value * _S for value in medians])}


def _benchmark(record: Record, timed: dict[str, Any], extra: dict[str, Any], *, several: bool) -> dict[str, Any]:
    how = {name: timed.pop(name) for name in (STATS_OF, SAMPLES_OF, ROUND_SIZES) if name in timed}
    where = f" ({record.device_uuid or record.device_name})" if several else ""
    axes = (record.case or "").partition("[")[2].removesuffix("]")
    params = json.loads(record.axes or "{}")
    return {
        "group": record.case,
        "name": f"{_name(record)}{where}",
        "fullname": f"{record.suite}::{_name(record)}{where}",
        "params": {
            **(params if isinstance(params, dict) else {}),
            "implementation": record.implementation,
            "mode": record.mode,
        },
        "param": f"{axes}-{record.implementation}-{record.mode}{where}",
        "extra_info": extra | how,
        "options": {"timer": record.timer},
        "stats": timed,
    }


def _name(record: Record) -> str:
    return f"{record.case}-{record.implementation}-{record.mode}" if record.case else record.suite


def _by_place(samples: Sequence[Samples]) -> dict[_Place, dict[str, list[tuple[float, ...]]]]:
    """Return the latencies in ns of each round, by name; throttled samples are left out where the round was measured again."""
    latencies: dict[_Place, dict[str, list[tuple[float, ...]]]] = {}
    for row in sorted(samples, key=lambda row: row.round):
        series = Series(**{item.name: getattr(row, item.name) for item in fields(Series)})
        for latency, taken in ((CALL, row.call_ns), (DEVICE, row.device_ns), (STREAM, row.stream_ns)):
            pairs = zip(taken or (), row.throttled, strict=False)
            known = [(value, throttled) for value, throttled in pairs if value is not None]
            good = [value for value, throttled in known if not throttled]
            kept = good if 2 * len(good) > len(known) else [value for value, _ in known]
            if kept:
                latencies.setdefault((series, row.device_uuid), {}).setdefault(latency.name, []).append(tuple(kept))
    return latencies


@dataclass(frozen=True, kw_only=True)
class PickedRuns:
    picked: Picked
    records: tuple[Record, ...]
    problems: tuple[str, ...]


def pick_runs(config: Config, name: str) -> PickedRuns:
    selector = RunSelector.of_store(store_of(config), config.root)
    picked = selector.pick(name)
    read, unread = picked.index.records(picked.heads)
    ids = {head.run_id for head in picked.heads}
    records = tuple(record for record in read if record.run_id in ids)
    problems = tuple(dict.fromkeys([*picked.index.problems, *unread, *selector.notes]))
    if not records:
        raise StoreError(f"nothing of {name!r} can be read: {'; '.join(problems) or 'it has no rows'}")
    return PickedRuns(picked=picked, records=records, problems=problems)


def benchmarks_of(runs: PickedRuns) -> tuple[str, tuple[str, ...]]:
    """Return a run as a file of pytest-benchmark, and the names of its records without a latency."""
    picked = runs.picked
    # What measured a run's suspects again is a run of its own; it is exported by its own id.
    own = [head.run_id for head in picked.heads if head.confirms is None] or [head.run_id for head in picked.heads]
    if len(own) > 1:
        raise UsageError(
            f"{picked.asked!r} is {len(own)} runs ({', '.join(sorted(own)[:3])}, ...), and a file of pytest-benchmark holds "
            "one; name one of them"
        )
    samples = () if picked.index.is_file else read_samples(picked.index.place, own[0]).value
    exported = benchmark_document([record for record in runs.records if record.run_id == own[0]], samples)
    return to_json(exported.document), tuple(exported.not_measured)


def csv_of(records: Sequence[Record]) -> str:
    """Return records as CSV with a header; null is empty."""
    names = list(columns(Record))
    cells = ([getattr(record, name) for name in names] for record in records)
    rows = [[json.dumps(plain(cell)) if isinstance(cell, tuple) else cell for cell in row] for row in cells]
    # Objects, so that counts beside nulls stay whole numbers.
    text: str = pd.DataFrame(rows, columns=names, dtype=object).to_csv(index=False, lineterminator="\n")
    return text
