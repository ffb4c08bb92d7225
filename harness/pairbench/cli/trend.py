"""`pairbench trend`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pairbench.cli.options import FormatOption, StoreOption
from pairbench.execute.garbage import collector_at_rest
from pairbench.workflow.setup import configure

if TYPE_CHECKING:
    from pairbench.analyze.history.trend import Trend


def trend(
    series: Annotated[
        str,
        typer.Argument(
            metavar="SERIES",
            help="One implementation of a case in a mode, like suites/conv.py::conv1d[taps=4]-triton-eager; or a glob, "
            "or a part of the name, that fits one only.",
        ),
    ],
    store: StoreOption = None,
    output: FormatOption = "table",
    picture: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Draw it into this .svg or .png file, too.", show_default=False),
    ] = None,
    last: Annotated[
        int | None, typer.Option("--last", min=1, help="Take the newest N runs. Default: all.", show_default=False)
    ] = None,
    device_name: Annotated[
        str | None,
        typer.Option(
            "--device-name",
            help="Device model, or a part of its name, where several have the series.",
            show_default=False,
        ),
    ] = None,
    timer: Annotated[
        str | None,
        typer.Option("--timer", help="Take values of this timer. Default: the newest run's.", show_default=False),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 where the newest run is undecided.")] = False,
) -> None:
    """Show the history of a series, and where it moved. Between which commits, whose doing it was, and its newest run.

    Example: pairbench trend 'suites/norm.py::rms_norm*4096*-triton-eager' --output trend.svg
    """
    from pairbench.analyze.history.trend import make_trend
    from pairbench.errors import SelectionError
    from pairbench.report.trend import render_trend
    from pairbench.workflow.history.lookup import find_series, read_history

    config = configure(output, store=store)
    target = _target(picture)
    one = find_series(config.store, series, device_name=device_name)
    with collector_at_rest():
        reading = read_history(config.store, one.value)
        found = make_trend(
            reading.value, one.value, timer=timer, last=last, floor=reading.floor, acceptance=reading.acceptance
        )
    if timer is not None and not any(point.record.timer == timer for point in found.points):
        known = sorted({record.timer for record in reading.value if record.timer})
        raise SelectionError(f"--timer {timer!r} timed no run of this series, expected one of {', '.join(known)}")
    problems = tuple(dict.fromkeys([*one.problems, *reading.problems]))
    typer.echo(render_trend(found, output), nl=False)
    for problem in problems:
        typer.echo(f"pairbench: {problem}", err=True)
    if target is not None:
        _draw(found, target)
    raise typer.Exit(_exit_code(found, strict=strict))


def _target(picture: str | None) -> Path | None:
    """Return where to draw.

    Raises:
        UsageError: no such format, or no such folder.
    """
    from pairbench.errors import UsageError

    if picture is None:
        return None
    path = Path(picture)
    if path.suffix.lower() not in (".svg", ".png"):
        raise UsageError(f"--output {picture!r} ends in {path.suffix or 'nothing'!r}, expected .svg or .png")
    if not path.parent.is_dir():
        raise UsageError(f"--output {picture!r}: there is no folder {str(path.parent)!r}; make it, or name another")
    return path


def _draw(found: "Trend", path: Path) -> None:
    from pairbench.errors import UsageError
    from pairbench.report.charts.series_figure import to_bytes, trend_figure

    content = to_bytes(trend_figure(found), path.suffix.lower())
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"--output {str(path)!r} cannot be written: {error.strerror or error}") from error
    typer.echo(f"pairbench: drew {path}", err=True)


def _exit_code(found: "Trend", *, strict: bool) -> int:
    from pairbench.model.comparison import GateOutcome

    outcome = found.newest.outcome if found.newest else GateOutcome.UNDECIDED
    if outcome in (GateOutcome.REGRESSION, GateOutcome.FAILED):
        return 1
    return 3 if strict and outcome in (GateOutcome.UNDECIDED, GateOutcome.NEW) else 0
