"""What `pairbench ab` takes from its arguments: which repository, which commits, and the same selection of both."""

from dataclasses import dataclass, replace
from pathlib import Path

from pairbench.config import Config
from pairbench.errors import SelectionError, SuiteError, UsageError
from pairbench.execute.parent.pool import WorkerContext
from pairbench.execute.parent.scout import Survey
from pairbench.model.environment import Device
from pairbench.model.plan import Plan
from pairbench.plan import names_implementation, parse_selection
from pairbench.workflow.git.worktrees import Checkout, find_commit, repository_of
from pairbench.workflow.run.devices import plan_for
from pairbench.workflow.setup import Chosen, choose, default_places


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments, told apart."""

    repository: Path
    base: str
    head: str | None
    """None for the working tree."""
    select: tuple[str, ...]
    implementations: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One side, its suites loaded."""

    checkout: Checkout
    context: WorkerContext
    chosen: Chosen
    nothing: UsageError | None = None
    """Why nothing of what was asked for is on this side, if so."""


def read_arguments(config: Config, base: str, rest: list[str], implementations: tuple[str, ...]) -> Request:
    """Tell HEAD from SELECT: the first argument after BASE is HEAD if git knows a commit of that name.

    Raises:
        UsageError: the suites are in no git checkout, or not all in one.
    """
    named = [place for text in rest if (place := _place(text)) is not None]
    repository = repository_of(named[0] if named else Path.cwd())
    for place in named or _defaults(config):
        if not place.is_relative_to(repository):
            raise UsageError(
                f"{place} is outside of the repository {repository}, expected suites in it: ab measures two of its commits; "
                "name one of its suites, or set `suites` in its pyproject.toml"
            )
    head = rest[0] if rest and _place(rest[0]) is None and find_commit(repository, rest[0]) else None
    select = tuple(rest[1:] if head else rest)
    return Request(repository=repository, base=base, head=head, select=select, implementations=implementations)


def load_part(config: Config, context: WorkerContext, request: Request, checkout: Checkout) -> Part:
    """Load what is selected of one side's suites."""
    context = replace(context, cache=context.cache / checkout.name, stand_in=checkout.stand_in)
    root = config.root.resolve()
    inside = root.relative_to(request.repository) if root.is_relative_to(request.repository) else Path()
    places = [_moved(place, request, checkout) for place in _defaults(config) if _is_inside(place, request)]
    ours = replace(config, root=checkout.root / inside, suites=tuple(str(place) for place in places if place.exists()))
    select = [moved for text in request.select if (moved := _moved_text(text, request, checkout)) is not None]
    if request.select and not select:
        missing = SuiteError(f"there is no {' and no '.join(request.select)}, expected suites of the repository")
        return Part(checkout=checkout, context=context, chosen=_empty(), nothing=missing)
    try:
        chosen = choose(ours, context, select, request.implementations)
    except (SuiteError, SelectionError) as error:
        return Part(checkout=checkout, context=context, chosen=_empty(), nothing=error)
    return Part(checkout=checkout, context=context, chosen=chosen)


def plan_part(part: Part, device: Device) -> tuple[Plan, UsageError | None]:
    """Return what a side is to do, and why that is nothing, if so: another commit need not have all that is selected."""
    if part.nothing:
        return Plan(cases=()), part.nothing
    survey, selections = part.chosen.survey, part.chosen.selections
    broken = {suite.suite for suite in survey.broken}
    taking = tuple(
        selection
        for selection in selections
        if selection.suite in broken
        or any(selection.takes(operator, case) for operator in survey.operators for case in operator.cases)
    )
    wanted = part.chosen.implementations
    known = {item.name for operator in survey.operators for item in operator.implementations}
    having = tuple(one for one in wanted if any(names_implementation((one,), name) for name in known))
    chosen = replace(part.chosen, selections=taking or selections, implementations=having or wanted)
    try:
        return plan_for(part.context, chosen, device, edge=False), None
    except SelectionError as error:
        return Plan(cases=()), error


def _defaults(config: Config) -> tuple[Path, ...]:
    return tuple(place.resolve() for place in default_places(config))


def _place(text: str) -> Path | None:
    """Return the file or folder that a SELECT argument names, or None."""
    selection = parse_selection(f"{text}/" if Path(text).is_dir() else text)
    return Path(selection.suite).resolve() if selection.suite is not None else None


def _is_inside(place: Path, request: Request) -> bool:
    return place.is_relative_to(request.repository)


def _moved(place: Path, request: Request, checkout: Checkout) -> Path:
    return checkout.root / place.relative_to(request.repository)


def _moved_text(text: str, request: Request, checkout: Checkout) -> str | None:
    """Return a SELECT argument as it is on one side; None where that side has no such file."""
    place = _place(text)
    if place is None:
        return text
    moved = _moved(place, request, checkout)
    if not moved.exists():
        return None
    _, separator, pattern = text.partition("::")
    return f"{moved}{separator}{pattern}"


def _empty() -> Chosen:
    return Chosen(survey=Survey(devices=(), operators=(), broken=()), selections=())
