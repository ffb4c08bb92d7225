"""The verb `pairbench trend`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pairbench.cli.options import (
    DeviceNameOption,
    FormatOption,
    StoredImplementationsOption,
    StoredModeOption,
    StoreOption,
    wanted_series,
)
from pairbench.cli.say import configure, put, say
from pairbench.execute.garbage import collector_at_rest
from pairbench.workflow.setup import store_of

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
    implementation: StoredImplementationsOption = None,
    mode: StoredModeOption = None,
    store: StoreOption = None,
    output: FormatOption = "table",
    picture: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Draw it into this .svg or .png file, too.", show_default=False),
    ] = None,
    last: Annotated[
        int | None, typer.Option("--last", min=1, help="Take the newest N runs. Default: all.", show_default=False)
    ] = None,
    device_name: DeviceNameOption = None,
    timer: Annotated[
        str | None,
        typer.Option("--timer", help="Take values of this timer. Default: the newest run's.", show_default=False),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 where the newest run is undecided.")] = False,
) -> None:
    """Show changepoints of a series, the commits around them and the latest verdict.

    Example: pairbench trend 'suites/norm.py::rms_norm*4096*-triton-eager' --output trend.svg
    """
    from pairbench.report.trend import render_trend
    from pairbench.workflow.lookup import read_trend

    config = configure(output, mode=mode, store=store)
    wanted = wanted_series(config, implementation, mode)
    target = _target(picture)
    with collector_at_rest():
        reading = read_trend(store_of(config), series, device_name=device_name, timer=timer, last=last, wanted=wanted)
    put(render_trend(reading.value, output), nl=False)
    for problem in reading.problems:
        say(f"pairbench: {problem}")
    if target is not None:
        _draw(reading.value, target)
    raise typer.Exit(_exit_code(reading.value, strict=strict))


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


def _draw(trend: "Trend", path: Path) -> None:
    from pairbench.errors import UsageError
    from pairbench.report.figures import to_bytes, trend_figure

    content = to_bytes(trend_figure(trend), path.suffix.lower())
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"--output {str(path)!r} cannot be written: {error.strerror or error}") from error
    say(f"pairbench: drew {path}")


def _exit_code(trend: "Trend", *, strict: bool) -> int:
    from pairbench.model.comparison import GateOutcome

    outcome = trend.newest.outcome if trend.newest else GateOutcome.UNDECIDED
    if outcome in (GateOutcome.REGRESSION, GateOutcome.FAILED):
        return 1
    return 3 if strict and outcome in (GateOutcome.UNDECIDED, GateOutcome.NEW) else 0
