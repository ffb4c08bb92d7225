"""The request of a run: what was selected, so that a case that has vanished differs from one that was not selected.

With `--changed-since` it is also what differs from a commit and what is left out.
"""

import functools
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import PurePosixPath
from typing import Any

from pairbench.model.environment import Environment
from pairbench.model.plain import Value
from pairbench.model.plan import OperatorDescription
from pairbench.model.record import Record, Series
from pairbench.plan import Selection, names_implementation

_NAMED = 40  # The most names of a line; JSON has all

OperatorKey = tuple[str, str]
SCOPE_COLUMNS = ("device_name", "suite", "mode", "tier", "environment")
_KEY = "asked"  # The key in the stored environment; files of every release have it


class Narrowed(Value):
    """The operators that differ from a commit's, the untouched ones measured as a control, and those left out."""

    ref: str
    sha: str
    changed: dict[OperatorKey, str]  # the difference of each changed operator
    whole: frozenset[OperatorKey]  # operators with all of their cases
    control: dict[OperatorKey, str]  # the measured case of each untouched operator
    left_out: tuple[OperatorKey, ...]
    gone: tuple[tuple[str, str | None], ...] = ()  # suite and name of operators, no name for a whole suite

    def select(
        self, operators: Iterable[OperatorDescription], tiers: Collection[str], named: Collection[str | None]
    ) -> Iterator[tuple[str, str | None]]:
        """Yield suite and pattern of everything that is asked for, with what is gone: that is missing, and not left out."""
        # `tiers` are the measured tiers, and `named` the cases measured whatever their tier.
        for operator in operators:
            if (operator.suite, operator.name) in self.whole:
                yield operator.suite, operator.name
            else:
                keys = (case.key for case in operator.cases if case.tier in tiers or case.key in named)
                yield from ((operator.suite, key) for key in keys)
        yield from self.gone

    def lines(self) -> list[str]:
        since = f"{self.ref} ({self.sha[:7]})"
        number, names = len(self.left_out), [name for _, name in self.left_out]
        gone = [name if name is not None else suite for suite, name in self.gone]
        changed = [f"{name} ({reason})" for (_, name), reason in self.changed.items()]
        lines = [f"Changed since {since}: {_listed(changed)}" if changed else f"No operator differs from {since}"]
        lines += [f"Gone since {since}: {_listed(gone)}"] if gone else []
        if changed and self.control:
            controls = _listed([*self.control.values()])
            lines.append(f"Untouched, as a control that tells whether the machine moved: {controls}")
        if number:
            lines.append(f"{number} operator{'s' * (number > 1)} untouched and left out: {_listed(names)}")
        return lines

    def plain(self) -> dict[str, Any]:
        changed = [{"suite": suite, "operator": name, "reason": why} for (suite, name), why in self.changed.items()]
        control = [{"suite": suite, "operator": name, "case": case} for (suite, name), case in self.control.items()]
        both = (self.left_out, self.gone)
        left_out, gone = ([{"suite": suite, "operator": name} for suite, name in keys] for keys in both)
        known = {"changed": changed, "control": control, "left_out": left_out, "gone": gone}
        return {"ref": self.ref, "commit": self.sha, **known}


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - _NAMED} more (--format json names all)" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


class Requested(Value):
    """The selection of one run on one device. It is stored in the observed part of its environment, which has no hash."""

    select: tuple[tuple[str | None, str | None], ...]  # suite and pattern of each selection; empty for everything
    suites: frozenset[str]  # the suite files that were loaded, or should have been
    tiers: frozenset[str]
    modes: frozenset[str]
    implementations: frozenset[str] = frozenset()  # names or globs, empty for all; baselines are taken anyway

    def covers(self, series: Series, tier: str | None) -> bool:
        if series.mode not in self.modes or not names_implementation(self.implementations, series.implementation):
            return False
        named = any(pattern == series.case and suite in (None, series.suite) for suite, pattern in self.select)
        if not named and tier not in self.tiers:
            return False
        if not self.select:
            # A suite that is gone was in a folder that others are still in.
            return _folder(series.suite) in {_folder(suite) for suite in self.suites}
        chosen = (Selection(text="", suite=suite, pattern=pattern) for suite, pattern in self.select)
        return any(selection.takes_name(series.suite, series.operator, series.case) for selection in chosen)

    def put_in(self, environment: Environment) -> Environment:
        plain: dict[str, Any] = {"select": [list(pair) for pair in self.select]}
        plain |= {name: sorted(getattr(self, name)) for name in ("suites", "tiers", "modes", "implementations")}
        return environment.observing(**{_KEY: plain})

    @classmethod
    def read(cls, environment: str | None, moved: Mapping[str, str]) -> "Requested | None":
        """Return the request in a record's environment; None for runs that did not store it."""
        try:
            if not (stored := json.loads(environment or "{}").get("observed", {}).get(_KEY)):
                return None
            select = tuple((moved.get(suite, suite), pattern) for suite, pattern in stored["select"])
            suites = frozenset(moved.get(suite, suite) for suite in stored["suites"])
            tiers, modes = frozenset(stored["tiers"]), frozenset(stored["modes"])
            names = frozenset(stored.get("implementations", ()))
            return cls(select=select, suites=suites, tiers=tiers, modes=modes, implementations=names)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


class Scope(Value):
    """The requests of several runs, by device model."""

    requested: Mapping[str, tuple[Requested, ...]] = field(default_factory=dict)
    # Device, suite, mode and tier of everything in runs without a stored request.
    held: frozenset[tuple[str, str, str, str | None]] = frozenset()
    broken: frozenset[tuple[str, str]] = frozenset()  # device and suite of suites that could not be loaded

    def covers(self, series: Series, tier: str | None) -> bool:
        return (
            (series.device_name, series.suite, series.mode, tier) in self.held
            or (series.device_name, series.suite) in self.broken
            or any(one.covers(series, tier) for one in self.requested.get(series.device_name, ()))
        )

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], moved: Mapping[str, str]) -> "Scope":
        """Return the scope of rows with `SCOPE_COLUMNS`, whose suites have their new names; requests are stored with the old ones."""
        requested: dict[str, dict[Requested, None]] = defaultdict(dict)
        held, broken = set(), set()
        read = functools.cache(lambda text: Requested.read(text, moved))
        for row in rows:
            if row["mode"] is None:
                broken.add((row["device_name"], row["suite"]))
            if (of_run := read(row["environment"])) is not None:
                requested[row["device_name"]][of_run] = None
            elif row["mode"] is not None:
                held.add((row["device_name"], row["suite"], row["mode"], row["tier"]))
        by_device = {device: tuple(of_device) for device, of_device in requested.items()}
        return cls(requested=by_device, held=frozenset(held), broken=frozenset(broken))

    @classmethod
    def of_records(cls, records: Iterable[Record], moved: Mapping[str, str]) -> "Scope":
        # A run that measured suspects again was asked to measure no more than them.
        own = (record for record in records if not record.confirms)
        return cls.of(({name: getattr(record, name) for name in SCOPE_COLUMNS} for record in own), moved)


def _folder(suite: str) -> str:
    return str(PurePosixPath(suite).parent)
