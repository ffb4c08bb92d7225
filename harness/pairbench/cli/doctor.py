"""`pairbench doctor`."""

import typer

from pairbench.cli.options import DeviceOption, FormatOption, StoreOption
from pairbench.workflow.setup import configure


def doctor(device: DeviceOption = "auto", store: StoreOption = None, output: FormatOption = "table") -> None:
    """Say what this machine can measure, and what it lacks. Also what to do about that.

    Example: pairbench doctor --device all
    """
    from pairbench.report.render import render_rows
    from pairbench.workflow.inspect.doctor import examine

    typer.echo(render_rows("doctor", examine(configure(output, store=store), device), output), nl=False)
