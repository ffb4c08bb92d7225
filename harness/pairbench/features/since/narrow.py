"""Narrows what a run was asked for to the operators that differ from a commit's, and a few untouched ones beside them.

Operators of the suites that a commit's files differ for, described on both sides and compared one by one.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pairbench.config import Config
from pairbench.execute.parent.pool import WorkerContext
from pairbench.execute.parent.scout import Scout, Survey
from pairbench.features.since.files import FilesSince, TouchedSuite
from pairbench.model.plan import BASELINE, BrokenSuite, OperatorDescription
from pairbench.plan import check_implementations, check_selections, names_implementation, tiers_for
from pairbench.workflow.git.worktrees import open_checkouts
from pairbench.workflow.narrowed import Narrowed, OperatorKey
from pairbench.workflow.setup import Chosen, Request, catalogue_folder, default_places, moved_names, shown

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
    """Compare the operators of some suites with those of a commit, whose suites are loaded in a worker."""
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
                {
                    _operator_key(item): f"its suite could not be loaded there: {earlier.reason}"
                    for item in now[one.suite]
                }
            )
            continue
        by_name = {item.name: item for item in earlier}
        for operator in deep.get(one.suite, now[one.suite]):
            if why := difference(by_name.get(operator.name), operator, one):
                found.changed[_operator_key(operator)] = why
        here = {operator.name for operator in now[one.suite]}
        found.gone.extend((one.suite, name) for name in by_name if name not in here)
    return found


def difference(before: OperatorDescription | None, now: OperatorDescription, suite: TouchedSuite) -> str:
    """Return what differs of an operator; "" where nothing does."""
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


def _operator_key(operator: OperatorDescription) -> OperatorKey:
    return operator.suite, operator.name


_CONTROL_PART, _MOST_CONTROLS = 0.05, 3
"""Which part of the untouched operators is measured, and how many at most. One alone may be slower for a reason of its own, which three
hardly are at once; more would cost the time that leaving out saves."""
_CONTROL_TIERS = ("real", "smoke", "headline")
"""The tiers of cases that a control is taken from, the best first: long enough to repeat well, and no minutes long."""


def changed_since(request: Request, ref: str) -> Request:
    """Return a request for what differs from a commit. See `narrow_to_changed`."""
    settings = request.context.settings
    tiers = {tier for device in request.devices for tier in tiers_for(device, settings, edge=False)}
    places = () if request.chosen.selections else default_places(request.config)
    chosen = narrow_to_changed(request.config, request.context, request.chosen, tiers, ref, places=places)
    return replace(request, chosen=chosen)


def narrow_to_changed(
    config: Config,
    context: WorkerContext,
    chosen: Chosen,
    tiers: Collection[str],
    ref: str,
    *,
    places: tuple[Path, ...],
) -> Chosen:
    """Leave out the operators that are the same as in a commit, but for a few that serve as a control.

    An operator differs where its definition or an implementation does, or code of the suites that it reaches. Files are compared
    first, so that suites of which no file differs are the same without a look at the commit's; the others are loaded as
    they were, in a worker.
    """
    check_selections(chosen.selections, chosen.survey.operators, chosen.survey.broken)
    selected = chosen.operators()
    if not chosen.survey.broken:
        check_implementations(chosen.implementations, selected)
    suites = _suites(config, chosen, selected)
    olds = _old_places(config, suites)
    files = FilesSince.of(suites, ref, config.root)
    touched = tuple(files.touched(suites, olds))
    found = compare_operators(context, chosen.survey, files, touched)
    able = [operator for operator in selected if _has_any(operator, chosen.implementations)]
    changed = {_key(operator): found.changed[_key(operator)] for operator in able if _key(operator) in found.changed}
    untouched = [operator for operator in able if _key(operator) not in changed]
    named = {selection.pattern for selection in chosen.selections}
    measured = [operator for operator in able if _key(operator) in changed]
    runs = any(case.tier in tiers or case.key in named for operator in measured for case in operator.cases)
    control = control_sample(untouched, tiers) if runs else ()
    names = {suite.suite for suite in touched}
    gone = [(suite, name) for suite, name in found.gone if _is_asked_for(chosen, suite, name)]
    kept = (*measured, *control)
    every = {_key(operator): len(operator.cases) for operator in chosen.survey.operators}
    return replace(
        chosen,
        survey=replace(
            chosen.survey,
            operators=kept,
            broken=tuple(suite for suite in chosen.survey.broken if suite.suite in names),
        ),
        selections=tuple(
            one
            for one in chosen.selections
            if one.suite in names or any(one.takes(operator, case) for operator in kept for case in operator.cases)
        ),
        implementations=tuple(
            pattern for pattern in chosen.implementations if any(_has_any(operator, (pattern,)) for operator in kept)
        ),
        narrowed=Narrowed(
            ref=ref,
            sha=files.sha,
            changed=changed,
            whole=frozenset(_key(one) for one in measured if len(one.cases) == every[_key(one)]),
            control={_key(operator): operator.cases[0].key for operator in control},
            left_out=tuple(key for one in untouched if (key := _key(one)) not in {_key(other) for other in control}),
            gone=(*gone, *((shown(path, config), None) for path in files.gone(places, olds))),
        ),
    )


def control_sample(untouched: Sequence[OperatorDescription], tiers: Collection[str]) -> tuple[OperatorDescription, ...]:
    """Return a few untouched operators with one case each: one in twenty, at least one and at most three.

    They are the same from run to run as long as they stay untouched, so that each has a history; of different suites, if
    there are enough.
    """
    able = [operator for operator in untouched if any(case.tier in tiers for case in operator.cases)]
    number = min(len(able), max(1, min(_MOST_CONTROLS, round(_CONTROL_PART * len(untouched)))))
    able.sort(key=lambda operator: hashlib.sha256("::".join(_key(operator)).encode()).digest())
    first_of_suite = {operator.suite: operator for operator in reversed(able)}
    ordered = sorted(able, key=lambda operator: first_of_suite[operator.suite] is not operator)
    return tuple(_with_one_case(operator, tiers) for operator in ordered[:number])


def _with_one_case(operator: OperatorDescription, tiers: Collection[str]) -> OperatorDescription:
    by_tier = {case.tier: case for case in reversed(operator.cases) if case.tier in tiers}
    best = next((by_tier[tier] for tier in _CONTROL_TIERS if tier in by_tier), None)
    return replace(operator, cases=(best or next(iter(by_tier.values())),))


def _suites(config: Config, chosen: Chosen, selected: Sequence[OperatorDescription]) -> tuple[tuple[str, Path], ...]:
    """Return name and file of each suite that something is asked for of."""
    files = {operator.suite: Path(operator.path).resolve() for operator in selected}
    for suite in chosen.survey.broken:
        here, catalogue = config.root / suite.suite, catalogue_folder("suites").parent / suite.suite
        files[suite.suite] = (here if here.exists() else catalogue).resolve()
    return tuple(files.items())


def _old_places(config: Config, suites: Sequence[tuple[str, Path]]) -> dict[Path, Path]:
    """Return where suites were that have moved, by where they are."""
    olds = {new: old for old, new in moved_names(config).items()}
    return {file: Path(f"{str(file).removesuffix(suite)}{olds[suite]}") for suite, file in suites if suite in olds}


def _has_any(operator: OperatorDescription, wanted: Collection[str]) -> bool:
    return any(
        names_implementation(wanted, item.name) for item in operator.implementations if wanted or item.name != BASELINE
    )


def _is_asked_for(chosen: Chosen, suite: str, name: str) -> bool:
    return not chosen.selections or any(one.takes_name(suite, name, None) for one in chosen.selections)


def _key(operator: OperatorDescription) -> OperatorKey:
    return operator.suite, operator.name
