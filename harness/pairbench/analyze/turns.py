"""Which cases a run with a budget takes first, and which it measures longer: the oldest, then the least precise."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pairbench.model.latency import result_of
from pairbench.model.outcome import NOT_REACHED, OUT_OF_BUDGET
from pairbench.model.plan import PlannedCase
from pairbench.model.record import Record

COLUMNS = ("run_id", "suite", "case", "implementation", "mode", "definition_hash", "implementation_hash", "reason")
"""The columns of a record that are needed here."""

_NOT_TRIED = (NOT_REACHED, OUT_OF_BUDGET)


def in_turn(cases: Iterable[PlannedCase], rows: Iterable[Mapping[str, Any]]) -> tuple[PlannedCase, ...]:
    """Return cases in the order in which they were last tried: those that never were first, then the oldest.

    What was measured by other code, or was another question, was never tried; what failed was, or it would come first forever.

    Args:
        cases: What is planned on a device.
        rows: Of the same device model, from any run, with the columns `COLUMNS`.
    """
    newest: dict[tuple[Any, ...], str] = {}
    for row in rows:
        if row["reason"] not in _NOT_TRIED:
            key = tuple(row[name] for name in COLUMNS[1:-1])
            newest[key] = max(newest.get(key, ""), row["run_id"])

    def tried(planned: PlannedCase) -> str:
        operator = planned.operator
        hashes = {item.name: item.hash for item in operator.implementations}
        runs = [
            newest.get(
                (
                    *(operator.suite, planned.case.key, entry.implementation, entry.mode),
                    *(operator.definition_hash, hashes[entry.implementation]),
                ),
                "",
            )
            for entry in planned.entries
            if entry not in planned.skipped
        ]
        return min(runs, default="")

    return tuple(sorted(cases, key=tried))


def speedup_halfwidth(records: Sequence[Record]) -> float | None:
    """Return half the 95 % interval of the log speedup of a case's variants, the widest of them; None where there is none.

    Args:
        records: Of one case.
    """
    widths = [width for record in records if (width := _halfwidth(record)) is not None]
    return max(widths, default=None)


def _halfwidth(record: Record) -> float | None:
    low, high = (getattr(record, f"{result_of(record).speedup}_{end}") for end in ("low", "high"))
    return math.log(high / low) / 2 if low and high and math.isfinite(high) else None
