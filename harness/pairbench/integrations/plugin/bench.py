"""Measures the cases of a pytest session when their items ask for it, and keeps the records."""

import contextlib
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from pairbench.analyze.records import Run, believed
from pairbench.config import Config
from pairbench.errors import PairbenchError, StoreFailedError
from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.host_load import LoadMeter
from pairbench.execute.parent.lock import device_lock
from pairbench.execute.parent.pool import WorkerContext
from pairbench.execute.parent.quick_look import CaseByCase
from pairbench.execute.parent.scout import probe_environment
from pairbench.integrations.plugin.items import PairEntry, SuiteLoader
from pairbench.model.environment import Device, Environment
from pairbench.model.outcome import Outcome, Status
from pairbench.model.plan import Entry, PlannedCase
from pairbench.model.record import Record
from pairbench.plan import equipped
from pairbench.workflow.devices import HostWatch, probe_device
from pairbench.workflow.record import Recorder, RunFiles, context_for, new_run
from pairbench.workflow.requested import Requested
from pairbench.workflow.setup import Chosen, requested_of

_Key = tuple[str, str] | tuple[str, str, Entry]


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
        entries: dict[_Key, dict[Entry, None]] = {}
        planned: dict[_Key, PlannedCase] = {}
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
        if not self.times:
            return self._asked().put_in(probe_environment(self.context, self._device))
        return self._asked().put_in(probe_device(self.context, self._device, self._watch))

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
