"""What is known of the noise of the series that are compared: from their past runs, and from calibrations."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pairbench.analyze.compare.effect import minimum_effect
from pairbench.analyze.compare.exact import AcceptedLevel
from pairbench.analyze.compare.floors import Past, floors_of
from pairbench.model.comparison import DEFAULT, Acceptance, Calibration, Floor, Policy
from pairbench.model.latency import CALL, DEVICE
from pairbench.model.record import COLUMNS, Record, Series
from pairbench.store.run_index import IndexedRun, RunIndex

RUNS = 30

_LEVELS = ("status", "device_kind", "device_p50_ns", "device_p95_ns", "call_p50_ns", "call_p95_ns")
_SAMENESS = ("environment_hash", "implementation_hash", "definition_hash", "timer", "device_timer")
_COLUMNS = (*COLUMNS, *_LEVELS, *_SAMENESS)


def past_floors(index: RunIndex, current: Collection[IndexedRun], wanted: Collection[Series]) -> dict[Series, Floor]:
    """Return the noise floors that the runs before the current ones imply."""
    before = min((head.run_id for head in current), default="")
    devices = frozenset(device for head in current for device in head.devices)

    def counts(head: IndexedRun) -> bool:
        return head.run_id < before and not head.dirty and head.confirms is None and bool(head.devices & devices)

    heads = index.first(RUNS, counts)
    return floors_of(_past(index.columns(reversed(heads), _COLUMNS), frozenset(wanted)))


def _past(rows: Mapping[str, list[Any]], wanted: Collection[Series]) -> dict[Series, list[Past]]:
    past: dict[Series, list[Past]] = defaultdict(list)
    known: dict[tuple[Any, ...], Series | None] = {}
    several = (zip(*(rows[name] for name in names), strict=True) for names in (COLUMNS, _LEVELS, _SAMENESS))
    for key, (status, kind, device_p50, device_p95, call_p50, call_p95), sameness in zip(*several, strict=True):
        of_device = kind != "cpu" and device_p50 is not None and device_p50 > 0
        latency, p50, p95 = (DEVICE, device_p50, device_p95) if of_device else (CALL, call_p50, call_p95)
        if key not in known:
            series = None if None in key else Series(**dict(zip(COLUMNS, key, strict=True)))
            known[key] = series if series in wanted else None
        if (of_series := known[key]) is not None and status == "measured" and p50 is not None and p50 > 0:
            past[of_series].append(Past(p50, p95, None, latency.name, (*sameness, latency.name)))
    return past


def accepted_levels(
    index: RunIndex,
    acceptances: Mapping[Series, Acceptance],
    calibrations: Collection[Calibration],
    newest: Mapping[Series, Record],
    policy: Policy = DEFAULT,
) -> dict[Series, AcceptedLevel]:
    """Return the accepted levels of series with the minimum effects that a comparison of their newest records would take."""
    runs: dict[str, dict[Series, Record]] = defaultdict(dict)
    for series in newest.keys() & acceptances.keys():
        # What measured the suspects of a run again is judged together with it, by the same past.
        runs[newest[series].confirms or newest[series].run_id][series] = newest[series]
    levels: dict[Series, AcceptedLevel] = {}
    for run_id, of_run in runs.items():
        heads = [head for head in index.beginning(run_id) if head.run_id == run_id]
        _, calibrated = newest_calibrations(calibrations, of_run.values())
        floors = widest(past_floors(index, heads, of_run.keys()), calibrated)
        for series in of_run:
            effect = minimum_effect(floors.get(series), policy)
            levels[series] = AcceptedLevel(acceptance=acceptances[series], minimum_effect=effect)
    return levels


def newest_calibrations(
    calibrations: Iterable[Calibration], current: Iterable[Record]
) -> tuple[tuple[Calibration, ...], dict[Series, Floor]]:
    """Return the newest calibration of each device model, and the newest floor of each series."""
    # Calibrations of another environment count where there are none of the same.
    environments = {record.environment_hash for record in current}
    devices = {record.device_name for record in current}
    # The last one wins: those of the same environment, and of these the newest.
    ordered = sorted(calibrations, key=lambda one: (one.environment_hash in environments, one.made_at))
    here = [one for one in ordered if one.device_name in devices]
    floors = {series: floor for one in here for series, floor in one.floors.items()}
    return tuple({one.device_name: one for one in here}.values()), floors


def quiet(
    calibrations: Iterable[Calibration], current: Iterable[Record], policy: Policy = DEFAULT
) -> frozenset[Series]:
    """Return the series whose machine, in its present environment, was calibrated and is quiet enough to judge times."""
    here = {(record.device_name, record.environment_hash) for record in current}
    return frozenset(
        series
        for one in calibrations
        if (one.device_name, one.environment_hash) in here and one.alarms <= policy.calibration_alarms * one.judged
        for series in one.floors
    )


def widest(*several: Mapping[Series, Floor]) -> dict[Series, Floor]:
    """Return the largest floor of each series: a move that happened once can happen again."""
    widest_floors: dict[Series, Floor] = {}
    for floors in several:
        for series, floor in floors.items():
            known = widest_floors.get(series, floor)
            # One of the call says nothing of the device, and was made before that was judged.
            wider = max(known, floor, key=lambda one: (one.latency == DEVICE.name, one.p50))
            host, relative = (
                max((value for one in (known, floor) if (value := getattr(one, name)) is not None), default=None)
                for name in ("host", "host_relative")
            )
            widest_floors[series] = replace(wider, host=host, host_relative=relative)
    return widest_floors
