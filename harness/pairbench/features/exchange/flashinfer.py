"""Runs of definitions of FlashInfer-Trace as that form's own traces: a JSON object a line, for each variant and workload."""

import functools
import json
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pairbench.errors import SuiteError, UsageError
from pairbench.model.latency import p50_of
from pairbench.model.outcome import Status
from pairbench.model.plan import BASELINE
from pairbench.model.record import Record
from pairbench.suite.traces import Problem, Workload, read_problem

_STATUS = {
    Status.MEASURED: "PASSED",
    Status.MISMATCHED: "INCORRECT_NUMERICAL",
    Status.FAILED: "RUNTIME_ERROR",
    Status.OOM: "RUNTIME_ERROR",
    Status.TIMEOUT: "TIMEOUT",
}


def traces_of(records: Iterable[Record], root: Path) -> tuple[str, tuple[str, ...]]:
    """Return a run as lines of traces, and the names of its records that no trace can hold, each with the reason.

    Suites are looked for from `root` on: a trace repeats its workload, which no record holds. Raises a UsageError where there is no trace.
    """
    known = tuple(records)
    beside = {
        (one.run_id, one.device_name, one.suite, one.case, one.mode): one
        for one in known
        if one.implementation == BASELINE
    }
    problem_of = functools.cache(lambda suite: _read(root / suite))
    lines, left_out = [], []
    for one in known:
        if one.implementation in (None, BASELINE) or one.case is None:
            continue
        baseline = beside.get((one.run_id, one.device_name, one.suite, one.case, one.mode))
        found = problem_of(one.suite)
        status, times = _STATUS.get(Status(one.status)), _performance(one, baseline)
        named = re.search(r"[\[,]workload=([^,\]]*)", one.case)
        workload = found[1].get(unquote(named[1])) if found and named else None
        if found is None or workload is None or status is None or (status == "PASSED" and not times):
            why = "its problem is not there any more" if not workload else one.reason or "its latency is not known"
            left_out.append(f"{one.implementation} of {one.case} ({why})")
            continue
        lines.append(json.dumps(_trace(one, found[0], workload, status, times)))
    if not lines:
        raise UsageError(
            f"the run has no trace: {'; '.join(left_out[:3]) or 'it is of no definition of FlashInfer-Trace'}"
        )
    return "".join(f"{line}\n" for line in lines), tuple(left_out)


def _read(path: Path) -> tuple[Problem, dict[str, Workload]] | None:
    try:
        problem = read_problem(path)
        workloads = problem.workloads([])
    except SuiteError:
        return None
    return problem, dict(_named(workloads))


def _named(workloads: Iterable[Workload]) -> Iterator[tuple[str, Workload]]:
    for one in workloads:
        yield one.uuid[:8], one
        yield one.uuid, one


def _performance(record: Record, baseline: Record | None) -> dict[str, float] | None:
    own, other = p50_of(record), p50_of(baseline) if baseline else None
    if own is None or other is None:
        return None
    times = {"latency_ms": own.estimate / 1e6, "reference_latency_ms": other.estimate / 1e6}
    return {**times, "speedup_factor": record.speedup or other.estimate / own.estimate}


def _trace(record: Record, problem: Problem, workload: Workload, status: str, times: Any) -> dict[str, Any]:
    error = record.max_abs_error or 0.0
    measured = {"max_relative_error": 0.0, "max_absolute_error": error if math.isfinite(error) else 0.0}
    ours = {"oracle_ratio": record.oracle_ratio, "margin": record.margin, "mode": record.mode, "run": record.run_id}
    axes = {name: workload.sizes[name] for name, rule in problem.axes.items() if rule is None}
    libs = {"torch": record.torch, "triton": record.triton, "cuda": record.cuda}
    return {
        "definition": problem.name,
        "solution": record.implementation,
        "workload": {"uuid": workload.uuid, "axes": axes, "inputs": workload.inputs},
        "evaluation": {
            "status": status,
            "environment": {"hardware": record.device_name, "libs": {name: one for name, one in libs.items() if one}},
            "timestamp": record.started_at,
            "log": record.reason or "",
            "correctness": {**measured, "extra": ours} if status in ("PASSED", "INCORRECT_NUMERICAL") else None,
            "performance": times if status == "PASSED" else None,
        },
    }
