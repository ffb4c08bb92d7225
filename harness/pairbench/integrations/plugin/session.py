"""One pytest session with suites in it, from collection to the gate's verdicts, for which suspects are measured again."""

import contextlib
import functools
import importlib
import re
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from _pytest.runner import runtestprotocol

from pairbench.errors import PairbenchError, StoreError, UsageError
from pairbench.execute.parent.pool import WorkerContext
from pairbench.integrations.plugin.items import BENCH, LOADER, MADE, Bench, PairItem, SuiteFile, SuiteLoader
from pairbench.integrations.plugin.options import Options, of_device, usage
from pairbench.model.comparison import GateOutcome
from pairbench.model.plain import safe
from pairbench.workflow.progress import PlainProgress
from pairbench.workflow.setup import Chosen, Request, open_context, store_of

# Imported where it is used, for collecting does not need it.
if TYPE_CHECKING:
    from pairbench.workflow.comparer import Confirmed

GATE_FAILED = pytest.ExitCode.USAGE_ERROR  # of a gate that could not judge: 4, as other failures of the harness


def _log(item: PairItem, reports: Iterable[pytest.TestReport]) -> None:
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)


@dataclass(kw_only=True, eq=False)  # pytest hashes its plugins
class PluginSession:
    options: Options
    context: WorkerContext
    loader: SuiteLoader
    config: pytest.Config
    opened: contextlib.ExitStack
    tiers: frozenset[str] = frozenset()  # tiers that are run; empty until pytest has collected
    changed: Chosen | None = None  # the operators that have changed since `--pairbench-changed-since`, and a control
    judged: "Confirmed | None" = None
    no_verdict: str | None = None  # why there is no verdict although there should be one
    # Reports of tests that have not failed, kept from pytest until the gate has judged them: a test has one outcome.
    held: list[tuple[PairItem, list[pytest.TestReport]]] = field(default_factory=list)

    @classmethod
    def open(cls, config: pytest.Config, options: Options, files: Iterable[Path]) -> Self:
        """Start what collection of some suites needs, and refuse options that cannot be followed."""
        with contextlib.ExitStack() as stack:
            suites = tuple(files)
            describes = config.option.collectonly
            context = stack.enter_context(open_context(options.config, suites, describes=describes, signals=False))
            loader = SuiteLoader(options.config, context, options.device, suites)
            stack.callback(loader.close)
            if not describes:
                importlib.import_module("scipy.special")  # which takes long, done while the first worker loads torch
            device = loader.device  # fails before anything else where there is no such device
            if (reference := options.reference) is not None:
                from pairbench.workflow.lookup import AUTO, RunSelector

                try:  # a reference that names no run is refused before an hour of measuring
                    if reference != AUTO:
                        RunSelector.of_store(store_of(options.config), options.config.root).pick(reference)
                except StoreError as error:
                    raise UsageError(f"--pairbench-gate={reference}: {error}") from error
            files_kept = ("benchmark_save", "benchmark_autosave", "benchmark_compare")
            if config.pluginmanager.hasplugin("benchmark") and any(map(config.getoption, files_kept)):
                config.option.benchmark_storage = of_device(config.option.benchmark_storage, device)
            config.stash[LOADER] = loader
            return cls(options=options, context=context, loader=loader, config=config, opened=stack.pop_all())

    @functools.cached_property
    def bench(self) -> Bench:
        shared = hasattr(self.config, "workerinput")  # one of pytest-xdist's processes
        switches = ("benchmark_disable", "benchmark_skip", "collectonly")
        able = self.config.pluginmanager.hasplugin("benchmark") and not any(map(self.config.getoption, switches))
        times, save = able and not shared, self.options.save
        bench = Bench(self.options.config, self.context, self.loader, self._notify, times, save, shared)
        self.opened.callback(bench.close)
        self.config.stash[BENCH] = bench
        return bench

    def pytest_report_header(self) -> str:
        device, settings = self.loader.device, self.options.config.settings
        store = f", kept in {self.options.config.shown_store}" if self.options.save else ""
        return f"pairbench: {device.selector} ({device.name}), {settings.rounds} rounds{store}"

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> Generator[None, list[Any], list[Any]]:
        """Collect a suite as such, and not also as a file of tests that the command line names."""
        collectors = yield
        if not self.options.files.takes(file_path):
            return collectors
        others = collectors if self.options.files.is_test(file_path) else []
        return [*others, SuiteFile.from_parent(parent, path=file_path)]

    @pytest.hookimpl(tryfirst=True)
    @usage()
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Deselect operators that have not changed, if that is asked for, and tiers that are not run here."""
        # A tier is run all the same where `-m` names it, and an item where the command line names it in full.
        ours = [item for item in items if isinstance(item, PairItem)]
        if not ours:
            return
        self.tiers = frozenset({*self.loader.tiers(), *re.findall(r"\w+", self.config.option.markexpr or "")})
        named = {argument.partition("::")[2] for argument in self.config.args}
        if self.options.changed_since is not None:
            from pairbench.features.since import changed_since

            tiers, places = self.tiers - {"edge"}, self.options.files.named
            self.changed = changed_since(self._request(), self.options.changed_since, tiers=tiers, places=places).chosen
            assert self.changed.narrowed is not None
            for line in self.changed.narrowed.lines():
                self._notify(f"pairbench: {line}")
        wanted = {item for item in ours if item.pair.planned.case.tier in self.tiers or item.name in named}
        if out := {item for item in ours if item not in wanted or not self._is_changed(item)}:
            self.config.hook.pytest_deselected(items=[item for item in items if item in out])
            items[:] = [item for item in items if item not in out]

    def _notify(self, text: str) -> None:
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is None:
            return
        capture = self.config.pluginmanager.get_plugin("capturemanager")
        # While a test runs, pytest keeps what is printed for the report of its failure.
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            terminal.ensure_newline()
            terminal.write_line(safe(text))

    def _request(self) -> Request:
        loader, progress = self.loader, PlainProgress(self._notify)
        return Request(self.options.config, self.context, loader.chosen(), (loader.device,), progress)

    def _is_changed(self, item: PairItem) -> bool:
        narrowed = self.changed.narrowed if self.changed else None
        key = (item.pair.planned.operator.suite, item.pair.planned.operator.name)
        return narrowed is None or key in narrowed.changed or narrowed.control.get(key) == item.pair.planned.case.key

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if self.config.option.collectonly:
            return
        chosen = [item for item in session.items if isinstance(item, PairItem)]
        # All items of the suites, before `--lf`, `-k` or a plugin deselected some.
        changed = (item for item in self.config.stash.get(MADE, []) if self._is_changed(item))
        made = {item.nodeid for item in changed if item.pair.planned.case.tier in self.tiers}
        whole = made <= {item.nodeid for item in chosen}
        self.bench.select([item.pair for item in chosen], whole=whole, changed=self.changed)

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run a test whose outcome the gate decides as pytest does, and hold its reports back unless it fails."""
        if self.options.reference is None or not isinstance(item, PairItem):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if any(report.failed for report in reports):
            _log(item, reports)
        else:
            self.held.append((item, reports))
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _release(self) -> None:
        """Give pytest all reports that are held; tests whose series regressed fail, in the summary, the junit file and `--lf`."""
        regressed = {
            (series.suite, series.case, series.implementation, series.mode): change.reason
            for change in (self.judged.judged.comparison.changes if self.judged else ())
            if change.outcome is GateOutcome.REGRESSION and (series := change.series)
        }
        held, self.held = self.held, []
        for item, reports in held:
            entry = item.pair.entry
            if (reason := regressed.get((*item.pair.case, entry.implementation, entry.mode))) is not None:
                # The call's own report; of a test that was skipped, the report that says so.
                report = next((one for one in reports if one.when == "call" or one.skipped), reports[0])
                report.outcome, report.longrepr = "failed", f"regression: {reason}"
            _log(item, reports)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Record the cases that were not reached, and judge, which may replace the exit status."""
        if self.config.option.collectonly:
            return
        narrowed = self.changed.narrowed if self.changed else None
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and narrowed and not narrowed.changed:
            session.exitstatus = pytest.ExitCode.OK  # nothing changed, so nothing had to be run
            return
        try:
            if (status := self._judge(session)) is not None:
                session.exitstatus = status
        finally:  # also where the session was stopped: tests that ran are reported
            self._release()

    def _judge(self, session: pytest.Session) -> int | None:
        try:
            self.bench.close()
            if self.options.reference is None:
                return None
            ended = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
            if not ended or session.shouldstop or session.shouldfail:
                self.no_verdict = "nothing was judged: the session was stopped before everything was measured"
                return None
            if not self.bench.records:
                self.no_verdict = "nothing was judged: nothing was measured"
                return None
            from pairbench.workflow.comparer import confirm_run

            run_id, reference = self.bench.run.run_id, self.options.reference
            self.judged = confirm_run(self._request(), run_id, reference=reference, quiet_only=True)
        except PairbenchError as error:
            self.no_verdict = str(error)
            return GATE_FAILED
        code = self.judged.exit_code
        return pytest.ExitCode.TESTS_FAILED if code == 1 else GATE_FAILED if code else None

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if BENCH in self.config.stash and self.bench.records:
            from pairbench.report.rows import precision_remark

            for line in precision_remark(self.bench.records):
                terminalreporter.write_line(f"pairbench: {line}")
        if self.no_verdict:
            terminalreporter.section("pairbench gate", sep="=", red=True)
            terminalreporter.write_line(safe(self.no_verdict))
        if self.judged is None:
            return
        from pairbench.report.comparison import render_comparison

        judged = self.judged.judged
        terminalreporter.section("pairbench gate", sep="=")
        for line in render_comparison(judged.comparison, "table").splitlines():
            terminalreporter.write_line(safe(line, colored=True))
        for note in filter(None, [judged.note, *judged.newer]):
            terminalreporter.write_line(safe(f"pairbench: {note}"))

    @pytest.hookimpl(optionalhook=True)
    @usage()
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        from pairbench.features.exchange.pytest_benchmark import KEY, machine_info_of, steady

        machine_info[KEY] = steady(machine_info_of(self.bench.environment))
        if isinstance(cpu := machine_info.get("cpu"), dict):
            for name in ("hz_actual", "hz_actual_friendly"):
                cpu.pop(name, None)  # of the moment: no two files would come from equal machines

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    @usage()
    def pytest_benchmark_compare_machine_info(
        self, machine_info: dict[str, Any], compared_benchmark: dict[str, Any]
    ) -> None:
        from pairbench.features.exchange.pytest_benchmark import KEY

        both = machine_info.get(KEY), compared_benchmark.get("machine_info", {}).get(KEY)
        ours, theirs = (machine.get("device_name") if isinstance(machine, dict) else None for machine in both)
        if all(isinstance(machine, dict) for machine in both) and ours != theirs:
            file = f"the file of {compared_benchmark.get('datetime', 'unknown time')} was measured on {theirs}"
            why = f"this is {ours}; only runs of one device model can be compared"
            raise UsageError(f"--benchmark-compare: {file}, {why}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        """Add to a file of pytest-benchmark the values that `pairbench import` needs besides."""
        from pairbench.features.exchange.pytest_benchmark import KEY, extra_info_of, run_info_of

        if records := self.bench.records:
            run = run_info_of(records[0])
            without = [extra_info_of(record) for record in records if record.call_p50_ns is None]
            output_json[KEY] = {"environment": records[0].environment, "run": run, "not_measured": without}
