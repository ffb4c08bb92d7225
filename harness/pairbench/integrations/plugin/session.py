"""One pytest session with suites in it, from collection to the gate's verdicts, for which suspects are measured again."""

import contextlib
import functools
import importlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from _pytest.runner import runtestprotocol

from pairbench.errors import PairbenchError, StoreError, UsageError
from pairbench.execute.parent.pool import WorkerContext
from pairbench.integrations.plugin.items import BENCH, LOADER, MADE, PairItem, SuiteFile, SuiteLoader
from pairbench.integrations.plugin.options import Options, of_device
from pairbench.model.text import safe
from pairbench.workflow.progress import PlainProgress
from pairbench.workflow.setup import Chosen, Request, make_context, store_of

# Imported where it is used, for collecting needs neither.
if TYPE_CHECKING:
    from pairbench.integrations.plugin.bench import Bench
    from pairbench.model.comparison import Comparison
    from pairbench.workflow.confirm import Confirmed

GATE_FAILED = pytest.ExitCode.USAGE_ERROR  # of a gate that could not judge: 4, as other failures of the harness


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

    def release(self, comparison: "Comparison | None" = None) -> None:
        """Give pytest all reports that are held; tests whose series regressed fail, in the summary, the junit file and `--lf`."""
        from pairbench.model.comparison import GateOutcome

        regressed = {
            (series.suite, series.case, series.implementation, series.mode): change.reason
            for change in (comparison.changes if comparison else ())
            if change.outcome is GateOutcome.REGRESSION and (series := change.series)
        }
        held, self._held = self._held, []
        for item, reports in held:
            entry = item.pair.entry
            reason = regressed.get((*item.pair.case, entry.implementation, entry.mode))
            if reason is not None:
                # The call's own report; of a test that was skipped, the report that says so.
                report = next((one for one in reports if one.when == "call" or one.skipped), reports[0])
                report.outcome, report.longrepr = "failed", f"regression: {reason}"
            _log(item, reports)


def _log(item: PairItem, reports: Iterable[pytest.TestReport]) -> None:
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)


@dataclass(kw_only=True)
class PluginSession:
    options: Options
    context: WorkerContext
    loader: SuiteLoader
    config: pytest.Config
    opened: contextlib.ExitStack
    tiers: frozenset[str] = frozenset()  # tiers that are run; empty until pytest has collected
    changed: Chosen | None = None
    """The operators that have changed since a commit, and a control; None without `--pairbench-changed-since`."""
    judged: "Confirmed | None" = None
    no_verdict: str | None = None  # why there is no verdict although there should be one
    held: HeldReports = field(default_factory=HeldReports)

    @classmethod
    def open(cls, config: pytest.Config, options: Options, files: Iterable[Path]) -> Self:
        """Start what collection of some suites needs, and refuse options that cannot be followed."""
        with contextlib.ExitStack() as stack:
            suites = tuple(files)
            describes = config.option.collectonly
            context = stack.enter_context(make_context(options.config, suites, describes=describes))
            loader = SuiteLoader(options.config, context, options.device, suites)
            stack.callback(loader.close)
            if not describes:
                # A second's worth of importing, done while the first worker loads torch.
                for module in ("pairbench.integrations.plugin.bench", "scipy.special"):
                    importlib.import_module(module)
            device = loader.device  # fails before anything else where there is no such device
            _check_reference(options)
            files_kept = ("benchmark_save", "benchmark_autosave", "benchmark_compare")
            if config.pluginmanager.hasplugin("benchmark") and any(map(config.getoption, files_kept)):
                config.option.benchmark_storage = of_device(config.option.benchmark_storage, device)
            config.stash[LOADER] = loader
            return cls(options=options, context=context, loader=loader, config=config, opened=stack.pop_all())

    @functools.cached_property
    def bench(self) -> "Bench":
        from pairbench.integrations.plugin.bench import Bench

        shared = hasattr(self.config, "workerinput")  # one of pytest-xdist's processes
        switches = ("benchmark_disable", "benchmark_skip", "collectonly")
        able = self.config.pluginmanager.hasplugin("benchmark") and not any(map(self.config.getoption, switches))
        bench = Bench(
            config=self.options.config,
            context=self.context,
            loader=self.loader,
            notify=_notify(self.config),
            times=able and not shared,
            save=self.options.save,
            shared=shared,
        )
        self.opened.callback(bench.close)
        self.config.stash[BENCH] = bench
        return bench

    def close(self) -> None:
        self.opened.close()

    def header(self) -> str:
        device, settings = self.loader.device, self.options.config.settings
        store = f", kept in {self.options.config.shown_store}" if self.options.save else ""
        return f"pairbench: {device.selector} ({device.name}), {settings.rounds} rounds{store}"

    def collect(self, path: Path, parent: pytest.Collector, collectors: list[Any]) -> list[Any]:
        """Return the collectors of a file, given those of pytest and its other plugins."""
        if not self.options.files.takes(path):
            return collectors
        others = collectors if self.options.files.is_test(path) else []
        return [*others, SuiteFile.from_parent(parent, path=path)]

    def leave_out(self, items: list[pytest.Item]) -> None:
        """Deselect operators that have not changed, if that is asked for, and tiers that are not run here.

        A tier is run all the same where `-m` names it, and an item where the command line names it in full.
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

    def select(self, items: list[pytest.Item]) -> None:
        if self.config.option.collectonly:
            return
        chosen = [item for item in items if isinstance(item, PairItem)]
        # All items of the suites, before `--lf`, `-k` or a plugin deselected some.
        made = {
            item.nodeid
            for item in self.config.stash.get(MADE, [])
            if item.pair.planned.case.tier in self.tiers and self._is_changed(item)
        }
        whole = made <= {item.nodeid for item in chosen}
        self.bench.select([item.pair for item in chosen], whole=whole, changed=self.changed)

    def run(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test whose outcome the gate decides; return whether it is such a test."""
        if self.options.reference is None or not isinstance(item, PairItem):
            return False
        self.held.run(item, nextitem)
        return True

    def finish(self, session: pytest.Session) -> int | None:
        """Record the cases that were not reached, and judge; return the exit status that replaces pytest's, if any."""
        if self.config.option.collectonly:
            return None
        narrowed = self.changed.narrowed if self.changed else None
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and narrowed and not narrowed.changed:
            return pytest.ExitCode.OK  # nothing changed, so nothing had to be run
        try:
            return self._judge(session)
        finally:  # also where the session was stopped: tests that ran are reported
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
            if not self.bench.records:
                self.no_verdict = "nothing was judged: nothing was measured"
                return None
            self.judged = self._confirm(self.options.reference)
        except PairbenchError as error:
            self.no_verdict = str(error)
            return GATE_FAILED
        code = self.judged.exit_code
        return pytest.ExitCode.TESTS_FAILED if code == 1 else GATE_FAILED if code else None

    def _confirm(self, reference: str) -> "Confirmed":
        from pairbench.workflow.confirm import confirm_run

        request = Request(
            config=self.options.config,
            context=self.context,
            chosen=Chosen(survey=self.loader.survey(), selections=()),
            devices=(self.loader.device,),
            progress=_MessageProgress(_notify(self.config)),
        )
        return confirm_run(request, self.bench.run.run_id, reference=reference, quiet_only=True)

    def summarise(self, terminal: Any) -> None:
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
        from pairbench.features.exchange.pytest_benchmark import KEY, machine_info_of, steady

        machine_info[KEY] = steady(machine_info_of(self.bench.environment))
        if isinstance(cpu := machine_info.get("cpu"), dict):
            for name in (
                "hz_actual",
                "hz_actual_friendly",
            ):  # the clock at the moment: no two files would come from equal machines
                cpu.pop(name, None)

    def complete(self, output_json: dict[str, Any]) -> None:
        """Add to a file of pytest-benchmark the values that `pairbench import` needs besides."""
        from pairbench.features.exchange.pytest_benchmark import KEY, extra_info_of, run_info_of

        if records := self.bench.records:
            output_json[KEY] = {
                "environment": records[0].environment,
                "run": run_info_of(records[0]),
                "not_measured": [extra_info_of(record) for record in records if record.call_p50_ns is None],
            }


def _notify(config: pytest.Config) -> Callable[[str], None]:
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


class _MessageProgress(PlainProgress):
    def __init__(self, notify: Callable[[str], None]) -> None:
        super().__init__()
        self._notify = notify

    def notify(self, text: str) -> None:
        self._notify(text)


def _check_reference(options: Options) -> None:
    """Refuse a reference that names no run, before an hour of measuring."""
    if options.reference is None:
        return
    from pairbench.workflow.selectors import AUTO, RunSelector

    if options.reference == AUTO:
        return
    try:
        RunSelector.of_store(store_of(options.config), options.config.root).pick(options.reference)
    except StoreError as error:
        raise UsageError(f"--pairbench-gate={options.reference}: {error}") from error
