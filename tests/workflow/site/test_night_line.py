import datetime as dt
from dataclasses import replace
from types import SimpleNamespace

from pairbench.model.site import RunHead
from pairbench.site.overview import newest_night
from tests.report.site import made

H200, H100 = "NVIDIA H200", "NVIDIA H100"
FIRST = dt.datetime(2026, 11, 1, 4, tzinfo=dt.UTC)


def run(
    night: int, device: str = H200, *, hours: float = 0.0, series: int = 176, confirms: str | None = None
) -> RunHead:
    at = FIRST + dt.timedelta(days=night, hours=hours)
    return made.head(
        run_id=f"{at:%Y%m%dT%H%M%S}-{device[-4:]}",
        started_at=at.isoformat(),
        device_name=device,
        confirms=confirms,
        statuses={"measured": series - 1, "failed": 1, "skipped": 9},
    )


def night_of(*runs: RunHead) -> SimpleNamespace:
    ordered = tuple(sorted(runs, key=lambda head: head.started_at, reverse=True))
    found = newest_night(replace(made.empty(), runs=ordered))
    assert found is not None
    return found


NIGHTS = [run(number, device, hours=hour) for number in range(9) for device, hour in ((H100, 0), (H200, 1))]


def test_a_night_is_the_newest_run_of_each_device_model() -> None:
    found = night_of(*NIGHTS, run(8, hours=2, series=3, confirms="20261109T040000-H200"))
    assert [(head.device_name, head.started_at[:13]) for head in found.heads] == [
        (H200, "2026-11-09T05"),
        (H100, "2026-11-09T04"),
    ]
    assert (found.measured, found.series) == (350, 352)
    assert not (found.late or found.skipped or found.incomplete or found.absent)
    assert found.due is not None and found.due.startswith("2026-11-10T06")


def test_a_late_night_and_one_that_did_not_come_are_told() -> None:
    assert night_of(*NIGHTS[:-2], run(8, hours=3.2)).late == "2 h"
    after = night_of(*NIGHTS, run(10, hours=1))
    assert (after.skipped, after.late) == (1, "")
    hours = (0, 3, 30, 31, 80, 81, 200, 203, 260, 261, 400)
    at_any_time = night_of(*(run(0, hours=hour) for hour in hours))
    assert not at_any_time.late and not at_any_time.skipped and at_any_time.due is None


def test_a_device_model_that_did_not_run_or_not_to_its_end_is_named() -> None:
    found = night_of(*NIGHTS[:-2], NIGHTS[-1])
    assert [head.device_name for head in (*found.absent, *found.heads)] == [H100, H200]
    assert not night_of(*NIGHTS, *(run(number) for number in range(9, 40))).absent, "it left long ago"
    half = night_of(*NIGHTS[:-2], NIGHTS[-1], run(8, H100, series=80))
    assert half.incomplete == [H100] and (half.measured, half.series) == (175 + 79, 352)
    assert newest_night(made.empty()) is None
