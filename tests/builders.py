"""Made-up runs, for tests of what comes after measuring: rows with rounds, commits and kernels, and stores of them."""

import contextlib
import datetime as dt
import hashlib
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

from pairbench.model.breakdown import KernelCount
from pairbench.model.comparison import Acceptance, Calibration, Change, Floor, GateOutcome, Judgement
from pairbench.model.plan import ImplementationDescription, OperatorDescription
from pairbench.model.record import HOST_JUDGED, Record, Samples, Series
from pairbench.store.location import StoreLocation
from pairbench.store.reader import RUN, WholeStore
from pairbench.store.schema import from_table
from pairbench.store.writer import RunWriter

FIRST = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
"""So long ago that no clock takes a run for one from the future."""
SUITE = "suites/norm.py"
CASES = ("rms_norm[dtype=bfloat16,tokens=1024]", "rms_norm[dtype=bfloat16,tokens=4096]")
DEVICE = "NVIDIA H200"
LEVELS_NS = {"baseline": 200_000.0, "fused": 100_000.0}
"""Median latency in ns of each implementation that a test does not make slower."""


def sha(number: int) -> str:
    """Return the commit of a run."""
    return hashlib.sha1(str(number).encode(), usedforsecurity=False).hexdigest()


def run_id_of(number: int) -> str:
    """Return the id of the run that is made `number` hours after the first."""
    return f"{FIRST + dt.timedelta(hours=number):%Y%m%dT%H%M%S}-{sha(number)[:6]}"


def make_run(
    number: int = 0,
    *,
    cases: Sequence[str] = CASES,
    implementations: Sequence[str] = ("baseline", "fused"),
    slower: Mapping[str, float] | None = None,
    rounds: int = 5,
    cv: float = 0.002,
    **changes: Any,
) -> tuple[Record, ...]:
    """Return the records of one run.

    Args:
        number: Hours after the first run, and what the commit is made of.
        cases: Keys, the operator's name first.
        implementations: Of each case, the baseline first.
        slower: Factor on the latency by case, implementation, or `case-implementation`; all that fit are multiplied.
        rounds: Of each record.
        cv: How far rounds spread: a part of one, log-normal. The same numbers come with every call.
        changes: Columns of all records.
    """
    started = (FIRST + dt.timedelta(hours=number)).isoformat(timespec="milliseconds")
    run: dict[str, Any] = {
        "run_id": run_id_of(number),
        "started_at": started,
        "commit": sha(number),
        "commit_at": started,
        "branch": "main",
        "dirty": False,
    }
    rng = random.Random(number)
    found = []
    for case in cases:
        controls: list[float] = []
        for implementation in implementations:
            factors = [(slower or {}).get(key, 1.0) for key in (case, implementation, f"{case}-{implementation}")]
            level = LEVELS_NS.get(implementation, 100_000.0) * factors[0] * factors[1] * factors[2]
            medians = [level * rng.lognormvariate(0, cv) for _ in range(rounds)]
            controls = controls or medians
            found.append(Record(**{**run, **_row(case, implementation, medians, controls), **changes}))
    return tuple(found)


def only(records: Iterable[Record], **wanted: Any) -> tuple[Record, ...]:
    """Return the records with these values in these columns."""
    return tuple(record for record in records if all(getattr(record, name) == wanted[name] for name in wanted))


def with_device(
    records: Iterable[Record], *, device: Sequence[float], host: Sequence[float] = (), timer: str = "graph_replay"
) -> tuple[Record, ...]:
    """Return records with device and host latencies, of the rounds that are given in ns, the same in each record."""
    found = []
    for record in records:
        columns: dict[str, Any] = {"device_timer": timer}
        for name, rounds in (("device", device), ("host", host)):
            if rounds:
                tail = tuple(1.02 * value for value in rounds)
                columns |= {f"{name}_p50_ns": median(rounds), f"{name}_p95_ns": median(tail)}
                columns |= {f"{name}_round_p50_ns": tuple(rounds), f"{name}_round_p95_ns": tail}
        if host:
            columns[HOST_JUDGED] = tuple(host)
        found.append(replace(record, **columns))
    return tuple(found)


def ended(record: Record, status: str, reason: str = "made up") -> Record:
    """Return what the record would be had it come to nothing."""
    columns = [name for name in vars(record) if name.endswith(("_ns", "_ns_low", "_ns_high")) or "speedup" in name]
    columns += ["n_samples", "n_rounds", "timer", "device_timer", "stop_reason"]
    return replace(record, **{**dict.fromkeys(columns), "status": status, "reason": reason})  # type: ignore[arg-type]


def write_runs(store: str | Path | StoreLocation, *runs: Sequence[Record]) -> None:
    """Write runs into a store, each as one file a device model. The disk is not waited for: no power fails before the test's end."""
    for records in runs:
        for device in dict.fromkeys(record.device_name for record in records):
            slug = device.lower().replace(" ", "-")
            month = f"{FIRST:%Y-%m}"
            with (
                mock.patch("os.fsync"),
                RunWriter(store, run_id=records[0].run_id, device_slug=slug, month=month) as writer,
            ):
                writer.append_records(only(records, device_name=device))


def _row(case: str, implementation: str, medians: list[float], controls: list[float]) -> dict[str, Any]:
    p50, tail = median(medians), [value * 1.05 for value in medians]
    p95 = median(tail)
    variant = implementation != "baseline"
    return {
        "suite": SUITE,
        "operator": case.partition("[")[0],
        "definition_hash": "d" * 16,
        "implementation_hash": hashlib.sha256(implementation.encode()).hexdigest()[:16],
        "case": case,
        "axes": '{"dtype": "bfloat16"}',
        "tier": "real",
        "dtype": "bfloat16",
        "implementation": implementation,
        "role": "variant" if variant else "baseline",
        "mode": "eager",
        "device_kind": "cuda",
        "device_name": DEVICE,
        "device_uuid": "GPU-0",
        "driver": "580.1",
        "cuda": "12.8",
        "cudnn": "9.10.2",
        "torch": "2.11.0",
        "triton": "3.6.0",
        "python": "3.12.3",
        "hostname": "box",
        "cpu": "a CPU",
        "environment_hash": "f" * 16,
        "environment": '{"flags": {"matmul.allow_tf32": false}}',
        "status": "measured",
        "max_abs_error": 0.0078125,
        "rtol": 0.016,
        "atol": 1e-5,
        "margin": 0.75 if variant else 1.0,
        "timer": "cuda_event",
        "call_p50_ns": p50,
        "call_p50_ns_low": min(medians),
        "call_p50_ns_high": max(medians),
        "call_p95_ns": p95,
        "call_p95_ns_low": min(tail),
        "call_p95_ns_high": max(tail),
        "n_samples": 100 * len(medians),
        "n_rounds": len(medians),
        "round_p50_ns": tuple(medians),
        "round_p95_ns": tuple(tail),
        "stop_reason": "precise",
        "speedup": median(controls) / p50 if variant else None,
        "launches_per_call": 1 if variant else 6,
        "kernels_per_call": 1 if variant else 6,
        "graph_launches_per_call": 0,
        "memcpys_per_call": 0,
        "memcpy_bytes_per_call": 0,
        "memsets_per_call": 0,
        "syncs_per_call": 0,
        "ops_per_call": 1 if variant else 6,
        "launch_status": "exact",
        "kernels": (KernelCount(name=f"{implementation}_kernel", count=1 if variant else 6, total_ns=p50 * 0.9),),
        "peak_bytes": 2**20,
        "allocations_per_call": 1,
        "remeasured_blocks": 0,
    }


def make_samples(record: Record, call_ns: Sequence[float] = (12345.0, 12346.0), **changes: Any) -> Samples:
    """Return the samples of one round of a record, in ns; keyword arguments replace single columns."""
    shared = ("run_id", "device_name", "device_uuid", "suite", "operator", "case", "implementation", "mode")
    count = len(call_ns)
    columns: dict[str, Any] = {name: getattr(record, name) for name in shared}
    columns |= dict(timer="cuda_event", round=0, stop_reason="precise", device_ns=None)
    columns |= dict(call_ns=tuple(call_ns), host_ns=tuple(call_ns), position=(0,) * count)
    columns |= dict.fromkeys(("block", "at_ns"), tuple(range(count)))
    columns |= dict.fromkeys(("throttled", "outlier"), (False,) * count)
    return Samples(**(columns | changes))


def described(name: str = "op", suite: str = "ops.py", **changes: Any) -> OperatorDescription:
    """Return an operator as a worker describes it, with a baseline alone and no case; keyword arguments replace fields."""
    fields: dict[str, Any] = dict.fromkeys(("summary", "source"), "") | dict.fromkeys(("impostors", "cases"), ())
    baseline = ImplementationDescription(name="baseline", needs=(), hash="")
    fields |= {"path": f"/{suite}", "definition_hash": "d", "implementations": (baseline,)}
    return OperatorDescription(suite=suite, name=name, **(fields | changes))


def make_calibration(floors: Mapping[Series, Floor], **changes: Any) -> Calibration:
    """Return a calibration of the device that rows are of, without a false alarm; keyword arguments replace fields."""
    fields: dict[str, Any] = {"calibration_id": "c1", "made_at": "2024-01-01T00:00:00+00:00", "device_name": DEVICE}
    fields |= {"environment_hash": "f" * 16, "runs": ("a", "b"), "comparisons": 1, "judged": 4, "alarms": 0}
    return Calibration(floors=dict(floors), **(fields | changes))


def make_acceptance(series: Series, **changes: Any) -> Acceptance:
    """Return an accepted level of a series, without latencies; keyword arguments replace fields."""
    fields: dict[str, Any] = {"definition_hash": "d" * 16, "p50_ns": None, "p95_ns": None, "run_id": run_id_of(9)}
    fields |= {"at": "2024-01-01T09:00:00+00:00", "reason": "exact softmax"}
    return Acceptance(series=series, **(fields | changes))


def change_of(changes: Iterable[Change], case: str, implementation: str = "fused") -> Change:
    """Return the change of one series of a comparison."""
    (change,) = [one for one in changes if (one.series.case, one.series.implementation) == (case, implementation)]
    return change


def moved_alone(changes: Iterable[Change], case: str, implementation: str = "fused") -> Change:
    """Return the change of one series of a comparison; no other may have raised an alarm."""
    changes = list(changes)
    found = change_of(changes, case, implementation)
    others = {one.outcome for one in changes if one is not found}
    assert others <= {GateOutcome.UNCHANGED, GateOutcome.UNDECIDED}
    return found


def judgement_of(change: Change, metric: str) -> Judgement:
    """Return the judgement of one metric."""
    (judgement,) = [one for one in change.judgements if one.metric == metric]
    return judgement


def at_once(*work: Callable[[], object]) -> None:
    """Call each function in a thread of its own, and wait for all of them."""
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def fork_into(context: Callable[[], AbstractContextManager[object]]) -> int:
    """Fork a process that enters a context and stays there; return its id once it has entered."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException), context():
            os.write(writing, b"x")
            time.sleep(60)
        os._exit(1)  # a fork must not go on as its parent
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read(1) == b"x", "the process could not enter"
    return child


def git(folder: Path, *arguments: str) -> str:
    """Return what git prints in a folder."""
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def explain(
    levels: Any, *, floor: float | None = None, breaks: Iterable[int] = (), minimum_effect: float = 0.02
) -> tuple[tuple[Any, ...], Any]:
    """Return the changepoints of one series, and its drift or None."""
    from pairbench.analyze.history.changepoint import searched

    return searched([levels], minimum_effect=minimum_effect)[0].explained(floor, tuple(breaks))


def detect(levels: Any, **options: Any) -> tuple[Any, ...]:
    """Return the changepoints of a series alone."""
    return explain(levels, **options)[0]


def by_run(whole: WholeStore, columns: Iterable[str]) -> Iterator[tuple[Any, tuple[Record, ...]]]:
    """Yield the runs of a store with their records."""
    for key, table in whole.tables(RUN, tuple(columns)):
        yield key, from_table(table, Record)
