"""Operators of the suites that a commit's files differ for, described on both sides and compared one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pairbench.execute.parent.pool import WorkerContext
from pairbench.execute.parent.scout import Scout, Survey
from pairbench.model.plan import BrokenSuite, OperatorDescription
from pairbench.workflow.git.worktrees import open_checkouts
from pairbench.workflow.since.files import FilesSince, TouchedSuite
from pairbench.workflow.since.narrowed import OperatorKey

_Described = tuple[OperatorDescription, ...] | BrokenSuite


@dataclass(frozen=True, kw_only=True)
class OperatorsSince:
    """How operators differ from those of a commit."""

    changed: dict[OperatorKey, str] = field(default_factory=dict)
    """What differs, for each operator that is there now."""
    gone: list[OperatorKey] = field(default_factory=list)
    """The operators that are not there any more, of suites that are."""


def compare_operators(
    context: WorkerContext, survey: Survey, files: FilesSince, touched: Sequence[TouchedSuite]
) -> OperatorsSince:
    """Compare the operators of some suites with those of a commit, whose suites are loaded in a worker.

    Args:
        context: What workers share.
        survey: The suites as they are.
        files: The commit.
        touched: The suites to look at; all others are the same on both sides.
    """
    found = OperatorsSince()
    now: dict[str, list[OperatorDescription]] = {}
    for operator in survey.operators:
        now.setdefault(operator.suite, []).append(operator)
    loaded = [one for one in touched if one.suite in now]
    before, deep = _describe_both(context, files, [one for one in loaded if one.was is not None])
    for one in loaded:
        earlier = before.get(one.suite, ())
        if isinstance(earlier, BrokenSuite):
            found.changed.update(
                {_key(item): f"its suite could not be loaded there: {earlier.reason}" for item in now[one.suite]}
            )
            continue
        by_name = {item.name: item for item in earlier}
        for operator in deep.get(one.suite, now[one.suite]):
            if why := difference(by_name.get(operator.name), operator, one):
                found.changed[_key(operator)] = why
        here = {operator.name for operator in now[one.suite]}
        found.gone.extend((one.suite, name) for name in by_name if name not in here)
    return found


def difference(before: OperatorDescription | None, now: OperatorDescription, suite: TouchedSuite) -> str:
    """Return what differs of an operator; "" where nothing does.

    Args:
        before: As it was; None where it is new.
        now: As it is.
        suite: Its suite.
    """
    if before is None:
        return "new"
    if before.definition_hash != now.definition_hash:
        return "its definition differs"
    if named := _implementations(before, now):
        return named
    if [(case.key, case.tier) for case in before.cases] != [(case.key, case.tier) for case in now.cases]:
        return "its cases differ"
    if suite.unhashed:
        return f"its suite uses {', '.join(suite.unhashed)}"
    return "code that it reaches differs" if before.code_digest != now.code_digest else ""


def _implementations(before: OperatorDescription, now: OperatorDescription) -> str:
    old = {item.name: (item.hash, item.needs) for item in before.implementations}
    new = {item.name: (item.hash, item.needs) for item in now.implementations}
    parts = {
        "differ": [name for name in new if name in old and old[name] != new[name]],
        "new": [name for name in new if name not in old],
        "gone": [name for name in old if name not in new],
    }
    words = {"differ": "{} differs", "new": "{} is new", "gone": "{} is gone"}
    return ", ".join(words[what].format(" and ".join(names)) for what, names in parts.items() if names)


def _describe_both(
    context: WorkerContext, files: FilesSince, suites: Sequence[TouchedSuite]
) -> tuple[Mapping[str, _Described], Mapping[str, tuple[OperatorDescription, ...]]]:
    """Return the suites' operators in the commit and as they are, each with a digest of its code."""
    if not suites:
        return {}, {}
    before: dict[str, _Described] = {}
    now: dict[str, tuple[OperatorDescription, ...]] = {}
    with open_checkouts(files.repository, files.sha, None) as (base, *_):
        earlier = replace(context, cache=context.cache / base.name, stand_in=base.stand_in)
        with Scout(earlier) as scout:
            for one in suites:
                assert one.was is not None
                place = base.root / one.was.relative_to(files.repository)
                before[one.suite] = scout.describe(one.suite, place, deep=True)
    with Scout(context) as scout:
        for one in suites:
            described = scout.describe(one.suite, one.file, deep=True)
            if not isinstance(described, BrokenSuite):
                now[one.suite] = described
    return before, now


def _key(operator: OperatorDescription) -> OperatorKey:
    return operator.suite, operator.name
