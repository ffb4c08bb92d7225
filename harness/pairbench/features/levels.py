"""What a store is told to judge by: noise floors from several runs of the same code, and levels that were accepted on purpose."""

import contextlib
import datetime as dt
import difflib
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from statistics import median

from pairbench.analyze.compare.exact import acceptance_of
from pairbench.analyze.compare.floors import LEAST_RUNS, calibrate_from
from pairbench.analyze.compare.latency import judged_hosts
from pairbench.config import Config
from pairbench.errors import SelectionError, StoreError, UsageError
from pairbench.model.comparison import Acceptance, Calibration
from pairbench.model.outcome import OUT_OF_BUDGET
from pairbench.model.plain import grouped
from pairbench.model.record import Record, Series
from pairbench.plan import ANY, Wanted
from pairbench.report.comparison import measured
from pairbench.report.render import render_rows, to_json
from pairbench.report.units import percent
from pairbench.store.documents import write_document
from pairbench.store.files import Reading
from pairbench.store.location import StoreLocation
from pairbench.store.writer import Spool
from pairbench.workflow.lookup import RunSelector, matching
from pairbench.workflow.record import Kept, record_run, settle
from pairbench.workflow.setup import Request, stamp, store_of

_Tried = tuple[tuple[Record, ...], tuple[str, ...], str]  # records of a run, problems of its files, and its id
_NEWEST = 50  # the number of newest runs that are gone through for one that has a series


def render_calibrations(calibrations: Sequence[Calibration], output: str) -> str:
    if output == "json":
        floors = [[{**vars(name), **vars(floor)} for name, floor in sorted(one.floors.items())] for one in calibrations]
        known = zip(calibrations, floors, strict=True)
        return to_json({"calibrations": [{**vars(one), "floors": of_one} for one, of_one in known]})
    return "\n".join(_text(calibration, output) for calibration in calibrations)


def _text(calibration: Calibration, output: str) -> str:
    rows = []
    judged = judged_hosts(calibration.floors)
    by_operator = attrgetter("operator", "mode")
    for (operator, mode), group in groupby(sorted(calibration.floors, key=by_operator), key=by_operator):
        members = list(group)
        floors = [calibration.floors[one] for one in members]
        row = {"operator": operator, "mode": mode, "series": len(floors)}
        for name, values in (("P50", [floor.p50 for floor in floors]), ("P95", [floor.p95 for floor in floors])):
            row[f"{name} floor, median"] = percent(median(values))
            row[f"{name} floor, largest"] = percent(max(values))
        hosts = [floor.host for floor in floors if floor.host is not None]
        ratios = [floor.host_relative for floor in floors if floor.host_relative is not None]
        row |= {"host floor, median": percent(median(hosts))} if hosts else {}
        row |= {"host / baseline floor, median": percent(median(ratios))} if ratios else {}
        row |= {"host judged": f"{len(judged.intersection(members))} of {len(hosts)}"} if hosts else {}
        rows.append(row)
    table = render_rows(f"noise floors of {calibration.device_name}", rows, output) if rows else ""
    if not rows and len(calibration.runs) < LEAST_RUNS:
        table = f"no noise floors: they take {LEAST_RUNS} runs, and these were {len(calibration.runs)} (`--runs {LEAST_RUNS}`)\n"
    return f"{table}\n{measured(calibration)}\n"


def calibrate_machine(request: Request, *, runs: int) -> tuple[tuple[Calibration, ...], int, Kept | None]:
    """Run the selected pairs several times, and store each device model's noise; return it, an exit code, and what was not stored."""
    # The exit code is the worst of the runs, and 4 where the store did not take a calibration.
    done = []
    notify = request.progress.notify
    for number in range(runs):
        notify(f"pairbench: run {number + 1} of {runs}")
        done.append(record_run(request))
        if done[-1].error is not None:
            raise done[-1].error
        if done[-1].interrupted:
            return (), done[-1].exit_code, None
    now = dt.datetime.now(dt.UTC)
    calibrations = calibrations_of([run.records for run in done], now)
    spool = Spool(StoreLocation.of(request.config.store), f"calibration-{stamp(now)}", notify)
    for calibration in calibrations:
        write_document(request.config.store, calibration, spool.publish_alone)
    kept = settle(spool, notify)
    return calibrations, max(4 if kept else 0, *(run.exit_code for run in done)), kept


def calibrations_of(runs: Sequence[Sequence[Record]], now: dt.datetime) -> tuple[Calibration, ...]:
    calibrations = []
    for name in dict.fromkeys(record.device_name for run in runs for record in run):
        of_device = [records for run in runs if (records := [one for one in run if one.device_name == name])]
        hash_, ids = of_device[0][0].environment_hash, tuple(run[0].run_id for run in of_device)
        made = {"calibration_id": stamp(now), "made_at": now.isoformat(timespec="milliseconds")}
        known = {"device_name": name, "environment_hash": hash_, **made, **calibrate_from(of_device)._asdict()}
        calibrations.append(Calibration(runs=ids, **known))
    return tuple(calibrations)


def accept_level(
    config: Config, text: str, *, reason: str, run: str | None = None, wanted: Wanted = ANY
) -> Reading[tuple[tuple[Acceptance, str], ...]]:
    """Store the level that some series have in a run, by default the newest that measured one, and return it with its file."""
    if not reason.strip():
        raise UsageError("--reason is empty, expected a sentence that a reviewer understands")
    selector = RunSelector.of_store(store_of(config), config.root)
    records, problems, run_id = _records_of(selector, run, text, wanted)
    at = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    acceptances = (
        acceptance_of(series, several, run_id=run_id, at=at, reason=reason.strip())
        for series, several in named_series(records, text, run_id, wanted).items()
    )
    stored = tuple((one, write_document(config.store, one)) for one in acceptances)
    return Reading(stored, tuple(dict.fromkeys([*selector.index.problems, *problems, *selector.notes])))


def _records_of(selector: RunSelector, run: str | None, text: str, wanted: Wanted) -> _Tried:
    """Return the records of the given run, or of the newest that has a level of the series, the problems of its files, and its id."""
    tried: list[_Tried] = []
    for back in range(1 if run else _NEWEST):
        try:
            picked = selector.pick(run or (f"latest~{back}" if back else "latest"))
        except (SelectionError, StoreError):
            if not tried:
                raise
            break
        records, problems = picked.index.records(picked.heads)
        tried.append((tuple(records), tuple(problems), picked.side.runs[0]))
        measured = [record for record in records if record.reason != OUT_OF_BUDGET]
        with contextlib.suppress(SelectionError):
            named_series(measured, text, tried[-1][2], wanted)
            return tried[-1]
    return tried[0]  # the newest run, to say what is wrong


def named_series(records: Sequence[Record], text: str, run_id: str, wanted: Wanted) -> dict[Series, list[Record]]:
    """Return the series that a text names in some records, each with its records."""
    by_series = grouped((series, record) for record in wanted.records(records) if (series := Series.of(record)))
    here = sorted(by_series)
    if records and not here:
        names = ", ".join(sorted({record.device_name for record in records}))
        raise SelectionError(f"{wanted} is in no record of {run_id}; it has those of {names}")
    named = [series for series in here if series.name == text] or matching(here, text)
    if not named:
        close = difflib.get_close_matches(text, sorted({series.name for series in here}), n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(close)}?" if close else "`pairbench compare` names those that got worse"
        raise SelectionError(f"{text!r} is no series of run {run_id}; {hint}")
    models = sorted({series.device_name for series in named})
    if len(models) > 1 and len({series.name for series in named}) < len(named):
        raise SelectionError(f"{text!r} was measured on {', '.join(models)}; say which with --device")
    return {series: by_series[series] for series in named}
