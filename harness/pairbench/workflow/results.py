"""What a store says of every pair: won, lost, or never measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from pairbench.analyze.results.operator import COLUMNS, results_of
from pairbench.config import Config
from pairbench.errors import SelectionError
from pairbench.execute.garbage import collector_at_rest
from pairbench.model.plan import OperatorDescription
from pairbench.model.record import Record
from pairbench.model.results import OperatorResults
from pairbench.store.location import StoreLocation
from pairbench.store.whole import WholeStore
from pairbench.workflow.setup import choose, open_context, store_of

_Records = dict[tuple[str, str, str], Sequence[Record]]


@dataclass(frozen=True, kw_only=True)
class StoredResults:
    """The results of the selected operators."""

    measured: tuple[OperatorResults, ...]
    """Device model by device model, GPUs first, in the order of the suites."""
    unmeasured: tuple[OperatorDescription, ...]
    """Operators with cases of the tiers and no record at all."""
    problems: tuple[str, ...]
    """What could not be read of the store."""
    broken: tuple[str, ...]
    """Why suites could not be loaded."""


def stored_results(config: Config, select: list[str], tiers: tuple[str, ...]) -> StoredResults:
    """Return what a store says of the operators that are selected, by those cases of theirs that are.

    Args:
        config: Where the store and the suites are.
        select: SELECT arguments; empty for everything.
        tiers: Those whose cases count.

    Raises:
        SelectionError: nothing is selected.
        StoreError: there is no such store, or it is empty.
    """
    with open_context(config, describes=True) as context:
        chosen = choose(config, context, select)
    operators = chosen.operators()
    if not operators and not chosen.survey.broken:
        raise SelectionError(f"{' '.join(select)!r} selects nothing; `pairbench list` shows everything")
    with collector_at_rest():
        records, problems = _read(store_of(config))
        measured = tuple(
            results
            for device in sorted({device for device, _, _ in records}, key=lambda name: _order(records, name))
            for operator in operators
            if (results := results_of(operator, records.get((device, operator.suite, operator.name), ()), tiers))
        )
    known = {(results.operator.suite, results.operator.name) for results in measured}
    return StoredResults(
        measured=measured,
        unmeasured=tuple(
            operator
            for operator in operators
            if (operator.suite, operator.name) not in known and any(case.tier in tiers for case in operator.cases)
        ),
        problems=problems,
        broken=tuple(suite.reason for suite in chosen.survey.broken),
    )


def _read(store: StoreLocation) -> tuple[_Records, tuple[str, ...]]:
    """Return the records of a store by device model, suite and operator, and what could not be read."""
    columns = {*COLUMNS, "device_kind"}
    whole = WholeStore(store, columns, samples=True)
    return dict(whole.by_operator(columns)), whole.problems


def _order(records: _Records, device: str) -> tuple[bool, str]:
    """Return what sorts GPUs before CPUs."""
    kinds = {rows[0].device_kind for (name, _, _), rows in records.items() if name == device and rows}
    return "cuda" not in kinds, device
