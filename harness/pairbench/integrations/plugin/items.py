"""Suite files as pytest sees them: a worker loads them, every operator, case, implementation and mode becomes an item, and cases are measured when items ask for it."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from _pytest.junitxml import xml_key

from pairbench.analyze.facts import sampled_rounds
from pairbench.analyze.records import Run, believed
from pairbench.config import Config
from pairbench.errors import PairbenchError, StoreFailedError, SuiteError
from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.lock import LoadMeter, device_lock
from pairbench.execute.parent.pool import ANY, WorkerContext, Workers
from pairbench.execute.parent.quick_look import CaseByCase
from pairbench.execute.parent.scout import Survey, describe, find_devices, probe_environment
from pairbench.model.case import TIERS
from pairbench.model.environment import Device, Environment
from pairbench.model.outcome import Outcome, Status
from pairbench.model.plain import Value
from pairbench.model.plan import BrokenSuite, Entry, OperatorDescription, PlannedCase
from pairbench.model.record import CALL, DEVICE, Record, result_of
from pairbench.plan import equipped, make_plan, tiers_for
from pairbench.suite.reached import about
from pairbench.workflow.devices import HostWatch, probe_device
from pairbench.workflow.record import Recorder, RunFiles, context_for, new_run
from pairbench.workflow.requested import Requested
from pairbench.workflow.setup import Chosen, equipment_of, pick_devices, requested_of, shown

BENCH = pytest.StashKey["Bench"]()
LOADER = pytest.StashKey["SuiteLoader"]()
MADE = pytest.StashKey["list[PairItem]"]()
# The columns that a junit file has of an item, the result first; null ones are left out.
_PROPERTIES = (
    *("device_p50_ns", "device_p95_ns", "device_speedup", "call_p50_ns", "call_p95_ns", "speedup", "host_p50_ns"),
    *("bound", "launches_per_call", "ops_per_call", "max_abs_error", "margin"),
)
_Key = tuple[str, str] | tuple[str, str, Entry]


class SuiteLoader:
    """Loads suites as pytest comes to them; one worker does it all, so that torch is imported once."""

    def __init__(self, config: Config, context: WorkerContext, device: str, files: Iterable[Path]) -> None:
        self._config, self._selector = config, device
        self._settings = replace(context.settings, tiers=TIERS)
        self._workers = Workers(context, ANY)
        self._operators: dict[str, tuple[OperatorDescription, ...]] = {}
        self._thread = ThreadPoolExecutor(1)  # a worker takes one job after the other
        self._devices = self._thread.submit(find_devices, self._workers)
        self._loading = {path.resolve(): self._load(path) for path in files}

    def _load(self, path: Path) -> Future[tuple[OperatorDescription, ...] | BrokenSuite]:
        return self._thread.submit(describe, self._workers, shown(path, self._config), path.resolve())

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._workers.close()

    @functools.cached_property
    def devices(self) -> tuple[Device, ...]:
        return self._devices.result()

    @functools.cached_property
    def device(self) -> Device:
        return pick_devices(self._selector, self.devices)[0]

    def tiers(self) -> tuple[str, ...]:
        return tiers_for(self.device, self._config.settings, edge=True)

    def plan(self, path: Path) -> tuple[PlannedCase, ...]:
        loaded = (self._loading.get(path.resolve()) or self._load(path)).result()
        if isinstance(loaded, BrokenSuite):
            raise SuiteError(loaded.reason)
        self._operators[shown(path, self._config)] = loaded
        return make_plan(loaded, (), equipment_of(self.device, self.devices), self._settings).cases

    def chosen(self) -> Chosen:
        operators = tuple(itertools.chain.from_iterable(self._operators.values()))
        return Chosen(survey=Survey(devices=self.devices, operators=operators, broken=()), selections=())


class PairEntry(Value):
    planned: PlannedCase
    entry: Entry

    @property
    def case(self) -> tuple[str, str]:
        return self.planned.operator.suite, self.planned.case.key


class SampledClock:
    """A clock that each call advances by one sample, through which calls that were timed interleaved are played back."""

    # What pytest-benchmark times itself, one implementation after the other, cannot be compared, and it cannot time a GPU.

    _now = 0.0

    def __call__(self) -> float:
        return self._now

    def play(self, benchmark: Any, samples_ns: Sequence[float]) -> None:
        """Have a fixture that reads this clock measure a round for each sample."""
        remaining = iter(samples_ns)

        def call() -> None:
            self._now = next(remaining) / 1e9

        def reset() -> None:
            self._now = 0.0  # no sample loses digits to those before it

        benchmark.pedantic(call, setup=reset, rounds=len(samples_ns))


class SuiteFile(pytest.File):
    """A suite. It is loaded in a worker, so that nothing in it can harm pytest."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fixtures: dict[bool, Any] = {}  # pytest's knowledge of the fixtures of items that are timed, or are not

    def collect(self) -> Iterator["PairItem"]:
        try:
            planned = self.config.stash[LOADER].plan(self.path)
        except PairbenchError as error:
            raise self.CollectError(str(error)) from None
        # With pytest-benchmark switched off there is still something to verify.
        can_time = self.config.pluginmanager.hasplugin("benchmark")
        for case in planned:
            for entry in case.entries:
                item = PairItem.of(self, PairEntry(planned=case, entry=entry), can_time=can_time)
                self.config.stash.setdefault(MADE, []).append(item)
                yield item


class PairItem(pytest.Function):
    """One implementation of one case in one mode: verified, then timed through pytest-benchmark's fixture."""

    pair: PairEntry

    @classmethod
    def of(cls, parent: SuiteFile, pair: PairEntry, *, can_time: bool) -> "PairItem":
        planned, entry = pair.planned, pair.entry
        clock = SampledClock()
        timed = can_time and planned.case.tier != "edge" and entry not in planned.untimed
        name = f"{planned.case.key}-{entry.implementation}-{entry.mode}"
        call = _timed(pair, clock, parent.config) if timed else _verified(pair, parent.config)
        # The fixtures of items are looked up once a file and kind: for thousands of items it would take half a second.
        item: PairItem = cls.from_parent(parent, name=name, callobj=call, fixtureinfo=parent.fixtures.get(timed))
        parent.fixtures[timed] = item._fixtureinfo
        item.pair = pair
        needs = planned.operator.implementation(entry.implementation).needs
        gpu = entry.mode == "graph" or any(need.startswith(("cuda", "gpus:", "sm_")) for need in needs)
        for marker in (entry.role, planned.case.tier, *(["gpu"] if gpu else [])):
            item.add_marker(_marker(marker))
        if can_time:
            item.add_marker(_marker("benchmark")(group=planned.case.key, timer=clock))
        if parent.config.pluginmanager.hasplugin("xdist"):  # --dist loadgroup keeps a case in one process
            item.add_marker(_marker("xdist_group")(planned.case.key))
        if reason := planned.skipped.get(entry):
            item.add_marker(pytest.mark.skip(reason=reason))
        return item

    def setup(self) -> None:
        """Set the test up, and write its whole name to the junit file: pytest 9.1 and later split a name at its brackets."""
        if (xml := self.config.stash.get(xml_key, None)) is not None:
            xml.node_reporter(self.nodeid).add_attribute("name", self.name)
        super().setup()

    def reportinfo(self) -> tuple[Any, int | None, str]:
        return self.path, _lines(self.path).get(self.pair.planned.operator.name, 1) - 1, self.name


@functools.cache
def _marker(name: str) -> pytest.MarkDecorator:
    """Return a marker; looking one up for each of thousands of items takes as long as making the items."""
    marker: pytest.MarkDecorator = getattr(pytest.mark, name)
    return marker


@functools.cache
def _lines(path: Path) -> dict[str, int]:
    return {name: declared.line for name, declared in about(path, path.name).items()}


def _verified(pair: PairEntry, config: pytest.Config) -> Callable[[], None]:
    def verify() -> None:
        with _without_traceback():
            _judge(config.stash[BENCH].verified(pair))

    return verify


def _timed(pair: PairEntry, clock: SampledClock, config: pytest.Config) -> Callable[..., None]:
    def measure(benchmark: Any, request: pytest.FixtureRequest) -> None:
        # `--collect-only` need not wait for these.
        from pairbench.features.exchange.pytest_benchmark import ROUND_SIZES, SAMPLES_OF, extra_info_of

        with _without_traceback():
            bench = config.stash[BENCH]
            if not benchmark.enabled:
                # An error is raised where the fixture sees it, or the fixture would complain that it was not used.
                benchmark.pedantic(functools.partial(_judge, bench.verified(pair)))
                return
            outcome, record = bench.measured(pair)
            case, operator, entry = pair.planned.case, pair.planned.operator.name, pair.entry
            named = {"operator": operator, "implementation": entry.implementation, "mode": entry.mode}
            benchmark.param, benchmark.params = case.key, {**dict(case.axes), **named}
            latency, rounds = samples_to_play(outcome, record, config.getoption("pairbench_latency"))
            played = {SAMPLES_OF: latency, ROUND_SIZES: [len(samples) for samples in rounds]}
            benchmark.extra_info.update(extra_info_of(record), **played)
            if outcome.status.bad or not rounds:
                benchmark.pedantic(functools.partial(_judge, outcome))
                return
            clock.play(benchmark, [sample for samples in rounds for sample in samples])
            known = {name: getattr(record, name) for name in _PROPERTIES}
            request.node.user_properties += [(name, value) for name, value in known.items() if value is not None]

    return measure


def samples_to_play(outcome: Outcome, record: Record, wanted: str | None) -> tuple[str, list[list[float]]]:
    """Return the latency to show, `device` or `call`, as wanted or as the record's result is, and its samples in ns of each round."""
    rounds = sampled_rounds(outcome)
    latency = DEVICE if DEVICE in rounds and result_of(record) is DEVICE and wanted != CALL.name else CALL
    return latency.name, rounds[latency]


class _UnverifiedError(Exception):
    """An entry that is wrong, or cannot run here, so that it is not timed."""

    def __init__(self, reason: str, *, skipped: bool) -> None:
        super().__init__(reason)
        self.skipped = skipped


def _judge(outcome: Outcome) -> None:
    skipped = outcome.status is Status.SKIPPED
    if outcome.status.bad or skipped:
        reason = outcome.reason or "no reason is known"
        raise _UnverifiedError(reason if skipped else f"{outcome.status}: {reason}", skipped=skipped)


@contextlib.contextmanager
def _without_traceback() -> Iterator[None]:
    """Fail or skip with the sentence alone: a traceback would show pairbench's code, where the fault is not."""
    try:
        yield
    except _UnverifiedError as error:
        if error.skipped:
            raise pytest.skip.Exception(str(error)) from None
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    except PairbenchError as error:
        raise pytest.fail.Exception(f"pairbench: {error}", pytrace=False) from None


@dataclass
class Bench:
    """Verifies and measures one case at a time, from when the first item asks: all entries that the session wants, and their baselines."""

    config: Config
    context: WorkerContext
    loader: SuiteLoader
    notify: Callable[[str], None]
    times: bool
    save: bool
    shared: bool  # whether other processes of this session verify on the same device
    records: list[Record] = field(default_factory=list)
    _states: dict[_Key, CaseState] = field(default_factory=dict)
    _verified: set[_Key] = field(default_factory=set)
    _results: dict[_Key, dict[Entry, tuple[Outcome, Record]]] = field(default_factory=dict)
    _whole: bool = True
    _changed: Chosen | None = None
    _held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _files: RunFiles | None = None

    def select(self, selected: Iterable[PairEntry], *, whole: bool, changed: Chosen | None) -> None:
        """Take in the selected entries; `whole`: these are all of their suites; `changed`: the choice of `--pairbench-changed-since`."""
        self._whole, self._changed = whole, changed
        entries, planned = dict[_Key, dict[Entry, None]](), dict[_Key, PlannedCase]()
        for item in selected:
            planned[self._key(item)] = item.planned
            control = Entry(implementation="baseline", mode=item.entry.mode)
            entries.setdefault(self._key(item), {}).update({control: None, item.entry: None})
        for key, chosen in entries.items():
            kept = tuple(entry for entry in planned[key].entries if entry in chosen)
            self._states[key] = CaseState(planned=replace(planned[key], entries=kept))

    def _key(self, item: PairEntry) -> _Key:
        # Among several processes, each has some items of a case, and does not know which.
        return (*item.case, item.entry) if self.shared else item.case

    def verified(self, item: PairEntry) -> Outcome:
        key = self._key(item)
        state = self._states[key]
        if key not in self._verified:
            self._cases.verify(state)
            self._verified.add(key)
        # Once its case is measured, an entry that was only to be verified is ended as skipped.
        verified = item.entry in state.verified and item.entry in item.planned.untimed
        return replace(state.outcome(item.entry), status=Status.VERIFIED) if verified else state.outcome(item.entry)

    def measured(self, item: PairEntry) -> tuple[Outcome, Record]:
        """Return an entry's outcome and record, once its case is measured."""
        key = self._key(item)
        if key not in self._results:
            self.verified(item)
            recorder = self._recorder  # fails before anything is measured where the store cannot be written
            meter = LoadMeter()
            self._cases.measure(self._states[key])
            load = self._watch.during([self._states[key]], [meter.foreign_cores()])
            recorder.environment = load.put_in(self.environment)
            self._watch.end(load)
            self._results[key] = _keep(recorder, self._states[key])
        return self._results[key][item.entry]

    @functools.cached_property
    def environment(self) -> Environment:
        where = self.context, self._device
        return self._asked().put_in(probe_device(*where, self._watch) if self.times else probe_environment(*where))

    @functools.cached_property
    def _watch(self) -> HostWatch:
        return HostWatch(self._device, self.notify)

    @functools.cached_property
    def run(self) -> Run:
        return new_run(self._chosen(), self.config)

    def close(self) -> None:
        """Record the cases that were not reached, end the workers, finish the files and release the device.

        Raises StoreFailedError where the store has not taken all records; the message says where the rest is.
        """
        try:
            if self._files is not None:
                for key, state in self._states.items():
                    if key not in self._results and state.planned.case.tier != "edge":
                        state.leave_out_untimed()
                        state.interrupt(self.context.settings.rounds)
                        self._results[key] = _keep(self._recorder, state)
        finally:
            files, self._files = self._files, None
            kept = files.close() if files else None
            self._held.close()
        if kept is not None:
            raise StoreFailedError("\n".join(kept.lines()))

    @functools.cached_property
    def _device(self) -> Device:
        return equipped(self.loader.device, self.loader.devices, [state.planned for state in self._states.values()])

    @functools.cached_property
    def _cases(self) -> CaseByCase:
        device = self._device
        self._held.enter_context(device_lock(device, self.notify, lambda: False, shared=self.shared))
        self.loader.close()
        if self.times:
            # Probed while no worker of ours is on the device: it also finds the processes of others.
            _ = self.environment
        context = context_for(self.context, self.config, device)
        return self._held.enter_context(CaseByCase(context, device, times=self.times))

    @functools.cached_property
    def _recorder(self) -> Recorder:
        writer = None
        if self.save:
            self._files = RunFiles(self.run, self.config.store, self.notify)
            writer = self._files.writer(self.loader.device)
        return Recorder(run=self.run, environment=self.environment, records=self.records, writer=writer)

    def _chosen(self) -> Chosen:
        return self._changed or self.loader.chosen()

    def _asked(self) -> Requested:
        if not self._whole:
            nothing = frozenset[str]()
            return Requested(select=(), suites=nothing, tiers=nothing, modes=nothing)
        asked = requested_of(self._chosen(), self.loader.device, self.config.settings)
        return asked if self._changed else replace(asked, select=tuple((one, None) for one in sorted(asked.suites)))


def _keep(recorder: Recorder, state: CaseState) -> dict[Entry, tuple[Outcome, Record]]:
    outcomes = believed([state.outcome(entry) for entry in state.planned.entries], recorder.environment)
    if not outcomes:
        raise PairbenchError(f"{state.planned.case.key}: nothing of it was planned; please report this")
    return dict(zip(state.planned.entries, zip(outcomes, recorder.keep(outcomes), strict=True), strict=True))
