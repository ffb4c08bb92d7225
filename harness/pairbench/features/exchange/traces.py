"""Results of FlashInfer-Trace's definitions as its traces: a JSON object a line, for each solution and workload."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pairbench.errors import SuiteError, UsageError
from pairbench.model.plan import BASELINE
from pairbench.model.record import Record, p50_of, result_of, speedup_of
from pairbench.report.render import to_json
from pairbench.suite.definitions import Definition, Workload, read_definition

_STATUS = {"measured": "PASSED", "mismatched": "INCORRECT_NUMERICAL", "timeout": "TIMEOUT"}
_STATUS |= {"failed": "RUNTIME_ERROR", "oom": "RUNTIME_ERROR"}


def traces_of(records: Sequence[Record], root: Path) -> tuple[str, tuple[str, ...]]:
    """Return lines of traces, and the names of results that no trace can hold; suites are named relative to `root`.

    Raises:
        UsageError: if there is no trace.
    """
    known = {suite: _workloads(root / suite) for suite in {one.suite for one in records} if suite.endswith(".json")}
    baselines = {_place(one): one for one in records if one.role == BASELINE}
    lines, left_out = list[str](), list[str]()
    for one in records:
        if one.role != "variant" or one.implementation == "compiled" or one.suite not in known:
            continue
        found = known[one.suite].get(json.loads(one.axes or "{}").get("workload"))
        if found and (trace := _trace(one, baselines.get(_place(one)), *found)):
            lines.append(to_json(trace, lines=True))
        else:
            left_out.append(f"{one.case}:{one.implementation}")
    if not lines:
        raise UsageError("no result makes a trace, expected a run of definitions that are still in their folder")
    return "".join(lines), tuple(left_out)


def _place(record: Record) -> tuple[str | None, ...]:
    return record.run_id, record.device_uuid, record.suite, record.case, record.mode


def _workloads(path: Path) -> dict[str, tuple[Definition, Workload]]:
    """Return the workloads of a definition by their names in cases; none where it cannot be read any more."""
    try:
        definition = read_definition(path)
        return {name: (definition, one) for one in definition.workloads([]) for name in (one.uuid, one.uuid[:8])}
    except (OSError, SuiteError):
        return {}


def _trace(record: Record, baseline: Record | None, definition: Definition, workload: Workload) -> Any:
    """Return a trace; None where nothing was called, or where a time or the speedup is not known."""
    status, times = _STATUS.get(record.status), None
    if status == "PASSED":
        own, speedup = p50_of(record), speedup_of(record)
        reference = p50_of(baseline, result_of(record)) if baseline else None
        if not (own and reference and speedup):
            return None
        times = {"latency_ms": own.estimate / 1e6, "reference_latency_ms": reference.estimate / 1e6}
        times["speedup_factor"] = speedup.estimate
    error = math.nan if record.max_abs_error is None else record.max_abs_error
    compared = {
        "max_absolute_error": error if math.isfinite(error) else str(error),
        "max_relative_error": "nan",
        "extra": {name: getattr(record, name) for name in ("oracle_ratio", "margin", "mode", "run_id")},
    }
    versions = {name: version for name in ("torch", "triton", "cuda") if (version := getattr(record, name))}
    axes = {name: workload.axes[name] for name, rule in definition.axes.items() if rule is None}
    return status and {
        "definition": definition.name,
        "solution": record.implementation,
        "workload": {"uuid": workload.uuid, "axes": axes, "inputs": workload.inputs},
        "evaluation": {
            "status": status,
            "environment": {"hardware": record.device_name, "libs": versions},
            "timestamp": record.started_at,
            "log": record.reason or "",
            "correctness": compared if status in ("PASSED", "INCORRECT_NUMERICAL") else None,
            "performance": times,
        },
    }
