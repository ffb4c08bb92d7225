"""One pytest session with suites in it, from collection to verdict.

The gate of a pytest session: pairbench's verdicts on what was measured, after suspects were measured again.
"""

import contextlib
import functools
import importlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from _pytest.runner import runtestprotocol

from pairbench.config import Config
from pairbench.errors import PairbenchError, StoreError, UsageError
from pairbench.execute.parent.pool import WorkerContext
from pairbench.integrations.plugin.bench import Bench
from pairbench.integrations.plugin.items import BENCH, LOADER, MADE, PairEntry, PairItem, SuiteFile
from pairbench.integrations.plugin.options import Options, describe_machine, of_device
from pairbench.integrations.plugin.suite_loader import SuiteLoader
from pairbench.model.comparison import Comparison, GateOutcome
from pairbench.model.text import safe
from pairbench.workflow.confirm import Confirmed, confirm_run
from pairbench.workflow.progress import PlainProgress
from pairbench.workflow.selectors import AUTO, RunSelector
from pairbench.workflow.setup import Chosen, Request, make_context, store_of


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


# What measures and judges is imported where it is used: collecting needs none of it.
if TYPE_CHECKING:
    from pairbench.integrations.plugin.bench import Bench
    from pairbench.workflow.confirm import Confirmed
    from pairbench.workflow.setup import Chosen

_MEANWHILE = ("pairbench.integrations.plugin.bench", "scipy.special")
"""A second's worth of importing, done while the first worker loads torch."""

GATE_FAILED = pytest.ExitCode.USAGE_ERROR
"""A gate that could not judge: pytest's 4, which is also what the harness's own failures exit with."""


@dataclass(kw_only=True)
class PluginSession:
    """Everything that is open for the length of a pytest session."""

    options: Options
    context: WorkerContext
    loader: SuiteLoader
    config: pytest.Config
    opened: contextlib.ExitStack
    tiers: frozenset[str] = frozenset()
    """Tiers that are run; empty until pytest has collected."""
    changed: "Chosen | None" = None
    """What has changed since a commit, and its control; None unless `--pairbench-changed-since` was given."""
    judged: "Confirmed | None" = None
    no_verdict: str | None = None
    """Why there is no verdict although there should be one."""
    held: "HeldReports | None" = None
    """Reports of tests that the gate has yet to judge; None without a gate."""

    @classmethod
    def open(cls, config: pytest.Config, options: Options, files: Iterable[Path]) -> Self:
        """Start what collection needs.

        Args:
            config: pytest's.
            options: The session's options.
            files: The suites in reach.

        Raises:
            PairbenchError: the options cannot be followed.
        """
        with contextlib.ExitStack() as stack:
            suites = tuple(files)
            describes = config.option.collectonly
            context = stack.enter_context(make_context(options.config, suites, describes=describes))
            loader = SuiteLoader(options.config, context, options.device, suites)
            stack.callback(loader.close)
            if not describes:
                for module in _MEANWHILE:
                    importlib.import_module(module)
            device = loader.device  # one that is not there is known before anything else
            if options.reference is not None:
                check_reference(options.config, options.reference)
            if _keeps_files(config):
                config.option.benchmark_storage = of_device(config.option.benchmark_storage, device)
            config.stash[LOADER] = loader
            return cls(options=options, context=context, loader=loader, config=config, opened=stack.pop_all())

    @functools.cached_property
    def bench(self) -> "Bench":
        """The bench that measures, made when it is first asked for."""
        from pairbench.integrations.plugin.bench import Bench

        shared = _is_one_of_several(self.config)
        times = not shared and _times(self.config)
        bench = Bench(
            self.options.config,
            self.context,
            self.loader,
            _notify(self.config),
            times=times,
            save=self.options.save,
            shared=shared,
        )
        self.opened.callback(bench.close)
        self.config.stash[BENCH] = bench
        return bench

    def close(self) -> None:
        """End every worker."""
        self.opened.close()

    def header(self) -> str:
        """Return a line on what is measured how."""
        device, settings = self.loader.device, self.options.config.settings
        store = f", kept in {self.options.config.shown_store}" if self.options.save else ""
        return f"pairbench: {device.selector} ({device.name}), {settings.rounds} rounds{store}"

    def collect(self, path: Path, parent: pytest.Collector, collectors: list[Any]) -> list[Any]:
        """Return the collectors of a file, given those that pytest has for it."""
        if not self.options.files.takes(path):
            return collectors
        others = collectors if self.options.files.is_test(path) else []
        return [*others, SuiteFile.from_parent(parent, path=path)]

    def leave_out(self, items: list[pytest.Item]) -> None:
        """Deselect what has not changed, if that is asked for, and the tiers that are not run here.

        A tier is run all the same where `-m` speaks of it, and an item where it is named in full.

        Raises:
            UsageError: what has changed cannot be told.
        """
        ours = [item for item in items if isinstance(item, PairItem)]
        if not ours:
            return
        words = re.findall(r"\w+", self.config.option.markexpr or "")
        self.tiers = frozenset({*self.loader.tiers(), *words})
        named = {argument.partition("::")[2] for argument in self.config.args}
        self._find_changed()
        out = {
            item
            for item in ours
            if not self._is_changed(item) or (item.pair.planned.case.tier not in self.tiers and item.name not in named)
        }
        if out:
            self.config.hook.pytest_deselected(items=[item for item in items if item in out])
            items[:] = [item for item in items if item not in out]

    def _find_changed(self) -> None:
        if (commit := self.options.changed_since) is None:
            return
        from pairbench.features.since import narrow_to_changed
        from pairbench.workflow.setup import Chosen

        chosen = Chosen(survey=self.loader.survey(), selections=())
        tiers = self.tiers - {"edge"}
        places = self.options.files.named
        self.changed = narrow_to_changed(self.options.config, self.context, chosen, tiers, commit, places=places)
        assert self.changed.narrowed is not None
        for line in self.changed.narrowed.lines():
            _notify(self.config)(f"pairbench: {line}")

    def _is_changed(self, item: PairItem) -> bool:
        narrowed = self.changed.narrowed if self.changed else None
        key = (item.pair.planned.operator.suite, item.pair.planned.operator.name)
        return narrowed is None or key in narrowed.changed or narrowed.control.get(key) == item.pair.planned.case.key

    def _is_run(self, item: PairItem) -> bool:
        return item.pair.planned.case.tier in self.tiers and self._is_changed(item)

    def select(self, items: list[pytest.Item]) -> None:
        """Take in the items that are left after every selection."""
        if self.config.option.collectonly:
            return
        chosen = [item for item in items if isinstance(item, PairItem)]
        # All that suites hold, before `--lf`, `-k` or anybody else took some away.
        made = {item.nodeid for item in self.config.stash.get(MADE, []) if self._is_run(item)}
        whole = made <= {item.nodeid for item in chosen}
        self.bench.select([item.pair for item in chosen], whole=whole, changed=self.changed)

    def run(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test whose outcome is the gate's to say, and return whether this is one."""
        if self.options.reference is None or not isinstance(item, PairItem):
            return False
        if self.held is None:
            self.held = HeldReports()
        self.held.run(item, nextitem)
        return True

    def finish(self, session: pytest.Session) -> int | None:
        """Account for everything, and judge; return an exit status that is to replace pytest's, if any."""
        if self.config.option.collectonly:
            return None
        narrowed = self.changed.narrowed if self.changed else None
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and narrowed and not narrowed.changed:
            return pytest.ExitCode.OK  # nothing to do is what was hoped for, and no mistake
        try:
            return self._judge(session)
        finally:  # also of a session that was stopped: what was run is said
            if self.held is not None:
                self.held.release(self.judged.judged.comparison if self.judged else None)

    def _judge(self, session: pytest.Session) -> int | None:
        try:
            self.bench.close()
            if self.options.reference is None:
                return None
            ended = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
            if not ended or session.shouldstop or session.shouldfail:
                self.no_verdict = "nothing was judged: the session was stopped before everything was measured"
                return None

            self.judged = judge_session(self.bench, self.context, self.options.reference, _notify(self.config))
            if self.judged is None:
                self.no_verdict = "nothing was judged: nothing was measured"
        except PairbenchError as error:
            self.no_verdict = str(error)
            return GATE_FAILED
        code = self.judged.exit_code if self.judged else 0
        return pytest.ExitCode.TESTS_FAILED if code == 1 else GATE_FAILED if code else None

    def summarise(self, terminal: Any) -> None:
        """Print the verdicts, and in which precision float32 was multiplied."""
        if BENCH in self.config.stash and self.bench.records:
            from pairbench.report.rows import precision_remark

            for line in precision_remark(self.bench.records):
                terminal.write_line(f"pairbench: {line}")
        if self.no_verdict:
            terminal.section("pairbench gate", sep="=", red=True)
            terminal.write_line(safe(self.no_verdict))
        if self.judged is None:
            return
        from pairbench.report.comparison import render_comparison

        judged = self.judged.judged
        terminal.section("pairbench gate", sep="=")
        for line in render_comparison(judged.comparison, "table").splitlines():
            terminal.write_line(safe(line, colored=True))
        for note in filter(None, [judged.note, *judged.newer]):
            terminal.write_line(safe(f"pairbench: {note}"))

    def describe_machine(self, machine_info: dict[str, Any]) -> None:
        """Add to what pytest-benchmark says of the machine."""
        from pairbench.features.exchange.pytest_benchmark import machine_info_of

        describe_machine(machine_info, machine_info_of(self.bench.environment))

    def complete(self, output_json: dict[str, Any]) -> None:
        """Add to a file of pytest-benchmark what `pairbench import` needs besides."""
        from pairbench.features.exchange.pytest_benchmark import KEY, extra_info_of, run_info_of

        records = self.bench.records
        if not records:
            return
        output_json[KEY] = {
            "environment": records[0].environment,
            "run": run_info_of(records[0]),
            "not_measured": [extra_info_of(record) for record in records if record.call_p50_ns is None],
        }


def _notify(config: pytest.Config) -> Any:
    def notify(text: str) -> None:
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        if terminal is None:
            return
        capture = config.pluginmanager.get_plugin("capturemanager")
        # While a test runs, pytest keeps what is printed for the report of its failure.
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            terminal.ensure_newline()
            terminal.write_line(safe(text))

    return notify


def _times(config: pytest.Config) -> bool:
    """Return whether pytest-benchmark is there and was not told to time nothing."""
    switches = ("benchmark_disable", "benchmark_skip", "collectonly")
    return config.pluginmanager.hasplugin("benchmark") and not any(config.getoption(name) for name in switches)


def _is_one_of_several(config: pytest.Config) -> bool:
    """Return whether this process is one of pytest-xdist's."""
    return hasattr(config, "workerinput")


def _keeps_files(config: pytest.Config) -> bool:
    """Return whether pytest-benchmark reads or writes files in its storage."""
    names = ("benchmark_save", "benchmark_autosave", "benchmark_compare")
    return config.pluginmanager.hasplugin("benchmark") and any(config.getoption(name) for name in names)
