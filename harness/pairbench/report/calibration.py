"""What `pairbench calibrate` prints: the false alarms that it counted, and the noise floors by operator."""

from collections.abc import Sequence
from itertools import groupby
from statistics import median
from typing import Any

from pairbench.analyze.compare.floors import LEAST_RUNS
from pairbench.analyze.compare.hosts import judged_hosts
from pairbench.model.comparison import Calibration
from pairbench.report.comparison.rows import measured
from pairbench.report.render import render_rows, to_json
from pairbench.report.units import percent


def render_calibrations(calibrations: Sequence[Calibration], output: str) -> str:
    """Return calibrations in one of the formats; only JSON has the floor of each series."""
    if output == "json":
        return to_json({"calibrations": [_plain(calibration) for calibration in calibrations]})
    return "\n".join(_text(calibration, output) for calibration in calibrations)


def _text(calibration: Calibration, output: str) -> str:
    rows = []
    judged = judged_hosts(calibration.floors)
    series = sorted(calibration.floors, key=lambda one: (one.operator, one.mode))
    for (operator, mode), group in groupby(series, key=lambda one: (one.operator, one.mode)):
        members = list(group)
        floors = [calibration.floors[one] for one in members]
        hosts = [floor.host for floor in floors if floor.host is not None]
        ratios = [floor.host_relative for floor in floors if floor.host_relative is not None]
        rows.append(
            {
                "operator": operator,
                "mode": mode,
                "series": len(floors),
                "P50 floor, median": percent(median(floor.p50 for floor in floors)),
                "P50 floor, largest": percent(max(floor.p50 for floor in floors)),
                "P95 floor, median": percent(median(floor.p95 for floor in floors)),
                "P95 floor, largest": percent(max(floor.p95 for floor in floors)),
                **({"host floor, median": percent(median(hosts))} if hosts else {}),
                **({"host / baseline floor, median": percent(median(ratios))} if ratios else {}),
                **({"host judged": f"{len(judged.intersection(members))} of {len(hosts)}"} if hosts else {}),
            }
        )
    table = ""
    if rows:
        table = render_rows(f"noise floors of {calibration.device_name}", rows, output)
    elif len(calibration.runs) < LEAST_RUNS:
        table = f"no noise floors: they take {LEAST_RUNS} runs, and these were {len(calibration.runs)} (`--runs {LEAST_RUNS}`)\n"
    return f"{table}\n{measured(calibration)}\n"


def _plain(calibration: Calibration) -> dict[str, Any]:
    floors = [{**vars(series), **vars(floor)} for series, floor in sorted(calibration.floors.items())]
    return {**vars(calibration), "floors": floors}
