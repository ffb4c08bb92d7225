"""What every verb needs before it can start: settings, suites, devices, and a way to be interrupted."""

import contextlib
import signal
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from pairbench.config import Config, load_config
from pairbench.errors import SuiteError, UsageError
from pairbench.model.environment import Device
from pairbench.plan import Selection, parse_selection
from pairbench.suite import find_suites

if TYPE_CHECKING:  # what runs workers costs every `--help` a tenth of a second
    import datetime as dt

    from pairbench.execute.parent.pool import WorkerContext
    from pairbench.execute.parent.scout import Survey

FORMATS = ("table", "markdown", "json")


def configure(output: str = "table", **options: Any) -> Config:
    """Return the configuration under the current folder and the options of this command.

    Raises:
        UsageError: a setting, an option or the output format is wrong.
    """
    if output not in FORMATS:
        raise UsageError(f"--format {output!r} is unknown, expected one of {', '.join(FORMATS)}")
    return load_config(Path.cwd(), **options)


@contextlib.contextmanager
def make_context(config: Config) -> "Iterator[WorkerContext]":
    """Give workers a place of their own."""
    from pairbench.execute.parent.launch import open_launcher
    from pairbench.execute.parent.pool import WorkerContext, available_memory

    with (
        open_launcher() as launcher,
        tempfile.TemporaryDirectory(prefix="pairbench-", ignore_cleanup_errors=True) as cache,
    ):
        yield WorkerContext(
            settings=config.settings,
            cache=Path(cache),
            interrupted=threading.Event(),
            memory_bytes=available_memory(config.settings.memory_fraction),
            launcher=launcher,
        )


@contextlib.contextmanager
def open_context(config: Config) -> "Iterator[WorkerContext]":
    """Give workers a place of their own, and turn Ctrl-C and SIGTERM into an orderly end."""
    with make_context(config) as context:

        def interrupt(_signal: int, _frame: FrameType | None) -> None:
            context.interrupted.set()

        before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield context
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The suites that SELECT arguments call for, loaded, and the selections with paths as suites name themselves."""

    survey: "Survey"
    selections: tuple[Selection, ...]
    implementations: tuple[str, ...] = ()
    """Names or globs; none for all. The baseline is taken with any."""


def choose(
    config: Config, context: "WorkerContext", select: list[str] | None, implementations: Iterable[str] = ()
) -> Chosen:
    """Load the suites that are asked for: those that are named, and all of the settings' if anything else is.

    Raises:
        UsageError: a file does not exist.
    """
    from pairbench.execute.parent.scout import survey

    selections: list[Selection] = []
    files: list[Path] = []
    for text in select or []:
        # A folder may be named without its slash.
        selection = parse_selection(f"{text}/" if Path(text).is_dir() else text)
        if selection.suite is None:
            selections.append(selection)
            continue
        found = find_suites((Path(selection.suite),))
        if not found:
            raise SuiteError(
                f"folder {selection.suite!r} holds no suite file, expected a *.py that declares an Operator"
            )
        files += found
        selections += [replace(selection, suite=shown(file, config)) for file in found]
    if not selections or any(selection.suite is None for selection in selections):
        files += find_suites(default_places(config))
    # Resolved first: one file may be named by its path and found in the settings' folder, too.
    suites = tuple((shown(file, config), file) for file in dict.fromkeys(file.resolve() for file in files))
    return Chosen(survey=survey(context, suites), selections=tuple(selections), implementations=tuple(implementations))


def default_places(config: Config) -> tuple[Path, ...]:
    """Return where suites are looked for when no SELECT argument names a file."""
    if config.suites is not None:
        return tuple(config.root / place for place in config.suites)
    return (catalogue_folder("suites"),)


def catalogue_folder(name: str) -> Path:
    """Return the folder `suites` or `dashboards` that comes with pairbench: in the wheel, or in the checkout that it runs from."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_catalogue" / name
    return installed if installed.is_dir() else package.parents[1] / name


def shown(file: Path, config: Config) -> str:
    """Return how records name a suite: the same wherever the checkout lies, pairbench is installed or a user stands."""
    path = file.resolve()
    if path.parent == catalogue_folder("suites"):
        return f"suites/{path.name}"
    root = config.root.resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def pick_devices(wanted: str, devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Return the devices that `--device` names.

    Raises:
        UsageError: there is no such device.
    """
    gpus = tuple(device for device in devices if device.kind == "cuda")
    cpu = devices[-1]
    if wanted == "auto":
        return gpus[:1] or (cpu,)
    if wanted == "all":
        return gpus or (cpu,)
    found = tuple(device for device in devices if device.selector == ("cuda:0" if wanted == "cuda" else wanted))
    if not found:
        known = ", ".join(f"{device.selector} ({device.name})" for device in devices)
        raise UsageError(f"--device {wanted!r} is not here, expected auto, all or one of {known}")
    return found


def stamp(at: "dt.datetime") -> str:
    """Return a name that nothing else has, even if it was made in the same second elsewhere."""
    import secrets  # with what it needs some ten milliseconds, and `pairbench --help` loads this module

    return f"{at:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
