"""The gate of a pytest session: pairbench's verdicts on what was measured, after suspects were measured again."""

from collections.abc import Callable, Iterable

import pytest
from _pytest.runner import runtestprotocol

from pairbench.config import Config
from pairbench.errors import StoreError, UsageError
from pairbench.execute.parent.pool import WorkerContext
from pairbench.integrations.plugin.bench import Bench
from pairbench.integrations.plugin.items import PairItem
from pairbench.integrations.plugin.pair_entry import PairEntry
from pairbench.model.comparison import Comparison, GateOutcome
from pairbench.workflow.compare.selectors import AUTO, RunSelector
from pairbench.workflow.progress import PlainProgress
from pairbench.workflow.run.confirm import Confirmed, confirm_run
from pairbench.workflow.setup import Chosen, Request, store_of


class MessageProgress(PlainProgress):
    """Progress that is printed through pytest's terminal."""

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


class HeldReports:
    """Reports of tests that have not failed, kept from pytest until the gate has judged them: a test has one outcome."""

    def __init__(self) -> None:
        self._held: list[tuple[PairItem, list[pytest.TestReport]]] = []

    def run(self, item: PairItem, nextitem: pytest.Item | None) -> None:
        """Run a test as pytest does, and hold its reports back unless it fails."""
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if any(report.failed for report in reports):
            _log(item, reports)
        else:
            self._held.append((item, reports))
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def release(self, comparison: Comparison | None = None) -> None:
        """Tell pytest of all tests that are held; those whose series regressed fail, in the summary, the junit file and `--lf`.

        Args:
            comparison: What the gate found; None where nothing was judged.
        """
        regressed = {
            (change.series.suite, change.series.case, change.series.implementation, change.series.mode): change.reason
            for change in (comparison.changes if comparison else ())
            if change.outcome is GateOutcome.REGRESSION
        }
        held, self._held = self._held, []
        for item, reports in held:
            reason = regressed.get(_series(item.pair))
            if reason is not None:
                # The call's own report; of a test that was skipped, the report that says so.
                report = next((one for one in reports if one.when == "call" or one.skipped), reports[0])
                report.outcome, report.longrepr = "failed", f"regression: {reason}"
            _log(item, reports)


def _log(item: PairItem, reports: Iterable[pytest.TestReport]) -> None:
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)


def _series(pair: PairEntry) -> tuple[str, str, str, str]:
    return (*pair.case, pair.entry.implementation, pair.entry.mode)


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
        chosen=Chosen(survey=bench.loader.survey(), selections=()),
        devices=(bench.loader.device,),
        progress=MessageProgress(notify),
    )
    return confirm_run(request, bench.run.run_id, reference=reference, quiet_only=True)
