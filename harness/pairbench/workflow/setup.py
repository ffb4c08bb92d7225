"""What every verb needs before it can start: settings, suites, devices, and a way to be interrupted.

Where suites are: those of the settings, the files here, and the catalogue that comes with pairbench; how records name them.
"""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairbench.config import Config, load_config
from pairbench.errors import SuiteError, UsageError
from pairbench.model.environment import Device
from pairbench.model.plain import whole_text
from pairbench.own_folders import held_folder, sweep_folders
from pairbench.plan import Equipment, Selection, narrow, parse_selection, same_model
from pairbench.suite.load import find_suites, moved_suites, refuse_syntax_errors
from pairbench.suite.reached import names_compiler
from pairbench.workflow.interrupting import on_signals
from pairbench.workflow.narrowed import Narrowed


def default_suites(config: Config) -> tuple[Path, ...]:
    """Return the suite files that are meant when no SELECT argument names a file."""
    files = find_suites(default_places(config))
    if not files and config.suites is None:
        raise SuiteError(
            f"no suite here: no *.py file in {Path.cwd()}, or below, declares an Operator; name a file or folder of suites, "
            "or take the pairs that come with pairbench by --catalogue"
        )
    return files


def default_places(config: Config) -> tuple[Path, ...]:
    """Return the files and folders in which suites are looked for when no SELECT argument names a file."""
    if config.catalogue:
        return (catalogue_folder("suites"),)
    if config.suites is not None:
        return tuple(config.root / place for place in config.suites)
    return (Path.cwd(),)


def moved_names(config: Config) -> dict[str, str]:
    """Return where suites are now, by their old names: the catalogue's, unless the settings name suites of a project's own."""
    own = config.suites is not None and not config.catalogue
    return moved_suites(default_places(config) if own else (catalogue_folder("suites"),))


def moved_here(config: Config) -> dict[str, str]:
    """Return where suites are now, by their old names, without names that a file here has: that one is the user's own."""
    return {old: new for old, new in moved_names(config).items() if not (config.root / old).exists()}


def catalogue_folder(name: str) -> Path:
    """Return the folder `suites` or `dashboards` that comes with pairbench: in the wheel, or in the checkout that it runs from."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_catalogue" / name
    return installed if installed.is_dir() else package.parents[1] / name


def shown(file: Path, config: Config) -> str:
    """Return how records name a suite: the same wherever the checkout lies, pairbench is installed or a user stands."""
    path, catalogue = file.resolve(), catalogue_folder("suites")
    if config.written is not None and path.is_relative_to(config.written.resolve()):
        return path.relative_to(
            config.written.resolve()
        ).as_posix()  # its folder is gone, and another one, with the next call
    if path.is_relative_to(catalogue):
        return f"suites/{path.relative_to(catalogue).as_posix()}"
    root = config.root.resolve()
    return whole_text(path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path))


if TYPE_CHECKING:  # what runs workers costs every `--help` a tenth of a second
    import datetime as dt

    from pairbench.execute.parent.pool import WorkerContext
    from pairbench.execute.parent.scout import Survey
    from pairbench.model.plan import OperatorDescription
    from pairbench.store.location import StoreLocation
    from pairbench.workflow.progress import PlainProgress

FORMATS = ("table", "markdown", "json")


def configure(output: str = "table", **options: Any) -> Config:
    """Return the configuration under the current folder and the options of this command."""
    if output not in FORMATS:
        raise UsageError(f"--format {output!r} is unknown, expected one of {', '.join(FORMATS)}")
    return load_config(Path.cwd(), **options)


@contextlib.contextmanager
def make_context(
    config: Config,
    suites: Iterable[Path] = (),
    *,
    describes: bool = False,
    quick: bool = False,
    interrupted: threading.Event | None = None,
) -> "Iterator[WorkerContext]":
    """Give workers a folder for what is compiled, of their own and removed at the end, so that first calls are first calls."""
    from pairbench.execute.forking import Preload
    from pairbench.execute.parent.launch import open_launchers
    from pairbench.execute.parent.pool import WorkerContext, available_memory, prepare
    from pairbench.store.user_cache import kept_bytecode, kept_compilations

    needed = Preload.DESCRIPTION if describes else Preload.MEASUREMENT
    if not describes and ("compile" in config.settings.modes or names_compiler(suites, config.root)):
        needed = Preload.COMPILER
    sweep_folders()
    with (
        open_launchers(yielding=not quick) as launchers,
        held_folder() as own,
    ):
        cache = (kept_compilations() if quick else None) or own
        bytecode = kept_bytecode()
        prepare(launchers, cache, needed, bytecode)
        yield WorkerContext(
            settings=config.settings,
            cache=cache,
            interrupted=interrupted or threading.Event(),
            memory_bytes=available_memory(config.settings.memory_fraction),
            launchers=launchers,
            bytecode=bytecode,
        )


@contextlib.contextmanager
def open_context(
    config: Config, suites: Iterable[Path] = (), *, describes: bool = False, quick: bool = False
) -> "Iterator[WorkerContext]":
    """Give workers a folder of their own, and turn Ctrl-C, SIGTERM and SIGHUP into an orderly end. See `make_context`."""
    interrupted = threading.Event()
    with (
        on_signals(lambda *_: interrupted.set()),
        make_context(config, suites, describes=describes, quick=quick, interrupted=interrupted) as context,
    ):
        yield context


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The suites that SELECT arguments call for, loaded, and the selections with paths as suites name themselves."""

    survey: "Survey"
    """The devices of this machine, and everything that the suites declare."""
    selections: tuple[Selection, ...]
    """The SELECT arguments; empty for everything."""
    implementations: tuple[str, ...] = ()
    """Names or globs of implementations, none for all; the baseline is taken with any."""
    narrowed: Narrowed | None = None
    """What has changed since a commit, and what is left out; None unless `--changed-since` was given."""

    def operators(self) -> tuple["OperatorDescription", ...]:
        """Return the operators that are selected, each with those of its cases that are."""
        if not self.selections:
            return self.survey.operators
        narrowed = (
            replace(
                operator,
                cases=tuple(
                    case for case in operator.cases if any(one.takes(operator, case) for one in self.selections)
                ),
            )
            for operator in self.survey.operators
        )
        return tuple(operator for operator in narrowed if operator.cases)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a command that measures or verifies was asked to do, and what it does that with."""

    config: Config
    """The settings, and where results belong."""
    context: "WorkerContext"
    """What the workers share."""
    chosen: Chosen
    """The suites and what is selected of them."""
    devices: tuple[Device, ...]
    """The devices to use, all at the same time."""
    progress: "PlainProgress"
    """What shows the user how far it is."""


@contextlib.contextmanager
def open_request(
    config: Config,
    select: list[str] | None,
    device: str,
    implementations: Iterable[str] = (),
    *,
    meanwhile: Iterable[str] = (),
) -> "Iterator[Request]":
    """Load the suites that are asked for and pick the devices; Ctrl-C and SIGTERM end it in order."""
    from pairbench.workflow.progress import open_progress

    asked = ask(config, select)
    refuse_syntax_errors(asked.files)
    with open_context(config, asked.files) as context, open_progress() as progress:
        for module in meanwhile:
            import_module(module)
        chosen = load(context, asked, implementations)
        devices = pick_devices(device, chosen.survey.devices)
        yield Request(config=config, context=context, chosen=chosen, devices=devices, progress=progress)


def choose(
    config: Config, context: "WorkerContext", select: list[str] | None, implementations: Iterable[str] = ()
) -> Chosen:
    """Load the suites that are asked for. See `ask`."""
    return load(context, ask(config, select), implementations)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What SELECT arguments call for, before any suite is loaded."""

    suites: tuple[tuple[str, Path], ...]
    """The name of each suite, and its file."""
    selections: tuple[Selection, ...]
    """The arguments, with paths as suites name themselves; empty for everything."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the suites."""
        return tuple(file for _, file in self.suites)


def load(context: "WorkerContext", asked: Asked, implementations: Iterable[str] = ()) -> Chosen:
    """Load suites in a worker, which also finds the devices."""
    from pairbench.execute.parent.scout import survey

    return Chosen(
        survey=survey(context, asked.suites), selections=asked.selections, implementations=tuple(implementations)
    )


def ask(config: Config, select: list[str] | None) -> Asked:
    """Find the suites that are asked for: those that are named, and all of the settings' for a name without a file."""
    selections: list[Selection] = []
    files: list[Path] = []
    for text in select or []:
        # A folder may be named without its slash.
        selection = parse_selection(f"{text}/" if Path(text).is_dir() else text)
        if selection.suite is None:
            selections.append(selection)
            continue
        inside = find_suites((_there(selection.suite, config),))
        if not inside:
            raise SuiteError(
                f"folder {selection.suite!r} holds no suite file, expected a *.py that declares an Operator"
            )
        files += inside
        selections += [replace(selection, suite=shown(file, config)) for file in inside]
    narrowed = narrow(selections)
    if not narrowed or any(selection.suite is None for selection in narrowed):
        files += default_suites(config)
    # Resolved first: one file may be named by its path and found in the settings' folder, too.
    suites = tuple((shown(file, config), file) for file in dict.fromkeys(file.resolve() for file in files))
    return Asked(suites=suites, selections=narrowed)


def _there(name: str, config: Config) -> Path:
    """Return the file or folder that a user named, under the name that it has now."""
    path = Path(name)
    new = None if path.exists() else moved_here(config).get(name)
    if new is not None:
        raise SuiteError(f"suite {name!r} is {new!r} now; name that")
    return path


def equipment_of(device: Device, devices: tuple[Device, ...]) -> Equipment:
    """Return a device with what implementations find beside it on this machine."""
    return Equipment(device=device, gpus=len(same_model(device, devices)), triton=find_spec("triton") is not None)


def store_of(config: Config) -> "StoreLocation":
    """Return where results are, with the suites that have moved since earlier runs."""
    from pairbench.store.location import StoreLocation

    return StoreLocation.of(config.store, moved=moved_here(config))


def pick_devices(wanted: str, devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Return the devices that `--device` names."""
    gpus = tuple(device for device in devices if device.kind == "cuda")
    cpu = devices[-1]
    if wanted == "auto":
        return gpus[:1] or (cpu,)
    if wanted == "all":
        return gpus or (cpu,)
    named = tuple(device for device in devices if device.selector == ("cuda:0" if wanted == "cuda" else wanted))
    if not named:
        known = ", ".join(f"{device.selector} ({device.name})" for device in devices)
        raise UsageError(f"--device {wanted!r} is not here, expected auto, all or one of {known}")
    return named


def stamp(at: "dt.datetime") -> str:
    """Return a name that nothing else has, even if it was made at the same time elsewhere, and that sorts by the millisecond.

    Runs are in the order of their names, and what measures a run's suspects again may begin in the same second.
    """
    import secrets  # with what it needs some ten milliseconds, and `pairbench --help` loads this module

    return f"{at:%Y%m%dT%H%M%S}-{at.microsecond // 1000:03d}{secrets.token_hex(3)}"
