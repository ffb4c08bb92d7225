"""Results as plain objects for programs: the page's content under the names of the store's columns."""

from typing import Any

from pairbench.analyze.latencies import interval_columns
from pairbench.model.record import Record
from pairbench.model.results import OperatorResults
from pairbench.report.results.operator import case_names, part_of_roof

_NUMBERS = (
    *("run_id", "implementation", "mode", "status", "reason", "timer", "device_p50_ns", "call_p50_ns"),
    *("host_p50_ns", "bound", "first_call_ns", "device_speedup", "device_speedup_low", "device_speedup_high"),
    *("speedup", "speedup_low", "speedup_high", "launches_per_call", "kernels_per_call", "syncs_per_call"),
    *("launch_status", "peak_bytes"),
)


def plain(one: OperatorResults) -> dict[str, Any]:
    """Return an operator's results as one object, each record once, with the columns that the page shows."""
    return {
        "device_name": one.device_name,
        "suite": one.operator.suite,
        "operator": one.operator.name,
        "summary": one.operator.summary,
        "source": one.operator.source,
        "runs": [
            {"run_id": record.run_id, "started_at": record.started_at, "commit": record.commit}
            for record in (behind.record for behind in one.runs)
        ],
        "cases": [
            {
                "case": case.case.key,
                "label": case_names(one)[case.case.key],
                "tier": case.case.tier,
                "bytes_moved": case.bytes_moved,
                "modes": [
                    {
                        "mode": mode.mode,
                        "best": mode.best.implementation if mode.best else None,
                        "baseline": _numbers(mode.baseline),
                        "variants": [_numbers(record) for record in mode.variants],
                        "steps": [
                            {"implementation": name, "over": step.over, **interval_columns("speedup", step.gain)}
                            for name, step in mode.steps.items()
                        ],
                    }
                    for mode in case.modes
                ],
            }
            for case in one.cases
        ],
        "claims": [
            {
                "claim": judged.claim,
                "case": judged.case.key if judged.case else None,
                "state": judged.state,
                "implementation": judged.variant.implementation if judged.variant else None,
            }
            for judged in one.claims
        ],
        "losses": [
            {
                "implementation": loss.implementation,
                "mode": loss.mode,
                "cases": [record.case for record in loss.losing],
                "measured": loss.measured,
                "where": loss.where,
            }
            for loss in one.losses
        ],
        "missing": [case.key for case in one.missing],
        "outdated": one.outdated,
    }


def _numbers(record: Record | None) -> dict[str, Any] | None:
    if record is None:
        return None
    return {**{name: getattr(record, name) for name in _NUMBERS}, "part_of_roof": part_of_roof(record)}
