"""The options of the commands: those that several verbs share are declared here once, with their help and what their values become."""

import functools
import inspect
from collections.abc import Callable, Container
from dataclasses import field, fields
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer import Argument, Option

from pairbench.cli.say import configure
from pairbench.config import Config
from pairbench.model.plain import Value
from pairbench.plan import ANY, Wanted
from pairbench.workflow.setup import stored_select

Text = str | None
Texts = list[str] | None
File = Path | None


def _option(kind: Any, description: str, *names: str, metavar: str | None = None) -> Any:
    return Annotated[kind, Option(*names, help=description, metavar=metavar)]


def _argument(kind: Any, metavar: str, description: str) -> Any:
    return Annotated[kind, Argument(metavar=metavar, help=description)]


_I, _D = ("--implementation", "-i"), ("--device", "-d")
SHARED: dict[str, Any] = {  # the type and the declaration of each shared option, by the name of its value
    "select": _argument(
        Texts,
        "[SELECT]...",
        "What to take: a suite file or folder, file::operator, an operator, a glob, or a whole case key; several add up. A "
        "name beside a file or folder is looked for in that one only: ops.py 'silu*'. Default: all suites of the settings, else all in this "
        "folder and below.",
    ),
    "operator": _argument(
        str, "OPERATOR", "An operator, file::operator, a suite file that declares one, or a whole case key."
    ),
    "case": _option(
        str | None,
        "A case key, some of its axes as dtype=float32,rows=4, or a glob. Default: the first real case on a GPU, the first "
        "smoke case on a CPU.",
    ),
    "catalogue": _option(bool, "Take the pairs that come with pairbench where SELECT names no file.", "--catalogue"),
    "implementation": _option(
        Texts, "A variant, or a glob of variants, to take beside the baseline; repeatable. Default: all.", *_I
    ),
    "device": _option(
        str, "auto (the first GPU, else the CPU), cpu, cuda:N, or all (every GPU at the same time).", *_D
    ),
    "tier": _option(Texts, "smoke, real, headline, edge or all; repeatable. Default: smoke on a CPU, all on a GPU."),
    "mode": _option(Texts, "eager, compile, graph or all; repeatable. Default: eager."),
    "rounds": _option(int | None, "How many times every case is timed, each in a fresh process. Default: 3."),
    "timer": _option(str | None, "auto, or do_bench for Triton's own function (never compared with auto)."),
    "tf32": _option(
        bool | None,
        "Let float32 products and convolutions use TF32, baseline and variants alike, and judge them by its ten bits; an axis "
        "`tf32` of a case goes before. Default: --no-tf32.",
        "--tf32/--no-tf32",
    ),
    "against": _option(
        Path | None,
        "A candidate's file, or a folder of them, for problems of other corpora: a file that defines ModelNew (KernelBench), a "
        "solution or a file that defines run (FlashInfer-Trace, SOL-ExecBench), OP_implementation.py (BackendBench).",
        metavar="PATH",
    ),
    "timeout": _option(float | None, "Seconds for one implementation in one stage. Default: 300."),
    "budget": _option(
        str | None,
        "Wall time of the command: 90s, 10m, 1h, or none. Cases that were never measured come first, then the oldest; as many "
        "as fit are measured in full, the others are skipped as out of budget. What is left goes to further rounds of the cases with the "
        "widest intervals. A case that has begun is finished, so expect some seconds more; what --confirm measures again "
        "comes on top.",
        metavar="TIME",
    ),
    "store": _option(str | None, "Folder or URL (s3://, gs://) of the results. Default: results."),
    "names": _option(Texts, "An operator, a glob, or a case key; repeatable.", "--select", "-s"),
    "stored_select": _argument(
        Texts,
        "[SELECT]...",
        "What to take of the store: a suite file or folder, file::operator, an operator, a glob, or a whole case key; several add "
        "up. Default: everything.",
    ),
    "stored_implementation": _option(
        Texts,
        "A variant, or a glob of variants, of what is stored; repeatable. Tables and charts of pairs keep the baseline beside it. "
        "Default: all.",
        *_I,
    ),
    "stored_mode": _option(Texts, "eager, compile, graph or all; repeatable. Default: all that are stored.", "--mode"),
    "stored_tier": _option(Texts, "smoke, real, headline, edge or all; repeatable. Default: all.", "--tier"),
    "stored_device": _option(
        str | None,
        "Where it was measured: all, cpu, cuda (any GPU), a device model, or a part of its name. Default: all.",
        *(*_D, "--device-name"),
    ),
    "min_effect": _option(
        float | None, "Smallest change of a latency that counts, in percent. Default: 2.", metavar="PERCENT"
    ),
    "certificates": _option(Path | None, "Certificates of `pairbench fleet certificates`.", metavar="FOLDER"),
    "insecure": _option(
        bool, "Go without TLS beyond this machine: whoever reaches a port then runs code on every host.", "--insecure"
    ),
    "output": _option(str, "table, markdown or json.", "--format", "-f"),
}

_DEFAULTS = dict(operator=inspect.Parameter.empty, catalogue=False, device="auto", insecure=False, output="table")
# Options that are settings, by the names that they have in `[tool.pairbench]`, too.
_SETTINGS = ("catalogue", "tier", "mode", "rounds", "timer", "tf32", "timeout", "against", "store", "budget")


class Given(Value):
    config: Config  # the settings: those of the command line, else those of `[tool.pairbench]`
    select: list[str] = field(default_factory=list)
    operator: str = ""
    case: str | None = None
    implementation: tuple[str, ...] = ()
    device: str = "auto"
    tier: tuple[str, ...] = ()
    mode: tuple[str, ...] = ()
    rounds: int | None = None
    min_effect: float | None = None
    store: str | None = None  # the store as the command line names it; None where it names none
    certificates: Path | None = None
    insecure: bool = False
    output: str = "table"
    wanted: Wanted = ANY  # the stored series to take; any by default


def option(description: str, *names: str, **more: Any) -> Any:
    """Return the declaration of one verb's option, for `verb`."""
    return Option(*names, help=description, **more)


def argument(description: str, *, metavar: str | None = None) -> Any:
    return Argument(help=description, metavar=metavar)


def verb(
    takes: str, *, settings: dict[str, Any] | None = None, **declared: Any
) -> Callable[[Callable[..., int | None]], Callable[..., None]]:
    """Return a decorator that turns a function into a command with the named options.

    The function takes the shared options as one `Given` and the options in its own signature by name. It returns the exit code.

    Args:
        takes: Names of all options of the command, separated by spaces, in the order of its help.
        settings: Settings that the command uses unless the command line gives others.
        declared: Declarations of the command's own options, typed by the function's signature, and of shared ones with another help.
    """

    def make(function: Callable[..., int | None]) -> Callable[..., None]:
        own = inspect.signature(function).parameters

        def parameter(name: str) -> inspect.Parameter:
            mine = own.get(name)
            annotation = mine.annotation if mine else SHARED[name]
            if name in declared:
                annotation = Annotated[mine.annotation if mine else get_args(annotation)[0], declared[name]]
            default = mine.default if mine else _DEFAULTS.get(name)
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            return inspect.Parameter(name, kind, default=default, annotation=annotation)

        parameters = {name: parameter(name) for name in takes.split()}
        signature = inspect.Signature([*parameters.values()], __validate_parameters__=False)

        @functools.wraps(function)
        def run(*positional: Any, **by_name: Any) -> None:
            defaults = {name: parameter.default for name, parameter in parameters.items()}
            values = {**defaults, **dict(zip(parameters, positional, strict=False)), **by_name}
            given = _given(values, own, settings or {})
            if code := function(given, **{name: value for name, value in values.items() if name in own}):
                raise typer.Exit(code)

        # What Typer reads; options without a default may stand behind others.
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
        return run

    return make


def _given(values: dict[str, Any], own: Container[str], settings: dict[str, Any]) -> Given:
    chosen = {**settings, **{name: values[name] for name in _SETTINGS if values.get(name) is not None}}
    stored = {name: value for name in ("mode", "tier") if (value := values.get(f"stored_{name}"))}
    config = configure(values.get("output", "table"), **stored, **chosen)
    wanted = Wanted(
        select=stored_select(config, [*(values.get("stored_select") or ()), *(values.get("names") or ())]),
        implementations=tuple(values.get("stored_implementation") or ()),
        modes=config.settings.modes if "mode" in stored else (),
        tiers=config.settings.tiers if "tier" in stored else (),
        device=values.get("stored_device"),
    )
    taken = [item.name for item in fields(Given) if item.name not in own and values.get(item.name) is not None]
    shared: dict[str, Any] = {name: values[name] for name in taken}
    shared |= {name: tuple(shared[name]) for name in ("implementation", "tier", "mode") if name in shared}
    return Given(config=config, wanted=wanted, **shared)
