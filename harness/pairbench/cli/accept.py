"""The verb `pairbench accept`."""

from typing import Annotated

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
        str | None,
        typer.Option(
            "--run",
            metavar="RUN",
            help="Whose level: a run, the beginning of its id, or latest. Default: the newest run that measured the series.",
            show_default=False,
        ),
    ] = None,
    device_name: DeviceNameOption = None,
    implementation: StoredImplementationsOption = None,
    mode: StoredModeOption = None,
    store: StoreOption = None,
    output: FormatOption = "table",
) -> None:
    """Accept the present level of a series on purpose. Up to there it is no regression any more, and beyond it is.

    Stored as a small file in the store's folder `accepted`, to be reviewed and committed like code.

    Example: pairbench accept 'suites/norm.py::rms_norm*-fused-eager' --reason 'exact softmax, see #12'
    """
    from pairbench.features.levels import accept_level
    from pairbench.report.render import render_rows

    config = configure(output, mode=mode, store=store)
    wanted = wanted_series(config, implementation, mode)
    stored = accept_level(config, series, reason=reason, run=run_id, device_name=device_name, wanted=wanted)
    rows = [
        {
            "series": one.series.name,
            "device": one.series.device_name,
            "p50_us": None if one.p50_ns is None else round(one.p50_ns / 1e3, 3),
            "run": one.run_id,
            "file": path,
        }
        for one, path in stored.acceptances
    ]
    put(render_rows("accepted", rows, output), nl=False)
    for problem in stored.problems:
        say(f"pairbench: {problem}")
