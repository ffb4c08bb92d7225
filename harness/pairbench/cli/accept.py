"""`pairbench accept`."""

from typing import TYPE_CHECKING, Annotated

import typer

from pairbench.cli.options import FormatOption, StoreOption
from pairbench.workflow.setup import configure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pairbench.model.acceptance import Acceptance
    from pairbench.model.record import Record
    from pairbench.model.series import Series


def accept(
    series: Annotated[
        str,
        typer.Argument(
            metavar="SERIES",
            help="One implementation of a case in a mode, like suites/conv.py::conv1d[taps=4]-triton-eager; or a glob.",
        ),
    ],
    reason: Annotated[
        str, typer.Option("--reason", help="Why this level is right; shown wherever it is used.", show_default=False)
    ],
    run_id: Annotated[
        str, typer.Option("--run", metavar="RUN", help="Whose level: a run, the beginning of its id, or latest.")
    ] = "latest",
    device_name: Annotated[
        str | None,
        typer.Option(
            "--device-name",
            help="Device model, or a part of its name, where several have the series.",
            show_default=False,
        ),
    ] = None,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> None:
    """Accept the present level of a series on purpose. Up to there it is no regression any more, and beyond it is.

    Stored as a small file in the store's folder `accepted`, to be reviewed and committed like code.

    Example: pairbench accept 'suites/norm.py::rms_norm*-fused-eager' --reason 'exact softmax, see #12'
    """
    import datetime as dt

    from pairbench.errors import UsageError
    from pairbench.report.render import render_rows
    from pairbench.store.accepted import write_acceptance
    from pairbench.workflow.compare.selectors import Sides
    from pairbench.workflow.git.repository import Repository

    config = configure(output, store=store)
    if not reason.strip():
        raise UsageError("--reason is empty, expected a sentence that a reviewer understands")
    sides = Sides(config.store, Repository(config.root), now=dt.datetime.now(dt.UTC))
    picked = sides.pick(run_id)
    records, problems = picked.index.records(picked.heads)
    at = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    taken = [
        acceptance_of(one, several, run_id=picked.side.runs[0], at=at, reason=reason.strip())
        for one, several in chosen(records, series, device_name, picked.side.runs).items()
    ]
    rows = [
        {
            "series": one.series.name,
            "device": one.series.device_name,
            "p50_us": None if one.p50_ns is None else round(one.p50_ns / 1e3, 3),
            "run": one.run_id,
            "file": write_acceptance(config.store, one),
        }
        for one in taken
    ]
    typer.echo(render_rows("accepted", rows, output), nl=False)
    for problem in dict.fromkeys([*sides.index.problems, *problems, *sides.notes]):
        typer.echo(f"pairbench: {problem}", err=True)


def chosen(
    records: "Iterable[Record]", text: str, device_name: str | None, runs: "Sequence[str]"
) -> "dict[Series, list[Record]]":
    """Return the series that a text names with their records.

    Raises:
        SelectionError: it names none, or the same on several device models.
    """
    import difflib
    import fnmatch

    from pairbench.errors import SelectionError
    from pairbench.model.series import Series

    found: dict[Series, list[Record]] = {}
    for record in records:
        if (one := Series.of(record)) is not None:
            found.setdefault(one, []).append(record)
    devices = sorted({one.device_name for one in found})
    if device_name is not None:
        part = device_name.lower()
        exact = [name for name in devices if name.lower() == part]
        here = exact or [name for name in devices if part in name.lower()]
        if not here:
            raise SelectionError(
                f"--device-name {device_name!r} is in no record of {runs[0]}; it has {', '.join(devices)}"
            )
        found = {one: several for one, several in found.items() if one.device_name in here}
    # A name holds brackets, which a glob would read as a set of characters.
    pattern = text.replace("[", "[[]")
    taken = {one: several for one, several in found.items() if one.name == text} or {
        one: several for one, several in found.items() if fnmatch.fnmatchcase(one.name, pattern)
    }
    if not taken:
        close = difflib.get_close_matches(text, sorted({one.name for one in found}), n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(close)}?" if close else "`pairbench compare` names those that got worse"
        raise SelectionError(f"{text!r} is no series of run {runs[0]}; {hint}")
    several = sorted({one.device_name for one in taken})
    if len(several) > 1 and len({one.name for one in taken}) < len(taken):
        raise SelectionError(f"{text!r} was measured on {', '.join(several)}; say which with --device-name")
    return taken


def acceptance_of(series: "Series", records: "Sequence[Record]", *, run_id: str, at: str, reason: str) -> "Acceptance":
    """Return the level of a series in some runs.

    Raises:
        UsageError: it has none.
    """
    import math

    from pairbench.analyze.compare.exact import METRICS, number
    from pairbench.analyze.compare.rounds import P50, P95, damage, mean_level, usable
    from pairbench.errors import UsageError
    from pairbench.model.acceptance import Acceptance

    sound = [record for record in records if usable(record) and damage(record) is None]
    if not sound:
        last = records[-1]
        why = damage(last) if usable(last) else f"{last.status}: {last.reason or 'no reason was stored'}"
        raise UsageError(f"{series.name} has no level to accept in run {run_id}: {why}")
    newest = sound[-1]
    p50, p95 = (math.exp(mean_level(metric, sound)) for metric in (P50, P95))
    exact = {name: value for name in (*METRICS, "margin") if (value := number(newest, name)) is not None}
    return Acceptance(
        series=series,
        definition_hash=newest.definition_hash,
        p50_ns=p50 if math.isfinite(p50) else None,
        p95_ns=p95 if math.isfinite(p95) else None,
        exact=exact,
        run_id=run_id,
        at=at,
        reason=reason,
    )
