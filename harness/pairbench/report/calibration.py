"""What `pairbench calibrate` prints: the false alarms that it counted, and the noise floors by operator."""

from collections.abc import Sequence
from itertools import groupby
from statistics import median
from typing import Any

from pairbench.model.comparison import Calibration
from pairbench.model.policy import DEFAULT
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
    series = sorted(calibration.floors, key=lambda one: (one.operator, one.mode))
    for (operator, mode), group in groupby(series, key=lambda one: (one.operator, one.mode)):
        floors = [calibration.floors[one] for one in group]
        hosts = [host for floor in floors if (host := floor.judged_host) is not None]
        rows.append(
            {
                "operator": operator,
                "mode": mode,
                "series": len(floors),
                "P50 floor, median": percent(median(floor.p50 for floor in floors)),
                "P50 floor, largest": percent(max(floor.p50 for floor in floors)),
                "P95 floor, median": percent(median(floor.p95 for floor in floors)),
                "P95 floor, largest": percent(max(floor.p95 for floor in floors)),
                **({"host floor, median": percent(median(hosts)), "host judged": _judged(hosts)} if hosts else {}),
            }
        )
    table = render_rows(f"noise floors of {calibration.device_name}", rows, output) if rows else ""
    return f"{table}\n{measured(calibration)}\n"


def _judged(hosts: Sequence[float]) -> str:
    """Return in how many series the host's time repeats well enough to be judged."""
    return f"{sum(floor <= DEFAULT.host_floor for floor in hosts)} of {len(hosts)}"


def _plain(calibration: Calibration) -> dict[str, Any]:
    floors = [{**vars(series), **vars(floor)} for series, floor in sorted(calibration.floors.items())]
    return {**vars(calibration), "floors": floors}
