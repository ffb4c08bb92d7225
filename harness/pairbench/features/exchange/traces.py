"""A run of FlashInfer-Trace's definitions as traces of that form: a JSON object a line, for each variant and workload."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pairbench.errors import SuiteError, UsageError
from pairbench.model.outcome import Status
from pairbench.model.plan import BASELINE
from pairbench.model.record import Record, p50_of
from pairbench.suite.definitions import Definition, Workload, read_definition

_STATUS = {
    Status.MEASURED: "PASSED",
    Status.MISMATCHED: "INCORRECT_NUMERICAL",
    Status.FAILED: "RUNTIME_ERROR",
    Status.OOM: "RUNTIME_ERROR",
    Status.TIMEOUT: "TIMEOUT",
}


def traces_of(records: Sequence[Record], root: Path) -> tuple[str, tuple[str, ...]]:
    """Return a run as lines of traces, and the names of its results that a trace cannot hold.

    A trace repeats its workload, which is read beside the definition; the names of suites are relative to `root`.

    Raises:
        UsageError: if there is no trace.
    """
    known = {suite: _read(root / suite) for suite in {one.suite for one in records} if suite.endswith(".json")}
    baselines = {(one.device_name, one.suite, one.case, one.mode): one for one in records if one.role == BASELINE}
    lines, left_out = list[str](), list[str]()
    for one in records:
        if one.implementation in (None, BASELINE) or not (definition := known.get(one.suite)):
            continue
        baseline = baselines.get((one.device_name, one.suite, one.case, one.mode))
        if baseline and (trace := _trace(one, baseline, *definition)):
            lines.append(json.dumps(trace) + "\n")
        else:
            left_out.append(f"{one.case}:{one.implementation}")
    if not lines:
        expected = "expected a run of definitions that are still in their folder"
        raise UsageError(f"no result is of a workload of FlashInfer-Trace, {expected}")
    return "".join(lines), tuple(left_out)


def _read(path: Path) -> tuple[Definition, dict[str, Workload]] | None:
    try:
        definition = read_definition(path)
        return definition, {key: one for one in definition.workloads([]) for key in (one.uuid, one.uuid[:8])}
    except (OSError, SuiteError):
        return None


def _trace(record: Record, baseline: Record, definition: Definition, workloads: dict[str, Workload]) -> Any:
    """Return a trace; None where the workload or the time is not known, or nothing was called."""
    named = re.search(r"[\[,]workload=([^,\]]*)", record.case or "")
    workload = workloads.get(unquote(named[1])) if named else None
    status, times = _STATUS.get(Status(record.status)), None
    if (own := p50_of(record)) and (other := p50_of(baseline)) and record.speedup:
        times = {"latency_ms": own.estimate / 1e6, "reference_latency_ms": other.estimate / 1e6}
        times["speedup_factor"] = record.speedup
    if not workload or not status or (status == "PASSED") != bool(times):
        return None
    error = math.nan if record.max_abs_error is None else record.max_abs_error
    shown = error if math.isfinite(error) else "NaN" if math.isnan(error) else "Infinity"  # as that form spells them
    more = {name: getattr(record, name) for name in ("oracle_ratio", "margin", "mode", "run_id")}
    compared = {"max_absolute_error": shown, "max_relative_error": "NaN", "extra": more}
    versions = {name: found for name in ("torch", "triton", "cuda") if (found := getattr(record, name))}
    evaluation = {
        "status": status,
        "environment": {"hardware": record.device_name, "libs": versions},
        "timestamp": record.started_at,
        "log": record.reason or "",
        "correctness": compared if status in ("PASSED", "INCORRECT_NUMERICAL") else None,
        "performance": times,
    }
    axes = {name: workload.axes[name] for name, rule in definition.axes.items() if rule is None}
    asked = {"uuid": workload.uuid, "axes": axes, "inputs": workload.inputs}
    return {
        "definition": definition.name,
        "solution": record.implementation,
        "workload": asked,
        "evaluation": evaluation,
    }
