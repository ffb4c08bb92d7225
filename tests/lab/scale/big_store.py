"""Makes a store of any size in seconds: one run's table, with what differs from run to run put in as whole columns."""

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pairbench.model.breakdown import KernelCount
from pairbench.model.record import Record, Series
from pairbench.store.schema import to_table
from pairbench.store.writer import content_of
from tests.builders import DEVICE, FIRST, make_run, sha

IMPLEMENTATIONS = ("baseline", "fused", "native", "triton")
ROUNDS = 3
CV = 0.003  # spread of a round's median, between processes
TAIL_CV = 0.01


def write_store(folder: Path, *, runs: int, series: int, slower: Mapping[int, float]) -> Iterator[int]:
    """Write runs of one device model, eight hours apart or what two years have room for, and yield each one's number."""
    rng = np.random.default_rng(0)
    table = to_table(_first(series), Record)
    levels = np.asarray(table["call_p50_ns"].to_numpy(zero_copy_only=False))
    factor = 1.0
    apart = min(dt.timedelta(hours=8), dt.timedelta(days=730) / runs)  # a run of the future would be none to compare
    for number in range(runs):
        factor *= slower.get(number, 1.0)
        started = FIRST + apart * number
        run_id = f"{started:%Y%m%dT%H%M%S}-{sha(number)[:6]}"
        now = levels.copy()
        now[1] *= factor
        medians = now[:, None] * rng.lognormal(0, CV, (len(now), ROUNDS))
        tails = medians * 1.05 * rng.lognormal(0, TAIL_CV, medians.shape)
        columns = {
            "run_id": [run_id] * len(now),
            "started_at": [started.isoformat(timespec="milliseconds")] * len(now),
            "commit": [sha(number)] * len(now),
            "commit_at": [started.isoformat()] * len(now),
            **_spread("p50", medians),
            **_spread("p95", tails),
        }
        path = folder / f"records/device={DEVICE.lower().replace(' ', '-')}/month={started:%Y-%m}/{run_id}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content_of("records", _with(table, columns)))
        yield number


def first_variant() -> str:
    """Return the name of the series that can be made slower."""
    (_, record) = _first(len(IMPLEMENTATIONS))[:2]
    series = Series.of(record)
    assert series is not None
    return series.name


def _first(series: int) -> list[Record]:
    cases = [
        f"operator_{number % 40}[batch={number},dtype=bfloat16]" for number in range(series // len(IMPLEMENTATIONS))
    ]
    slower = {case: 0.1 * 1.01**place for place, case in enumerate(cases)}  # from 10 us to some 1.5 ms
    packages = {f"package-{number}": "1.2.3" for number in range(80)}
    kernels = tuple(KernelCount(name=f"void kernel_{n}<bfloat16, {'x' * 80}>", count=1, total_ns=9e3) for n in range(3))
    records = make_run(
        cases=cases,
        implementations=IMPLEMENTATIONS,
        slower=slower,
        rounds=ROUNDS,
        environment=json.dumps({"flags": {"matmul.allow_tf32": False}, "packages": packages}),
        kernels=kernels,
    )
    return list(records)


def _spread(name: str, values: Any) -> dict[str, Any]:
    offsets = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
    return {
        f"call_{name}_ns": np.median(values, axis=1),
        f"call_{name}_ns_low": values.min(axis=1),
        f"call_{name}_ns_high": values.max(axis=1),
        f"round_{name}_ns": pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.ravel())),
    }


def _with(table: Any, columns: Mapping[str, Any]) -> Any:
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        found = values if isinstance(values, pa.Array) else pa.array(values, table.schema.field(name).type)
        table = table.set_column(place, table.schema.field(name), found)
    return table
