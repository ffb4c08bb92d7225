"""Which units a store has: whole runs of theirs, in an environment that the fleet has."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pairbench.model.outcome import NOT_REACHED, OUT_OF_BUDGET
from pairbench.model.unit import Host, Unit, unit_of

COLUMNS = ("run_id", "environment_hash", "reason")
"""The columns of a record that are needed here."""


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run that was made for a unit and has ended, with all that it was to measure."""

    run_id: str
    environments: frozenset[str]


def whole_runs(rows: Iterable[Mapping[str, str | None]]) -> dict[str, list[StoredRun]]:
    """Return by the unit's key the runs that are whole, oldest first.

    Args:
        rows: The combinations of values that the columns `COLUMNS` have, of runs that have ended.
    """
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

    Args:
        units: What is asked for.
        runs: The whole runs of units in the store.
        hosts: The fleet: what was measured in an environment that none of it has is to be measured again.
    """
    offers = [offer for host in hosts for offer in host.offers]
    found = {}
    for unit in units:
        here = {offer.environment_hash for offer in offers if offer.serves(unit.device)}
        for run in runs.get(unit.key, ()) if unit.commit else ():
            if run.environments & here:
                found[unit] = run.run_id
    return found
