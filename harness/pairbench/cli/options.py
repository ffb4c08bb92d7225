"""Options that mean the same for every verb."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pairbench.config import Config
    from pairbench.model.record import Wanted

Select = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SELECT]...",
        help="What to take: a suite file or folder, file::operator, an operator, a glob, or a whole case key; several add up. A "
        "name beside a file or folder is looked for in that one only: ops.py 'silu*'. Default: all suites of the settings, else all in this "
        "folder and below.",
        show_default=False,
    ),
]
CatalogueOption = Annotated[
    bool,
    typer.Option("--catalogue", help="Take the pairs that come with pairbench where SELECT names no file."),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device", "-d", help="auto (the first GPU, else the CPU), cpu, cuda:N, or all (every GPU at the same time)."
    ),
]
TierOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tier",
        help="smoke, real, headline, edge or all; repeatable. Default: smoke on a CPU, all on a GPU.",
        show_default=False,
    ),
]
ModeOption = Annotated[
    list[str] | None,
    typer.Option("--mode", help="eager, compile, graph or all; repeatable. Default: eager.", show_default=False),
]
ImplementationsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--implementation",
        "-i",
        help="A variant, or a glob of variants, to take beside the baseline; repeatable. Default: all.",
        show_default=False,
    ),
]
Tf32Option = Annotated[
    bool | None,
    typer.Option(
        "--tf32/--no-tf32",
        help="Let float32 products and convolutions use TF32, baseline and variants alike, and judge them by its ten bits; an axis "
        "`tf32` of a case goes before. Default: --no-tf32.",
        show_default=False,
    ),
]
RoundsOption = Annotated[
    int | None,
    typer.Option(
        "--rounds",
        help="How many times every case is timed, each in a fresh process. Default: 3.",
        show_default=False,
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option("--timeout", help="Seconds for one implementation in one stage. Default: 300.", show_default=False),
]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="Folder or URL (s3://, gs://) of the results. Default: results.", show_default=False),
]
StoredImplementationsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--implementation",
        "-i",
        help="A variant, or a glob of variants, of what is stored; repeatable. Tables and charts of pairs keep the baseline beside it. "
        "Default: all.",
        show_default=False,
    ),
]
StoredModeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mode", help="eager, compile, graph or all; repeatable. Default: all that are stored.", show_default=False
    ),
]
DeviceNameOption = Annotated[
    str | None,
    typer.Option(
        "--device-name", help="Device model of what is stored, or a part of its name. Default: all.", show_default=False
    ),
]
FormatOption = Annotated[str, typer.Option("--format", "-f", help="table, markdown or json.")]
NamesOption = Annotated[
    list[str] | None,
    typer.Option("--select", "-s", help="An operator, a glob, or a case key; repeatable.", show_default=False),
]
OneOperator = Annotated[
    str,
    typer.Argument(
        metavar="OPERATOR", help="An operator, file::operator, a suite file that declares one, or a whole case key."
    ),
]
CaseOption = Annotated[
    str | None,
    typer.Option(
        "--case",
        help="A case key, some of its axes as dtype=float32,rows=4, or a glob. Default: the first real case on a GPU, the first "
        "smoke case on a CPU.",
        show_default=False,
    ),
]
MinEffectOption = Annotated[
    float | None,
    typer.Option(
        "--min-effect",
        metavar="PERCENT",
        help="Smallest change of a latency that counts, in percent. Default: 2.",
        show_default=False,
    ),
]


def wanted_series(config: "Config", implementation: Sequence[str] | None, mode: Sequence[str] | None) -> "Wanted":
    """Return the stored series that the options --implementation and --mode select; all of them where neither is given.

    Args:
        config: Of the command, in which `all` is already replaced by the modes.
        implementation: Names or globs.
        mode: As given by the user.
    """
    from pairbench.model.record import Wanted

    return Wanted(implementations=tuple(implementation or ()), modes=config.settings.modes if mode else ())
