"""The verb `pairbench doctor`."""

from pairbench.cli.options import DeviceOption, FormatOption, StoreOption
from pairbench.cli.say import configure, put


def doctor(device: DeviceOption = "auto", store: StoreOption = None, output: FormatOption = "table") -> None:
    """Show what this machine can measure. Also what is missing, and how to fix it.

    Example: pairbench doctor --device all
    """
    from pairbench.report.render import render_rows
    from pairbench.workflow.inspect.doctor import examine

    put(render_rows("doctor", examine(configure(output, store=store), device), output), nl=False)
