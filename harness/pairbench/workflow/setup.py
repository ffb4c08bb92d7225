"""What a verb needs before it can start: settings, suites, devices, and an orderly end on Ctrl-C, SIGTERM and SIGHUP."""

import contextlib
import secrets
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from pairbench.config import Config, load_config
from pairbench.errors import SuiteError, UsageError
from pairbench.model.environment import Device, Settings
from pairbench.model.plain import Value, whole_text
from pairbench.model.plan import OperatorDescription
from pairbench.own_folders import held_folder, sweep_folders
from pairbench.plan import Equipment, Selection, narrow, parse_selection, same_model, tiers_for
from pairbench.suite.modules import PROBLEM, find_suites, moved_suites, refuse_syntax_errors
from pairbench.suite.reached import names_compiler
from pairbench.workflow.requested import Narrowed, Requested

if TYPE_CHECKING:  # what runs workers costs every `--help` a tenth of a second
    import datetime as dt

    from pairbench.execute.parent.launch import Launchers
    from pairbench.execute.parent.pool import WorkerContext
    from pairbench.execute.parent.scout import Survey
    from pairbench.store.location import StoreLocation
    from pairbench.workflow.progress import PlainProgress

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FORMATS = ("table", "markdown", "json")


class _Asked(SystemExit):
    """Ends a command on a signal."""


@contextlib.contextmanager
def ends_on_signals() -> Iterator[None]:
    """End a command at once on Ctrl-C, SIGTERM and SIGHUP, with its cleaning up and exit code 130."""
    # Python drops exceptions in a few places, such as callbacks of imports, with a traceback. There the exception is raised again a moment later.

    def end(_number: int, _frame: FrameType | None) -> None:
        raise _Asked(130)

    def dropped(unraisable: "sys.UnraisableHookArgs") -> None:
        if isinstance(unraisable.exc_value, _Asked):
            signal.setitimer(signal.ITIMER_REAL, 0.001)
        else:
            before(unraisable)

    before: Callable[[Any], object] = sys.unraisablehook
    with on_signals(end, more=(signal.SIGALRM,)):
        sys.unraisablehook = dropped
        try:
            yield
        finally:
            sys.unraisablehook = before


@contextlib.contextmanager
def on_signals(
    handler: Callable[[int, FrameType | None], object], *, more: tuple[signal.Signals, ...] = ()
) -> Iterator[None]:
    """Handle the signals that end a process; SIGHUP stays ignored where it was, as under `nohup`."""
    if threading.current_thread() is not threading.main_thread():  # which alone may
        yield
        return
    before = {number: signal.getsignal(number) for number in (*_NUMBERS, *more)}
    kept = {signal.SIGHUP} if before[signal.SIGHUP] == signal.SIG_IGN else set()
    handled = {number: old for number, old in before.items() if number not in kept and old is not None}
    for number in handled:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in handled.items():
            signal.signal(number, old)


def default_suites(config: Config) -> tuple[Path, ...]:
    """Return the suite files that a command takes if no SELECT argument names one."""
    files = find_suites(default_places(config))
    if not files and config.suites is None:
        advice = "name a file or folder of suites, or take the pairs that come with pairbench by --catalogue"
        raise SuiteError(f"no suite here: no *.py file in {Path.cwd()}, or below, declares an Operator; {advice}")
    return files


def default_places(config: Config) -> tuple[Path, ...]:
    """Return the files and folders that are searched for suites when no SELECT argument names a file."""
    if config.catalogue:
        return (catalogue_folder("suites"),)
    if config.suites is not None:
        return tuple(config.root / place for place in config.suites)
    return (Path.cwd(),)


def moved_names(config: Config) -> dict[str, str]:
    """Return the new names of moved suites by their old names: the catalogue's, or those of the project's own suites."""
    own = config.suites is not None and not config.catalogue
    return moved_suites(default_places(config) if own else (catalogue_folder("suites"),))


def moved_here(config: Config) -> dict[str, str]:
    """Return the new names of moved suites by their old names, without old names that a file here has."""
    return {old: new for old, new in moved_names(config).items() if not (config.root / old).exists()}


def catalogue_folder(name: str) -> Path:
    """Return the folder `suites` or `dashboards` that comes with pairbench: in the wheel, or in the checkout that it runs from."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_catalogue" / name
    return installed if installed.is_dir() else package.parents[1] / name


def shown(file: Path, config: Config) -> str:
    """Return the name of a suite in records: the same wherever the checkout, pairbench or the user's current folder are."""
    path, catalogue = file.resolve(), catalogue_folder("suites")
    written = config.written and config.written.resolve()
    if written is not None and path.is_relative_to(written):
        return path.relative_to(written).as_posix()  # its folder is gone, and another one, with the next call
    if path.is_relative_to(catalogue):
        return f"suites/{path.relative_to(catalogue).as_posix()}"
    root = config.root.resolve()
    return whole_text(path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path))


def configure(output: str = "table", **options: Any) -> Config:
    if output not in FORMATS:
        raise UsageError(f"--format {output!r} is unknown, expected one of {', '.join(FORMATS)}")
    if options.get("store") is not None:
        options["store"] = str(options["store"])
    return load_config(Path.cwd(), **options)


@contextlib.contextmanager
def open_context(
    config: Config,
    suites: Iterable[Path] = (),
    *,
    describes: bool = False,
    quick: bool = False,
    signals: bool = True,
    launchers: "Launchers | None" = None,
) -> "Iterator[WorkerContext]":
    """Give a context with launchers, new ones unless some are given, and a cache folder that is removed in the end, so that first calls are first calls."""
    # `suites` are loaded later: where they name torch's compiler, all workers load it. Workers that only describe suites need less. A
    # `quick` context is for `try`: its compiled code stays for the next time, and threads of forked workers wait as an interpreter's do.
    # With `signals`, commands end in order on Ctrl-C, SIGTERM and SIGHUP.
    interrupted = threading.Event()
    with on_signals(lambda *_: interrupted.set()) if signals else contextlib.nullcontext():
        from pairbench.execute.forking import Preload
        from pairbench.execute.parent.launch import open_launchers
        from pairbench.execute.parent.pool import WorkerContext, available_memory, prepare
        from pairbench.store.user_cache import kept_bytecode, kept_compilations

        settings, needed = config.settings, Preload.DESCRIPTION if describes else Preload.MEASUREMENT
        if not describes and ("compile" in settings.modes or names_compiler(suites, config.root)):
            needed = Preload.COMPILER
        sweep_folders()
        opened = contextlib.nullcontext(launchers) if launchers else open_launchers(yielding=not quick)
        with opened as workers, held_folder() as own:
            context = WorkerContext(
                settings=settings,
                cache=(kept_compilations() if quick else None) or own,
                interrupted=interrupted,
                memory_bytes=available_memory(settings.memory_fraction),
                launchers=workers,
                bytecode=None if settings.isolated else kept_bytecode(),
            )
            prepare(context, needed)
            yield context


class Chosen(Value):
    """The loaded suites of SELECT arguments, and the selections with the suites' own names."""

    survey: "Survey"
    selections: tuple[Selection, ...]
    implementations: tuple[str, ...] = ()  # names or globs, empty for all; the baseline is taken anyway
    narrowed: Narrowed | None = None
    against: str = ""

    def operators(self) -> tuple[OperatorDescription, ...]:
        if not self.selections:
            return self.survey.operators
        taken = []
        for operator in self.survey.operators:
            cases = [case for case in operator.cases if any(one.takes(operator, case) for one in self.selections)]
            taken += [replace(operator, cases=tuple(cases))] if cases else []
        return tuple(taken)

    def left_out(self) -> list[str]:
        """Return a line for each part of a definition that was not taken, one with the counts, and one if no candidate was taken."""
        found = [one for one in self.survey.operators if one.suite.endswith((".json", ".txt"))]
        missing = Counter(why.partition(" ")[0] for one in found for why in one.left_out)
        missing["problem"] += sum(one.suite.endswith((".json", ".txt")) for one in self.survey.broken)
        taken = {"problem": len(found), "workload": sum(len(one.cases) for one in found)}
        taken["solution"] = sum(len(one.implementations) - 2 for one in found)  # all but the baseline and `compiled`
        counts = [f"{number} of {number + missing[kind]} {kind}s" for kind, number in taken.items()]
        lines = [f"{one.name}: left out: {why}" for one in found for why in one.left_out]
        lines += [f"taken: {', '.join(counts)}"] if found or missing["problem"] else []
        problems = [one for one in self.survey.operators if one.source.startswith(PROBLEM)]
        if self.against and not any(len(one.implementations) > 2 for one in problems):  # baseline and `compiled`
            why = "it has none for the selected problems" if problems else "no problem of another corpus is selected"
            lines.append(f"no candidate of {self.against!r} was taken: {why}")
        return lines


def requested_of(chosen: Chosen, device: Device, settings: Settings) -> Requested:
    survey, tiers = chosen.survey, frozenset(tiers_for(device, settings, edge=False))
    select = tuple((selection.suite, selection.pattern) for selection in chosen.selections)
    if chosen.narrowed is not None:
        select = tuple(chosen.narrowed.select(chosen.operators(), tiers, {pattern for _, pattern in select}))
    suites = frozenset({item.suite for item in survey.operators} | {item.suite for item in survey.broken})
    modes, implementations = frozenset(settings.modes), frozenset(chosen.implementations)
    return Requested(select=select, suites=suites, tiers=tiers, modes=modes, implementations=implementations)


@dataclass(frozen=True)
class Request:
    config: Config
    context: "WorkerContext"
    chosen: Chosen
    devices: tuple[Device, ...]
    progress: "PlainProgress"


@contextlib.contextmanager
def open_request(
    config: Config,
    select: list[str] | None,
    device: str,
    implementations: Iterable[str] = (),
    *,
    meanwhile: Iterable[str] = (),
    launchers: "Launchers | None" = None,
) -> "Iterator[Request]":
    """Load the selected suites and pick the devices; modules in `meanwhile` are imported while workers load torch. `launchers` as in `open_context`."""
    from pairbench.workflow.progress import open_progress

    asked = ask(config, select)
    refuse_syntax_errors(asked.files)
    with open_context(config, asked.files, launchers=launchers) as context, open_progress() as progress:
        for module in meanwhile:
            import_module(module)
        chosen = load(context, asked, implementations)
        yield Request(config, context, chosen, pick_devices(device, chosen.survey.devices), progress)


def choose(config: Config, context: "WorkerContext", select: list[str] | None, names: Iterable[str] = ()) -> Chosen:
    return load(context, ask(config, select), names)


class SelectedSuites(Value):
    suites: tuple[tuple[str, Path], ...]
    selections: tuple[Selection, ...]  # the arguments with the suites' own names; empty for everything

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(file for _, file in self.suites)


def load(context: "WorkerContext", asked: SelectedSuites, implementations: Iterable[str] = ()) -> Chosen:
    """Load suites in a worker, which also finds the devices."""
    from pairbench.execute.parent.scout import survey

    surveyed, names, against = survey(context, asked.suites), tuple(implementations), context.settings.against
    return Chosen(survey=surveyed, selections=asked.selections, implementations=names, against=against)


def ask(config: Config, select: list[str] | None) -> SelectedSuites:
    """Find the suites that SELECT arguments name; a name without a file is looked for in all of the settings' suites."""
    selections, files = list[Selection](), list[Path]()
    for text in select or []:
        # A folder may be named without its slash.
        selection = parse_selection(f"{text}/" if Path(text).is_dir() else text)
        if selection.suite is None:
            selections.append(selection)
            continue
        path = Path(selection.suite)
        if not path.exists() and (new := moved_here(config).get(selection.suite)):
            raise SuiteError(f"suite {selection.suite!r} is {new!r} now; name that")
        inside = find_suites((path,))
        if not inside:
            expected = "expected a *.py that declares an Operator"
            raise SuiteError(f"folder {selection.suite!r} holds no suite file, {expected}")
        files += inside
        selections += [replace(selection, suite=shown(file, config)) for file in inside]
    narrowed = narrow(selections)
    if not narrowed or any(selection.suite is None for selection in narrowed):
        files += default_suites(config)
    # Resolved first: one file may be named by its path and found in the settings' folder, too.
    suites = tuple((shown(file, config), file) for file in dict.fromkeys(file.resolve() for file in files))
    return SelectedSuites(suites=suites, selections=narrowed)


def stored_select(config: Config, select: Iterable[str]) -> tuple[Selection, ...]:
    """Return SELECT arguments for stored records: files and folders by the names that records have."""
    selections: list[Selection] = []
    moved = moved_here(config)
    for text in select:
        selection = parse_selection(f"{text}/" if Path(text).is_dir() else text)
        suite = selection.suite
        if suite is not None:
            path = Path(suite)
            suite = moved.get(suite) or (f"{shown(path, config)}{'/' * path.is_dir()}" if path.exists() else suite)
        selections.append(replace(selection, suite=suite))
    return narrow(selections)


def equipment_of(device: Device, devices: tuple[Device, ...]) -> Equipment:
    return Equipment(device=device, gpus=len(same_model(device, devices)), triton=find_spec("triton") is not None)


def store_of(config: Config) -> "StoreLocation":
    from pairbench.store.location import StoreLocation

    return StoreLocation.of(config.store, moved=moved_here(config))


def pick_devices(wanted: str, devices: tuple[Device, ...]) -> tuple[Device, ...]:
    gpus = tuple(device for device in devices if device.kind == "cuda")
    if wanted in ("auto", "all"):
        return (gpus[:1] if wanted == "auto" else gpus) or devices[-1:]
    named = tuple(device for device in devices if device.selector == ("cuda:0" if wanted == "cuda" else wanted))
    if not named:
        known = ", ".join(f"{device.selector} ({device.name})" for device in devices)
        raise UsageError(f"--device {wanted!r} is not here, expected auto, all or one of {known}")
    return named


def stamp(at: "dt.datetime") -> str:
    """Return a unique name that sorts by the millisecond."""
    # Runs are in the order of their names, and a run that confirms another may begin in the same second.
    return f"{at:%Y%m%dT%H%M%S}-{at.microsecond // 1000:03d}{secrets.token_hex(3)}"
