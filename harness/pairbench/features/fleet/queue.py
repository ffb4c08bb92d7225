"""Which host measures which unit: a series stays on its GPU, and a host has one unit at a time.

Which units a store has: whole runs of theirs, in an environment that the fleet has.

What a fleet has done, host by host, and what it has not.
"""

import datetime as dt
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pairbench.model.outcome import NOT_REACHED, OUT_OF_BUDGET
from pairbench.model.plain import plain
from pairbench.model.unit import Host, Offer, Unit, UnitEnd, UnitResult, unit_of
from pairbench.report.render import render_rows, to_json

COLUMNS = ("run_id", "environment_hash", "reason")
"""The columns of a record that are needed here."""


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run that was made for a unit and has ended, with all that it was to measure."""

    run_id: str
    environments: frozenset[str]


def whole_runs(rows: Iterable[Mapping[str, str | None]]) -> dict[str, list[StoredRun]]:
    """Return by the unit's key the runs that are whole, oldest first."""
    environments: dict[str, set[str]] = {}
    cut_short = set()
    for row in rows:
        run_id = row["run_id"] or ""
        environments.setdefault(run_id, set()).add(row["environment_hash"] or "")
        if row["reason"] in (NOT_REACHED, OUT_OF_BUDGET):
            cut_short.add(run_id)
    found: dict[str, list[StoredRun]] = {}
    for run_id in sorted(environments.keys() - cut_short):
        if key := unit_of(run_id):
            found.setdefault(key, []).append(StoredRun(run_id=run_id, environments=frozenset(environments[run_id])))
    return found


def stored_units(
    units: Collection[Unit], runs: Mapping[str, list[StoredRun]], hosts: Iterable[Host]
) -> dict[Unit, str]:
    """Return the units that need not be measured again, with the run that has each.

    A unit without a commit is of files that may have changed since, so only its host can tell.
    """
    offers = [offer for host in hosts for offer in host.offers]
    found = {}
    for unit in units:
        here = {offer.environment_hash for offer in offers if offer.serves(unit.device)}
        for run in runs.get(unit.key, ()) if unit.commit else ():
            if run.environments & here:
                found[unit] = run.run_id
    return found


_LISTED = 20


def host_rows(hosts: Iterable[Host], flying: Mapping[str, Unit], results: Iterable[UnitResult]) -> list[dict[str, Any]]:
    """Return a row for each host that is there or has done something."""
    done: dict[str, list[UnitResult]] = {}
    for result in results:
        if result.host:
            done.setdefault(result.host, []).append(result)
    here: dict[str, list[Host]] = {}
    for host in hosts:
        here.setdefault(host.name, []).append(host)
    rows = []
    for name in sorted({*here, *done}):
        ends = Counter(result.end for result in done.get(name, ()))
        now = [flying[host.address].name for host in here.get(name, ()) if host.address in flying]
        held_up = next((host.held_up for host in here.get(name, ()) if host.held_up), None)
        rows.append(
            {
                "host": name,
                "workers": len(here.get(name, ())),
                "devices": ", ".join(sorted({offer.model for host in here.get(name, ()) for offer in host.offers})),
                "done": ends[UnitEnd.DONE] + ends[UnitEnd.STORED],
                "other": sum(ends.values()) - ends[UnitEnd.DONE] - ends[UnitEnd.STORED],
                "now": held_up or "; ".join(now) or ("idle" if name in here else "gone"),
            }
        )
    return rows


def render_fleet(hosts: Sequence[Host], results: Sequence[UnitResult], output: str, store: str, seconds: float) -> str:
    """Return what became of all units, in one of the formats."""
    ends = Counter(result.end for result in results)
    if output == "json":
        units = [{**plain(result), "key": result.unit.key} for result in results]
        return to_json(
            {"store": store, "seconds": seconds, "summary": dict(ends), "hosts": plain(tuple(hosts)), "units": units}
        )
    parts = [
        render_rows(
            "hosts", [{k: v for k, v in row.items() if k != "now"} for row in host_rows(hosts, {}, results)], output
        )
    ]
    rest = [result for result in results if result.end not in (UnitEnd.DONE, UnitEnd.STORED)]
    if rest:
        rows = [
            {"unit": result.unit.name, "end": result.end.value, "host": result.host, "reason": result.reason}
            for result in rest
        ]
        parts.append(render_rows("not measured", rows[:_LISTED], output))
        if len(rest) > _LISTED:
            parts.append(f"and {len(rest) - _LISTED} more\n")
    bad = Counter[str]()
    for result in results:
        bad.update(
            {
                status: count
                for status, count in (result.statuses or {}).items()
                if status in ("mismatched", "failed", "timeout", "oom")
            }
        )
    words = ", ".join(f"{ends[end]} {_WORDS[end]}" for end in UnitEnd if ends[end]) or "nothing to do"
    parts.append(f"{len(results)} unit{'' if len(results) == 1 else 's'}: {words}; store {store}\n")
    if bad:
        parts.append(
            "Among what was measured: " + ", ".join(f"{count} {status}" for status, count in sorted(bad.items())) + "\n"
        )
    return "\n".join(parts)


_WORDS = {
    UnitEnd.DONE: "measured",
    UnitEnd.STORED: "in the store already",
    UnitEnd.SKIPPED: "skipped",
    UnitEnd.FAILED: "failed",
    UnitEnd.NOT_DONE: "not done; the same command goes on with them",
}


AWAY = dt.timedelta(days=1)
"""How long a GPU may be away before another one of its model takes over its series."""


@dataclass(frozen=True, kw_only=True)
class Last:
    """The device that measured a unit's series last."""

    identity: str
    host: str
    """The name of the machine that it was in."""
    seen: dt.datetime
    """When that device measured anything last, as far as the store tells."""


def requirement(unit: Unit, last: Last | None, present: Collection[str], now: dt.datetime) -> str:
    """Return what a unit needs: the device that measured its series last, or else what it asks for.

    GPUs of one model differ by some percent, so that a series which goes from one to another moves. The pin is soft: a
    device that has been away for a day is given up.
    """
    if last is None or (last.identity not in present and now - last.seen >= AWAY):
        return unit.device
    return last.identity


class Waiting:
    """Units that wait for a host, by what they need: what a host takes next is found without looking at all of them."""

    def __init__(
        self, units: Iterable[Unit], last: Mapping[Unit, Last], present: Collection[str], now: dt.datetime
    ) -> None:
        """Put units in line, in their order. See `requirement`."""
        self._last, self._present, self._now = last, present, now
        self._lines: dict[str, deque[Unit]] = {}
        for unit in units:
            self._line(unit).append(unit)

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def _line(self, unit: Unit) -> deque[Unit]:
        need = requirement(unit, self._last.get(unit), self._present, self._now)
        return self._lines.setdefault(need, deque())

    def units(self) -> list[Unit]:
        """Return all that wait."""
        return [unit for line in self._lines.values() for unit in line]

    def put_back(self, unit: Unit) -> None:
        """Take a unit again that came back without a result. It is the next one for what it needs."""
        self._line(unit).appendleft(unit)

    def take(self, host: Host) -> tuple[Unit, Offer] | None:
        """Return the next unit for a host that has none, and the device to measure it on; None if nothing is for it.

        What can be measured nowhere else comes first.
        """
        needs = [(offer.identity, offer) for offer in host.offers]
        needs += [(name, offer) for offer in host.offers for name in (offer.model, offer.kind)]
        for need, offer in needs:
            if line := self._lines.get(need):
                return line.popleft(), offer
        return None

    def missing(self, hosts: Iterable[Host]) -> dict[str, int]:
        """Return how many units wait for what no host has, by what that is."""
        there = {name for host in hosts for offer in host.offers for name in (offer.identity, offer.model, offer.kind)}
        return {need: len(line) for need, line in self._lines.items() if line and need not in there}

    def give_up(self, need: str) -> list[Unit]:
        """Take out the units that wait for something, and return them."""
        return list(self._lines.pop(need, ()))
