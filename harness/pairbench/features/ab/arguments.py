"""The arguments of `pairbench ab`: the repository, two of its commits, and the same selection of both."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pairbench.config import Config
from pairbench.errors import SelectionError, SuiteError, UsageError
from pairbench.execute.parent.pool import WorkerContext
from pairbench.execute.parent.scout import Survey
from pairbench.model.environment import Device
from pairbench.model.plan import OperatorDescription, Plan
from pairbench.plan import names_implementation, parse_selection
from pairbench.suite.load import find_suites
from pairbench.suite.reached import reached_files
from pairbench.workflow.devices import plan_for
from pairbench.workflow.git import Checkout, find_commit, repository_of
from pairbench.workflow.setup import Chosen, choose, default_places, moved_names


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The repository, the two commits and the selection that `pairbench ab` was given."""

    repository: Path
    base: str
    head: str | None  # the commit that is judged; None for the working tree
    select: tuple[str, ...]
    implementations: tuple[str, ...]  # names or globs; empty for all

    def suites(self, config: Config) -> tuple[Path, ...]:
        """Return the suite files of the working tree; a commit may have others."""
        named = tuple(path for text in self.select if (path := _path_of(text)) is not None)
        return find_suites(tuple(path for path in named or _defaults(config) if path.exists()))


@dataclass(frozen=True, kw_only=True)
class LoadedSide:
    """One commit of the comparison, with its suites loaded."""

    checkout: Checkout
    context: WorkerContext
    chosen: Chosen
    nothing: UsageError | None = None  # the error, if the side has nothing of the selection


def read_arguments(config: Config, base: str, rest: list[str], implementations: tuple[str, ...]) -> Arguments:
    """Split HEAD from SELECT: the first argument after BASE is HEAD if git knows a commit of that name."""
    named = [path for text in rest if (path := _path_of(text)) is not None]
    repository = repository_of(named[0] if named else Path.cwd())
    for path in named or _defaults(config):
        if not path.is_relative_to(repository):
            raise UsageError(
                f"{path} is outside of the repository {repository}, expected suites in it: ab measures two of its commits; "
                "name one of its suites, or set `suites` in its pyproject.toml"
            )
    head = rest[0] if rest and _path_of(rest[0]) is None and find_commit(repository, rest[0]) else None
    select = tuple(rest[1:] if head else rest)
    return Arguments(repository=repository, base=base, head=head, select=select, implementations=implementations)


def load_side(config: Config, context: WorkerContext, arguments: Arguments, checkout: Checkout) -> LoadedSide:
    context = replace(context, cache=context.cache / checkout.name, stand_in=checkout.stand_in)
    root = config.root.resolve()
    inside = root.relative_to(arguments.repository) if root.is_relative_to(arguments.repository) else Path()
    folders = [_path_on_side(path, arguments, checkout) for path in _defaults(config)]
    ours = replace(
        config,
        root=checkout.root / inside,
        suites=tuple(str(folder) for folder in folders if folder and folder.exists()),
        catalogue=False,
    )
    moved = moved_names(config)
    here = {text: _text_on_side(text, arguments, checkout, root, moved) for text in arguments.select}
    whole_files = [text for text in here if _path_of(text) is not None and "::" not in text]
    if whole_files and not any(here[text] for text in whole_files):
        # Names without a file are looked for in these files, so that on this side there is nothing to look in.
        here = {text: found for text, found in here.items() if "::" in text}
    select = [text for text in here.values() if text is not None]
    nothing = Chosen(survey=Survey(devices=(), operators=(), broken=()), selections=())
    if arguments.select and not select:
        missing = SuiteError(f"there is no {' and no '.join(arguments.select)}, expected suites of the repository")
        return LoadedSide(checkout=checkout, context=context, chosen=nothing, nothing=missing)
    try:
        chosen = choose(ours, context, select, arguments.implementations)
    except (SuiteError, SelectionError) as error:
        return LoadedSide(checkout=checkout, context=context, chosen=nothing, nothing=error)
    return LoadedSide(checkout=checkout, context=context, chosen=_under_new_names(chosen, moved))


def plan_side(side: LoadedSide, device: Device) -> tuple[Plan, UsageError | None]:
    """Return a side's plan, and the error that explains an empty plan: another commit need not have all that is selected."""
    if side.nothing:
        return Plan(cases=()), side.nothing
    survey, selections = side.chosen.survey, side.chosen.selections
    broken = {suite.suite for suite in survey.broken}
    taking = tuple(
        selection
        for selection in selections
        if selection.suite in broken
        or any(selection.takes(operator, case) for operator in survey.operators for case in operator.cases)
    )
    wanted = side.chosen.implementations
    known = {item.name for operator in survey.operators for item in operator.implementations}
    having = tuple(one for one in wanted if any(names_implementation((one,), name) for name in known))
    chosen = replace(side.chosen, selections=taking or selections, implementations=having or wanted)
    try:
        return plan_for(side.context, chosen, device, edge=False), None
    except SelectionError as error:
        return Plan(cases=()), error


def reached_paths(checkout: Checkout, operators: Iterable[OperatorDescription]) -> frozenset[str]:
    """Return the paths, in a checkout, of the files that the suites of some operators depend on."""
    root = checkout.root.resolve()
    reached = [reached_files(suite, root) for suite in {Path(one.path).resolve() for one in operators}]
    files = (file for suite in reached for file in (*suite.tree, *suite.packages) if file.is_relative_to(root))
    return frozenset(file.relative_to(root).as_posix() for file in files)


def _defaults(config: Config) -> tuple[Path, ...]:
    return tuple(path.resolve() for path in default_places(config))


def _path_of(text: str) -> Path | None:
    """Return the file or folder in a SELECT argument, or None."""
    selection = parse_selection(f"{text}/" if Path(text).is_dir() else text)
    return Path(selection.suite).resolve() if selection.suite is not None else None


def _path_on_side(path: Path, arguments: Arguments, checkout: Checkout) -> Path | None:
    """Return a path of the repository in a checkout of it; None for one outside."""
    inside = path.is_relative_to(arguments.repository)
    return checkout.root / path.relative_to(arguments.repository) if inside else None


def _text_on_side(
    text: str, arguments: Arguments, checkout: Checkout, root: Path, moved: Mapping[str, str]
) -> str | None:
    path = _path_of(text)
    if path is None:
        return text
    olds = [root / old for old, new in moved.items() if root / new == path]
    sides = [_path_on_side(one, arguments, checkout) for one in (path, *olds)]
    _, separator, pattern = text.partition("::")
    return next((f"{side}{separator}{pattern}" for side in sides if side and side.exists()), None)


def _under_new_names(chosen: Chosen, moved: Mapping[str, str]) -> Chosen:
    """Return an earlier commit's suites under their present names, so that both sides have the same series."""
    survey = chosen.survey
    operators = tuple(replace(one, suite=moved.get(one.suite, one.suite)) for one in survey.operators)
    broken = tuple(replace(one, suite=moved.get(one.suite, one.suite)) for one in survey.broken)
    selections = tuple(replace(one, suite=moved.get(one.suite or "", one.suite)) for one in chosen.selections)
    return replace(chosen, survey=replace(survey, operators=operators, broken=broken), selections=selections)
