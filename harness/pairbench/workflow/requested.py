"""What a run was asked to measure: tells a case that has vanished from one that was not selected."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from pairbench.model.environment import Device, Environment
from pairbench.model.plan import PlannedCase
from pairbench.model.record import Record, Series
from pairbench.model.settings import Settings
from pairbench.plan import Selection, names_implementation, tiers_for
from pairbench.workflow.setup import Chosen

SCOPE_COLUMNS = ("device_name", "suite", "mode", "tier", "environment")

_KEY = "asked"
"""The key in the stored environment; files of every release have it."""


@dataclass(frozen=True, kw_only=True)
class Requested:
    """The selection of one run on one device; stored with what its environment observed, which is no part of its hash."""

    select: tuple[tuple[str | None, str | None], ...]
    """The suite and the pattern of each selection; empty for everything."""
    suites: frozenset[str]
    """The suite files that were loaded, or should have been."""
    tiers: frozenset[str]
    """The tiers of the cases."""
    modes: frozenset[str]
    """The modes that implementations are called in."""
    implementations: frozenset[str] = frozenset()
    """Names or globs of implementations, none for all. The baselines that are taken beside them are not named."""

    def covers(self, series: Series, tier: str | None) -> bool:
        """Return whether a series would have been measured, did it still exist."""
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

    def for_cases(self, cases: Iterable[PlannedCase]) -> "Requested":
        """Return this request for no more than some cases."""
        return replace(self, select=tuple((planned.operator.suite, planned.case.key) for planned in cases))

    def put_in(self, environment: Environment) -> Environment:
        """Return the environment with this value stored in it."""
        plain = {
            "select": [list(pair) for pair in self.select],
            "suites": sorted(self.suites),
            "tiers": sorted(self.tiers),
            "modes": sorted(self.modes),
            "implementations": sorted(self.implementations),
        }
        observed = {**environment.rest.get("observed", {}), _KEY: plain}
        return replace(environment, rest={**environment.rest, "observed": observed})

    @classmethod
    def read(cls, environment: str | None, moved: Mapping[str, str]) -> "Requested | None":
        """Return what a record's environment says of it; None for runs that did not store it."""
        try:
            stored = json.loads(environment or "{}").get("observed", {}).get(_KEY)
            return stored and cls(
                select=tuple((moved.get(suite, suite), pattern) for suite, pattern in stored["select"]),
                suites=frozenset(moved.get(suite, suite) for suite in stored["suites"]),
                tiers=frozenset(stored["tiers"]),
                modes=frozenset(stored["modes"]),
                implementations=frozenset(stored.get("implementations", ())),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def requested_of(chosen: Chosen, device: Device, settings: Settings) -> Requested:
    """Return what a run is asked to measure on a device."""
    survey, tiers = chosen.survey, frozenset(tiers_for(device, settings, edge=False))
    select = tuple((selection.suite, selection.pattern) for selection in chosen.selections)
    if chosen.narrowed is not None:
        select = tuple(chosen.narrowed.select(chosen.operators(), tiers, {pattern for _, pattern in select}))
    return Requested(
        select=select,
        suites=frozenset({item.suite for item in survey.operators} | {item.suite for item in survey.broken}),
        tiers=tiers,
        modes=frozenset(settings.modes),
        implementations=frozenset(chosen.implementations),
    )


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What some runs together were asked to measure, by device model."""

    requested: Mapping[str, tuple[Requested, ...]] = field(default_factory=dict)
    """What each run was asked to measure, by device model."""
    held: frozenset[tuple[str, str, str, str | None]] = frozenset()
    """The device, suite, mode and tier of everything in runs that do not say what they were asked to measure."""
    broken: frozenset[tuple[str, str]] = frozenset()
    """The device and the suite wherever a suite could not be loaded."""

    def covers(self, series: Series, tier: str | None) -> bool:
        """Return whether one of the runs would hold the series, did it still exist."""
        return (
            (series.device_name, series.suite, series.mode, tier) in self.held
            or (series.device_name, series.suite) in self.broken
            or any(one.covers(series, tier) for one in self.requested.get(series.device_name, ()))
        )

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], moved: Mapping[str, str]) -> "Scope":
        """Return the scope of rows with the columns `SCOPE_COLUMNS`."""
        requested: dict[str, dict[Requested, None]] = {}
        held, broken = set(), set()
        known: dict[str | None, Requested | None] = {}
        for row in rows:
            text = row["environment"]
            if text not in known:
                known[text] = Requested.read(text, moved)
            if row["mode"] is None:
                broken.add((row["device_name"], row["suite"]))
            if (found := known[text]) is not None:
                requested.setdefault(row["device_name"], {})[found] = None
            elif row["mode"] is not None:
                held.add((row["device_name"], row["suite"], row["mode"], row["tier"]))
        return cls(
            requested={device: tuple(several) for device, several in requested.items()},
            held=frozenset(held),
            broken=frozenset(broken),
        )

    @classmethod
    def of_records(cls, records: Iterable[Record], moved: Mapping[str, str]) -> "Scope":
        """Return the scope of the runs that these are all records of."""
        # A run that measured suspects again was asked to measure no more than them.
        return cls.of(
            ({name: getattr(record, name) for name in SCOPE_COLUMNS} for record in records if not record.confirms),
            moved,
        )


def _folder(suite: str) -> str:
    return str(PurePosixPath(suite).parent)
