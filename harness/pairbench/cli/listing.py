"""The verb `pairbench list`.

The verb `pairbench doctor`.
"""

import typer

from pairbench.cli.options import CatalogueOption, DeviceOption, FormatOption, Select, StoreOption
from pairbench.cli.say import configure, put, say
from pairbench.workflow.setup import choose, open_context


def doctor(device: DeviceOption = "auto", store: StoreOption = None, output: FormatOption = "table") -> None:
    """Show what this machine can measure. Also what is missing, and how to fix it.

    Example: pairbench doctor --device all
    """
    from pairbench.report.render import render_rows
    from pairbench.workflow.machine import examine

    put(render_rows("doctor", examine(configure(output, store=store), device), output), nl=False)


def list_(select: Select = None, catalogue: CatalogueOption = False, output: FormatOption = "table") -> None:
    """List operators with their implementations and cases.

    Example: pairbench list suites/depthwise.py
    """
    from pairbench.errors import SelectionError
    from pairbench.report.render import render_rows

    config = configure(output, catalogue=catalogue)
    with open_context(config, describes=True) as context:
        chosen = choose(config, context, select)
    rows = [
        {
            "suite": operator.suite,
            "case": case.key,
            "tier": case.tier,
            "implementations": [item.name for item in operator.implementations],
            "impostors": [item.name for item in operator.impostors],
            "source": operator.source,
        }
        for operator in chosen.operators()
        for case in operator.cases
    ]
    for suite in chosen.survey.broken:
        say(f"pairbench: {suite.reason}")
    if not rows and select and not chosen.survey.broken:
        raise SelectionError(
            f"{' '.join(select)!r} selects nothing; `pairbench list` without arguments shows everything"
        )
    put(render_rows("cases", rows, output), nl=False)
    if chosen.survey.broken:
        raise typer.Exit(2)
