"""Facts about records for pages and tables: the values of a series' newest record, the head of a run, its ceilings."""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from numpy.typing import ArrayLike

from pairbench.model.environment import withheld
from pairbench.model.latency import CALL, ENDS, p50_of, p95_of, result_of, speedup_is_of, speedup_of
from pairbench.model.record import LazyRecords, Record, Series
from pairbench.model.site import RunHead, SeriesFacts, SeriesStatus
from pairbench.stats import percentiles

_HEAD = (
    *("run_id", "started_at", "device_name", "hostname", "commit", "commit_at", "branch", "confirms"),
    *("environment_hash", "pull_request"),
)
_VERSIONS = ("driver", "cuda", "cudnn", "torch", "triton", "python", "cpu")
_TEXTS = (
    *("timer", "device_timer", "bound", "stop_reason", "launch_status", "throttle_reasons"),
    *("definition_hash", "implementation_hash", "device_uuid", "float32_precision", "best_alternative"),
)
_RESULT = tuple(tuple(f"{name}{end}" for end in ENDS) for name in ("p50_ns", "p95_ns", "speedup"))
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
        run_id=record.run_id,
        status=record.status,
        reason=record.reason,
        gate_status=gate_status,
        numbers={name: value for name, value in values.items() if value is not None and math.isfinite(value)},
        texts={"latency": result_of(record).name, "speedup_of": speedup_is_of(record).name}
        | {name: value for name, value in texts if value}
        | ({"reuses_output": "yes"} if record.reuses_output else {})
        | ({"consumes": ", ".join(record.consumes)} if record.consumes else {})
        | ({"withheld": why} if (why := withheld(record.device_kind, record.environment)) else {}),
        kernels=record.kernels,
        quantiles=percentiles(samples, range(101)) if samples is not None else (),
    )


def _result(record: Record) -> dict[str, float | None]:
    """Return the result of a record under the same names on every device; the call's speedup is `call_speedup` beside it."""
    latency = result_of(record)
    intervals = (p50_of(record, latency), p95_of(record, latency), speedup_of(record))
    hidden = withheld(record.device_kind, record.environment)
    values: dict[str, float | None] = {f"call_{CALL.speedup}": None if hidden else record.speedup}
    for names, interval in zip(_RESULT, intervals, strict=True):
        values.update(zip(names, interval or (None, None, None), strict=True))
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
        subject=first.commit_subject,
        author=first.commit_author,
        number=first.commit_number,
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
