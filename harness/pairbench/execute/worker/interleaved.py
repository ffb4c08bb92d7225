"""A worker's part in interleaved timing with another worker: one case kept open, timed a block at a time; between blocks its device is idle."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pairbench.execute.garbage import no_collection
from pairbench.execute.heartbeat import Heartbeat
from pairbench.execute.protocol import CloseCase, OpenCase, Opened, TakeBlock, TakenBlock, WorkerConfig
from pairbench.execute.worker.devices import synchronize
from pairbench.execute.worker.guard import of_case
from pairbench.execute.worker.stages import begin_case, release
from pairbench.execute.worker.timing.case import end_of
from pairbench.execute.worker.timing.measure import Blocks, EntryFailedError, EntryTimeoutError
from pairbench.execute.worker.timing.ready import Ready, make_ready, on_one_core
from pairbench.execute.worker.timing.recheck import judge_timed
from pairbench.model.operator import Operator


@dataclass(frozen=True, kw_only=True)
class _Open:
    job: OpenCase
    ready: Ready
    blocks: Blocks


class InterleavedCases:
    def __init__(self, config: WorkerConfig, heartbeat: Heartbeat) -> None:
        self._config = config
        self._heartbeat = heartbeat
        self._open: _Open | None = None
        self._held = contextlib.ExitStack()

    def open(self, job: OpenCase, operator: Operator) -> Iterator[Any]:
        """Yield the ends of entries, or `Opened` if there are none; the case before is dropped."""
        self._drop()
        yield from of_case(self._get_ready(job, operator))

    def _get_ready(self, job: OpenCase, operator: Operator) -> Iterator[Any]:
        device = begin_case(self._config, job, operator)
        ready = yield from make_ready(job, operator, self._config, self._heartbeat, device)
        if len(ready.timed) < len(job.entries):
            return
        self._held.enter_context(no_collection())
        self._held.enter_context(on_one_core(device))
        try:
            blocks = Blocks(
                ready.timed,
                timer=ready.timer,
                recorder=ready.recorder,
                heartbeat=self._heartbeat,
                rng=ready.rng,
                values=ready.values,
                watch=ready.watch,
            )
        except EntryFailedError as error:
            yield end_of(job, self._config, error)
            return
        synchronize(device)
        self._open = _Open(job=job, ready=ready, blocks=blocks)
        yield Opened(lead_in=tuple(timed.lead_in for timed in ready.timed))

    def take(self, job: TakeBlock) -> Iterator[Any]:
        yield from of_case(self._take(job, self._case()))

    def _take(self, job: TakeBlock, case: _Open) -> Iterator[Any]:
        for timed, lead_in in zip(case.ready.timed, job.lead_in, strict=True):
            timed.lead_in = lead_in
        try:
            throttled = case.blocks.take()
        except (EntryTimeoutError, EntryFailedError) as error:
            yield end_of(case.job, self._config, error)
            return
        synchronize(case.ready.device)
        device_ns = (timed.complete_device_ns() for timed in case.ready.timed)
        yield TakenBlock(
            call_ns=tuple(timed.call_ns[-1] for timed in case.ready.timed),
            device_ns=tuple(values[-1] if values else None for values in device_ns),
            throttled=throttled,
            rested_s=case.blocks.rested_s,
        )

    def close(self, job: CloseCase) -> Iterator[Any]:
        """Yield the ends of entries whose timed calls turn out wrong, and the `TimedRound`."""
        case = self._case()
        result, device = case.blocks.result(case.job.round, job.stop_reason), case.ready.device
        yield from of_case(judge_timed(case.ready, result.measuring_s, self._heartbeat))
        del case
        self._drop()
        release(device)
        yield result

    def _case(self) -> _Open:
        if self._open is None:
            raise RuntimeError("no case is open")
        return self._open

    def _drop(self) -> None:
        self._open = None
        self._held.close()
