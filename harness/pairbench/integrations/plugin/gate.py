"""The gate of a pytest session: pairbench's verdicts on what was measured, after suspects were measured again."""

from collections.abc import Callable, Iterable

import pytest

from pairbench.config import Config
from pairbench.errors import StoreError, UsageError
from pairbench.execute.parent.pool import WorkerContext
from pairbench.integrations.plugin.bench import Bench
from pairbench.integrations.plugin.items import PairItem
from pairbench.integrations.plugin.wanted import Wanted
from pairbench.model.comparison import Comparison, GateOutcome
from pairbench.workflow.compare.selectors import AUTO, RunSelector
from pairbench.workflow.progress import PlainProgress
from pairbench.workflow.run.confirm import Confirmed, confirm_run
from pairbench.workflow.setup import Chosen, Request, store_of


class MessageProgress(PlainProgress):
    """Progress told through pytest's terminal."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        super().__init__()
        self._notify = notify

    def notify(self, text: str) -> None:
        """Print a message."""
        self._notify(text)


def check_reference(config: Config, reference: str) -> None:
    """Refuse a reference that means nothing, before an hour of measuring.

    Raises:
        UsageError: there is no such run.
    """
    if reference == AUTO:
        return
    try:
        RunSelector.of_store(store_of(config), config.root).pick(reference)
    except StoreError as error:
        raise UsageError(f"--pairbench-gate={reference}: {error}") from error


def report_regressions(comparison: Comparison, items: Iterable[pytest.Item]) -> None:
    """Fail the tests whose series regressed, so that pytest's summary, its junit file and `--lf` know of them.

    What failed in the session itself has been reported by its own test.
    """
    tests = {_series(item.wanted): item for item in items if isinstance(item, PairItem)}
    for change in comparison.changes:
        series = change.series
        item = tests.get((series.suite, series.case, series.implementation, series.mode))
        if item is None or change.outcome is not GateOutcome.REGRESSION:
            continue
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome="failed",
            longrepr=f"regression: {change.reason}",
            when="call",
        )
        item.ihook.pytest_runtest_logreport(report=report)


def _series(item: Wanted) -> tuple[str, str, str, str]:
    return (*item.case, item.entry.implementation, item.entry.mode)


def judge_session(
    bench: Bench, context: WorkerContext, reference: str, notify: Callable[[str], None]
) -> Confirmed | None:
    """Judge what a session measured; None if that is nothing.

    Raises:
        PairbenchError: the store cannot be read.
    """
    if not bench.records:
        return None
    request = Request(
        config=bench.config,
        context=context,
        chosen=Chosen(survey=bench.pairs.survey(), selections=()),
        devices=(bench.pairs.device,),
        progress=MessageProgress(notify),
    )
    return confirm_run(request, bench.run.run_id, reference=reference, quiet_only=True)
