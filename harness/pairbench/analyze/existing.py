"""Which planned cases a store has already: the same question, answered by the same code, as often as is asked for."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from pairbench.model.outcome import NOT_REACHED, OUT_OF_BUDGET, Status
from pairbench.model.plan import Entry, PlannedCase

COLUMNS = (
    *("run_id", "suite", "case", "implementation", "mode", "definition_hash", "implementation_hash"),
    *("status", "reason", "timer", "n_rounds", "launch_status"),
)
"""The columns of a record that are needed here."""

_FINAL = (Status.MISMATCHED, Status.SKIPPED)
"""The statuses that would come again: the code decides them, and neither load nor luck."""


def existing(
    cases: Iterable[PlannedCase], rows: Iterable[Mapping[str, Any]], *, timer: str, rounds: int
) -> set[tuple[str, str]]:
    """Return suite and key of the cases that one run has whole, for a variant is compared with the baseline that was timed beside it.

    Args:
        cases: What is planned on a device.
        rows: Of the same device model and environment, from any run, with the columns `COLUMNS`.
        timer: What the latencies must have been timed with.
        rounds: The fewest that count.
    """
    runs: defaultdict[tuple[str, str], defaultdict[str, dict[Entry, Mapping[str, Any]]]]
    runs = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        entry = Entry(implementation=row["implementation"], mode=row["mode"])
        runs[row["suite"], row["case"]][row["run_id"]][entry] = row

    def has(run: Mapping[Entry, Mapping[str, Any]], planned: PlannedCase) -> bool:
        hashes = {item.name: item.hash for item in planned.operator.implementations}
        return all(
            (row := run.get(entry)) is not None
            and row["definition_hash"] == planned.operator.definition_hash
            and row["implementation_hash"] == hashes[entry.implementation]
            and _settled(row, timer, rounds)
            for entry in planned.entries
            if entry not in planned.skipped
        )

    planned_at = {(planned.operator.suite, planned.case.key): planned for planned in cases}
    return {place for place, planned in planned_at.items() if any(has(run, planned) for run in runs[place].values())}


def _settled(row: Mapping[str, Any], timer: str, rounds: int) -> bool:
    if row["status"] == Status.MEASURED:
        # A run that was interrupted, or killed, has latencies before it has counts.
        profiled = isinstance(row["launch_status"], str)
        return bool(profiled and row["timer"] == timer and (row["n_rounds"] or 0) >= rounds)
    return row["status"] in _FINAL and row["reason"] not in (NOT_REACHED, OUT_OF_BUDGET)
