"""The newest measured record of each stored series that is selected, for a chart along an axis of the cases."""

from collections.abc import Callable, Sequence

from pairbench.config import Config
from pairbench.errors import SelectionError
from pairbench.execute.garbage import collector_at_rest
from pairbench.model.outcome import Status
from pairbench.model.record import ANY, Record, Series, Wanted
from pairbench.model.record import COLUMNS as SERIES
from pairbench.plan import parse_selection
from pairbench.store.location import StoreLocation
from pairbench.store.reader import read_frame, read_records, read_run
from pairbench.store.reading import Reading, current_name
from pairbench.workflow.setup import store_of

_NAMES = (*SERIES, "operator")


def stored_points(
    config: Config,
    select: Sequence[str],
    *,
    run: str | None = None,
    device_name: str | None = None,
    wanted: Wanted = ANY,
) -> Reading[tuple[Record, ...]]:
    """Return the records to draw."""
    place = store_of(config)
    selections = [parse_selection(current_name(text, place.moved)) for text in select]

    def takes(suite: str, operator: str | None, case: str | None, device: str) -> bool:
        return (not selections or any(one.takes_name(suite, operator, case) for one in selections)) and (
            device_name is None or device_name.lower() in device.lower()
        )

    with collector_at_rest():
        reading = _newest(place, takes) if run is None else read_run(place, run)
    found = tuple(
        one
        for one in reading.value
        if takes(one.suite, one.operator, one.case, one.device_name)
        and wanted.takes(one.implementation, one.mode, beside="baseline")
    )
    if not found:
        asked = [*select, *([f"--device-name {device_name}"] if device_name else [])]
        raise SelectionError(
            f"{' '.join(asked)!r} selects nothing that was measured in store {config.shown_store!r}; `pairbench show` shows what there is"
        )
    return Reading(found, reading.problems)


def _newest(place: StoreLocation, takes: Callable[..., bool]) -> Reading[tuple[Record, ...]]:
    """Return the newest measured record of each series that is taken: names first, then whole rows of those runs alone."""
    frame, problems = read_frame(place, columns=[*_NAMES, "run_id"], where={"status": Status.MEASURED.value})
    named = frame.dropna(subset=["operator", "case"])
    names = named[["suite", "operator", "case", "device_name"]].drop_duplicates()
    kept = [names_of for names_of in names.itertuples(index=False, name=None) if takes(*names_of)]
    cases = {case for _, _, case, _ in kept}
    newest = named[named["case"].isin(cases)].drop_duplicates(subset=list(SERIES), keep="last")
    run_of = {Series(**{name: row[name] for name in SERIES}): row["run_id"] for row in newest.to_dict("records")}
    if not run_of:
        return Reading((), problems)
    rows, more = read_records(place, sorted(set(run_of.values())), where={"case": sorted(cases)})
    taken = tuple(row for row in rows if (series := Series.of(row)) and run_of.get(series) == row.run_id)
    return Reading(taken, tuple(dict.fromkeys([*problems, *more])))
