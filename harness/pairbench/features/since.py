"""`run --changed-since`: a run is narrowed to the operators that differ from a commit's, and a few untouched ones beside them.

Git says which files differ, import statements say which suites use them, and only those suites are loaded on both sides.
"""

import hashlib
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pairbench.errors import UsageError
from pairbench.execute.parent.pool import ANY, WorkerContext, Workers
from pairbench.execute.parent.scout import Survey, describe
from pairbench.model.plain import Value, grouped
from pairbench.model.plan import BASELINE, BrokenSuite, OperatorDescription
from pairbench.plan import check_implementations, check_selections, names_implementation, tiers_for
from pairbench.suite.modules import declares_operators
from pairbench.suite.reached import SOURCES, reached_files, sources_beside
from pairbench.workflow.git import git, open_checkouts, repository_of, resolve, run_git
from pairbench.workflow.requested import Narrowed, OperatorKey
from pairbench.workflow.setup import Request, catalogue_folder, default_places, moved_names, shown

_Described = tuple[OperatorDescription, ...] | BrokenSuite
# The part of the untouched operators that is measured, and the most of them. One alone may be slower for a reason of its own, which three
# hardly are at once; more would cost the time that leaving out saves.
_CONTROL_PART, _MOST_CONTROLS = 0.05, 3
_CONTROL_TIERS = ("real", "smoke", "headline")  # the best first: long enough to repeat well, and not minutes long


class TouchedSuite(NamedTuple):
    suite: str
    file: Path
    was: Path | None  # the path in the commit; None where the suite is new
    unhashed: tuple[str, ...]  # differing files that no hash covers: they may concern every operator of the suite


class FilesSince(Value):
    repository: Path
    sha: str
    there: frozenset[Path]
    differing: frozenset[Path]  # files of the commit that have changed or are gone

    @classmethod
    def of(cls, suites: tuple[tuple[str, Path], ...], ref: str, start: Path) -> "FilesSince":
        why = f"--changed-since compares them with commit {ref!r}"
        files = [file for _, file in suites]
        repository = repository_of(files[0].parent if files else start, why)
        if outside := [file for file in files if not file.is_relative_to(repository)]:
            what = f"suite {str(outside[0])!r} is outside of the repository {repository}"
            raise UsageError(f"{what}, expected all suites in one: {why}; name suites of one repository")
        sha = resolve(repository, ref)
        # Not by `git diff` alone: a file that git does not track, or ignores, is none of the commit's.
        there = _paths(repository, run_git(repository, "ls-tree", "-r", "-z", "--full-tree", "--name-only", sha))
        listed = run_git(repository, "diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", sha, "--")
        return cls(repository=repository, sha=sha, there=there, differing=_paths(repository, listed) & there)

    def touched(self, suites: tuple[tuple[str, Path], ...], olds: dict[Path, Path]) -> Iterator[TouchedSuite]:
        """Yield the suites whose files differ from those of the commit; `olds` has the earlier path of each suite that was moved."""
        for suite, file in suites:
            was = next((path for path in (file, olds.get(file)) if path in self.there), None)
            reached = reached_files(file, self.repository)
            folders = {path.parent for path in reached.tree}
            sources = {path for path in self.differing if path.suffix in SOURCES and path.parent in folders}
            sources |= sources_beside(reached.tree) - self.there
            unhashed = sorted(path for path in {*reached.packages, *sources} if self._differs(path))
            if was is None or was != file or unhashed or any(map(self._differs, reached.tree)):
                yield TouchedSuite(suite, file, was, tuple(map(self._name, unhashed)))

    def _differs(self, path: Path) -> bool:
        return path in self.differing or path not in self.there

    def _name(self, path: Path) -> str:
        return path.relative_to(self.repository).as_posix()

    def gone(self, places: tuple[Path, ...], olds: dict[Path, Path]) -> Iterator[Path]:
        for path in sorted(self.differing):
            inside = any(path.is_relative_to(place) for place in places)
            gone = path.suffix == ".py" and inside and not path.exists() and path not in olds.values()
            if gone and declares_operators(git(self.repository, "show", f"{self.sha}:{self._name(path)}") or ""):
                yield path


def _paths(repository: Path, listed: str) -> frozenset[Path]:
    return frozenset(repository / name for name in listed.split("\0") if name)


def compare_operators(
    context: WorkerContext, survey: Survey, files: FilesSince, touched: Sequence[TouchedSuite]
) -> tuple[dict[OperatorKey, str], list[OperatorKey]]:
    """Return what differs of operators of touched suites, which are loaded in the commit too, and the operators that are gone."""
    changed: dict[OperatorKey, str] = {}
    gone: list[OperatorKey] = []
    now = grouped((operator.suite, operator) for operator in survey.operators)
    loaded = [one for one in touched if one.suite in now]
    before, deep = _describe_both(context, files, [one for one in loaded if one.was is not None])
    for one in loaded:
        earlier = before.get(one.suite, ())
        if isinstance(earlier, BrokenSuite):
            why = f"its suite could not be loaded there: {earlier.reason}"
            changed.update(dict.fromkeys(map(_key, now[one.suite]), why))
            continue
        by_name = {item.name: item for item in earlier}
        for operator in deep.get(one.suite, now[one.suite]):
            if why := difference(by_name.get(operator.name), operator, one):
                changed[_key(operator)] = why
        here = {operator.name for operator in now[one.suite]}
        gone.extend((one.suite, name) for name in by_name if name not in here)
    return changed, gone


def difference(before: OperatorDescription | None, now: OperatorDescription, suite: TouchedSuite) -> str:
    """Return what differs of an operator; empty where nothing does."""
    if before is None:
        return "new"
    if before.definition_hash != now.definition_hash:
        return "its definition differs"
    old, new = ({item.name: (item.hash, item.needs) for item in side.implementations} for side in (before, now))
    parts = {
        "differs": [name for name in new if name in old and old[name] != new[name]],
        "is new": [name for name in new if name not in old],
        "is gone": [name for name in old if name not in new],
    }
    if any(parts.values()):
        return ", ".join(f"{' and '.join(names)} {what}" for what, names in parts.items() if names)
    if [(case.key, case.tier) for case in before.cases] != [(case.key, case.tier) for case in now.cases]:
        return "its cases differ"
    if suite.unhashed:
        return f"its suite uses {', '.join(suite.unhashed)}"
    return "code that it reaches differs" if before.code_digest != now.code_digest else ""


def _describe_both(
    context: WorkerContext, files: FilesSince, suites: Sequence[TouchedSuite]
) -> tuple[Mapping[str, _Described], Mapping[str, tuple[OperatorDescription, ...]]]:
    if not suites:
        return {}, {}
    with open_checkouts(files.repository, files.sha, None) as (base, *_):
        earlier = replace(context, cache=context.cache / base.name, stand_in=base.stand_in)
        places = {one.suite: base.root / one.was.relative_to(files.repository) for one in suites if one.was is not None}
        with Workers(earlier, ANY) as workers:
            before = {suite: describe(workers, suite, place, deep=True) for suite, place in places.items()}
    with Workers(context, ANY) as workers:
        now = {one.suite: describe(workers, one.suite, one.file, deep=True) for one in suites}
    return before, {suite: found for suite, found in now.items() if not isinstance(found, BrokenSuite)}


def changed_since(
    request: Request, ref: str, *, tiers: Collection[str] | None = None, places: tuple[Path, ...] | None = None
) -> Request:
    """Leave out the operators that equal those of a commit, but for a few that serve as a control."""
    # `tiers` are those that are timed, by default the devices' usual ones. A suite in `places`, by default those that SELECT or else the
    # settings name, counts as gone where it no longer exists.
    # An operator differs where its definition, an implementation, or code of the suites that it reaches does. Files are compared first:
    # a suite without differing files is not loaded in the commit.
    config, chosen = request.config, request.chosen
    if tiers is None:
        of_devices = (tiers_for(device, request.context.settings, edge=False) for device in request.devices)
        tiers = set(itertools.chain.from_iterable(of_devices))
    if places is None:
        places = () if chosen.selections else default_places(config)
    check_selections(chosen.selections, chosen.survey.operators, chosen.survey.broken)
    selected = chosen.operators()
    if not chosen.survey.broken:
        check_implementations(chosen.implementations, selected)
    paths = {operator.suite: Path(operator.path).resolve() for operator in selected}
    for suite in chosen.survey.broken:
        here, catalogue = config.root / suite.suite, catalogue_folder("suites").parent / suite.suite
        paths[suite.suite] = (here if here.exists() else catalogue).resolve()
    suites = tuple(paths.items())
    moved = {new: old for old, new in moved_names(config).items()}
    # The old path of each suite that has moved, by its present path.
    olds = {file: Path(f"{str(file).removesuffix(one)}{moved[one]}") for one, file in suites if one in moved}
    files = FilesSince.of(suites, ref, config.root)
    touched = tuple(files.touched(suites, olds))
    differences, vanished = compare_operators(request.context, chosen.survey, files, touched)
    able = [operator for operator in selected if _has_any(operator, chosen.implementations)]
    measured = [operator for operator in able if _key(operator) in differences]
    untouched = [operator for operator in able if _key(operator) not in differences]
    named = {selection.pattern for selection in chosen.selections}
    runs = any(case.tier in tiers or case.key in named for operator in measured for case in operator.cases)
    control = control_sample(untouched, tiers) if runs else ()
    control_keys = {_key(operator): operator.cases[0].key for operator in control}
    names = {suite.suite for suite in touched}
    asked = chosen.selections
    gone = [key for key in vanished if not asked or any(one.takes_name(*key, None) for one in asked)]
    kept = (*measured, *control)
    broken = tuple(suite for suite in chosen.survey.broken if suite.suite in names)
    cases = [(operator, case) for operator in kept for case in operator.cases]
    selections = (one for one in chosen.selections if one.suite in names or any(one.takes(*case) for case in cases))
    patterns = (one for one in chosen.implementations if any(_has_any(operator, (one,)) for operator in kept))
    every = {_key(operator): len(operator.cases) for operator in chosen.survey.operators}
    narrowed = Narrowed(
        ref=ref,
        sha=files.sha,
        changed={_key(operator): differences[_key(operator)] for operator in measured},
        whole=frozenset(_key(one) for one in measured if len(one.cases) == every[_key(one)]),
        control=control_keys,
        left_out=tuple(key for key in map(_key, untouched) if key not in control_keys),
        gone=(*gone, *((shown(path, config), None) for path in files.gone(places, olds))),
    )
    survey, kept_of = replace(chosen.survey, operators=kept, broken=broken), tuple(selections)
    chosen = replace(chosen, survey=survey, selections=kept_of, implementations=tuple(patterns), narrowed=narrowed)
    return replace(request, chosen=chosen)


def control_sample(untouched: Sequence[OperatorDescription], tiers: Collection[str]) -> tuple[OperatorDescription, ...]:
    """Return a few untouched operators with one case each: one in twenty, at least one and at most three."""
    # The choice is stable from run to run, so that each has a history; the operators are of different suites, if there are enough.
    able = [operator for operator in untouched if any(case.tier in tiers for case in operator.cases)]
    number = min(len(able), max(1, min(_MOST_CONTROLS, round(_CONTROL_PART * len(untouched)))))
    able.sort(key=lambda operator: hashlib.sha256("::".join(_key(operator)).encode()).digest())
    first_of_suite = {operator.suite: operator for operator in reversed(able)}
    ordered = sorted(able, key=lambda operator: first_of_suite[operator.suite] is not operator)
    rank = {tier: index for index, tier in enumerate(_CONTROL_TIERS)}
    cases = [[case for case in operator.cases if case.tier in tiers] for operator in ordered[:number]]
    best = [min(several, key=lambda case: rank.get(case.tier, len(rank))) for several in cases]
    return tuple(replace(operator, cases=(case,)) for operator, case in zip(ordered, best, strict=False))


def _has_any(operator: OperatorDescription, wanted: Collection[str]) -> bool:
    names = [item.name for item in operator.implementations if wanted or item.name != BASELINE]
    return any(names_implementation(wanted, name) for name in names)


def _key(operator: OperatorDescription) -> OperatorKey:
    return operator.suite, operator.name
