"""The first line of the overview: which runs are the newest night, whether they came when they were due, and whether they are complete."""

import datetime as dt
from types import SimpleNamespace

from pairbench.model.site import RunHead, SiteFacts
from pairbench.site.overview import newest_night

H200, H100 = "NVIDIA H200", "NVIDIA H100"
FIRST = dt.datetime(2026, 11, 1, 4, tzinfo=dt.UTC)


def run(
    night: int, device: str = H200, *, hours: float = 0.0, series: int = 176, confirms: str | None = None
) -> RunHead:
    at = FIRST + dt.timedelta(days=night, hours=hours)
    return RunHead(
        run_id=f"{at:%Y%m%dT%H%M%S}-{device[-4:]}",
        started_at=at.isoformat(),
        device_name=device,
        device_uuids=(),
        hostname="host",
        commit="c" * 40,
        commit_at=None,
        branch="main",
        dirty=False,
        confirms=confirms,
        environment_hash="e",
        versions={},
        statuses={"measured": series - 1, "failed": 1, "skipped": 9},
        timers=("auto",),
    )


def night_of(*runs: RunHead) -> SimpleNamespace:
    ordered = tuple(sorted(runs, key=lambda head: head.started_at, reverse=True))
    found = newest_night(SiteFacts(store="s", repository=None, runs=ordered, rows=(), events=(), problems=()))
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


def test_a_late_run_says_how_late() -> None:
    assert night_of(*NIGHTS[:-2], run(8, hours=3.2)).late == "2 h"


def test_a_night_that_did_not_come_is_told_by_the_next() -> None:
    found = night_of(*NIGHTS, run(10, hours=1))
    assert (found.skipped, found.late) == (1, "")


def test_a_device_model_that_did_not_run_is_named() -> None:
    found = night_of(*NIGHTS[:-2], NIGHTS[-1])
    assert [head.device_name for head in found.absent] == [H100] and [head.device_name for head in found.heads] == [
        H200
    ]
    assert not night_of(*NIGHTS, *(run(number) for number in range(9, 40))).absent, "it left long ago"


def test_half_a_night_counts_the_series_that_it_lacks() -> None:
    found = night_of(*NIGHTS[:-2], NIGHTS[-1], run(8, H100, series=80))
    assert found.incomplete == [H100] and (found.measured, found.series) == (175 + 79, 352)


def test_runs_at_any_time_are_never_late() -> None:
    hours = (0, 3, 30, 31, 80, 81, 200, 203, 260, 261, 400)
    found = night_of(*(run(0, hours=hour) for hour in hours))
    assert not found.late and not found.skipped and found.due is None


def test_without_runs_there_is_no_night() -> None:
    assert newest_night(SiteFacts(store="s", repository=None, runs=(), rows=(), events=(), problems=())) is None
