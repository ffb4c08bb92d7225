"""A case timed by a function that is not ours: Triton's `do_bench`, which needs a GPU and is stood in for here."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from pairbench import Variant
from pairbench.execute.protocol import Ended, TimeCase
from pairbench.execute.worker import trees
from pairbench.execute.worker.stages import time_case
from pairbench.execute.worker.timing import measure, new_values, recheck
from pairbench.model.environment import Settings
from pairbench.model.outcome import Status, TimedRound
from tests.execute.made import BASELINE, CONFIG, VARIANT, declare, job_of, new_heartbeat

testing = pytest.importorskip("triton.testing")


@pytest.fixture(autouse=True)
def do_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    def times(run: Callable[[], Any], *, return_mode: str) -> list[float]:
        assert return_mode == "all"
        taken = []
        for _ in range(7):
            began = time.perf_counter()
            run()
            taken.append((time.perf_counter() - began) * 1e3)
        return taken

    monkeypatch.setattr(testing, "do_bench", times)


def results(variant: Callable[[torch.Tensor], torch.Tensor] | Variant) -> list[Any]:
    operator = declare(variant)
    job = job_of(TimeCase, operator, round=0, capturable=())
    config = replace(CONFIG, settings=Settings(timer="do_bench"))
    return list(time_case(job, operator, config, new_heartbeat()))


def test_its_times_are_the_samples_and_what_overwrites_its_inputs_is_left_out() -> None:
    (timed,) = results(lambda x: 1 + x)
    assert isinstance(timed, TimedRound) and timed.timer == "do_bench"
    assert [samples.entry for samples in timed.entries] == [BASELINE, VARIANT]
    assert all(len(samples.call_ns) == 7 and min(samples.call_ns) > 100 for samples in timed.entries)
    ended, timed = results(Variant(lambda x: x.add_(1), consumes=["x"]))
    assert (ended.entry, ended.status) == (VARIANT, Status.SKIPPED)
    assert "do_bench cannot restore inputs between its calls, which consumes= asks for" in ended.reason
    assert [samples.entry for samples in timed.entries] == [BASELINE]


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("remembers", [False, True])
def test_what_it_timed_is_judged_as_well_also_where_memory_is_short(
    monkeypatch: pytest.MonkeyPatch, remembers: bool, short: bool
) -> None:
    kept = dict[int, torch.Tensor]()
    for module in (measure, new_values, recheck, trees) if short else ():
        monkeypatch.setattr(module, "has_room", lambda *_, **__: False)
    timed, *ended = results(lambda x: kept.setdefault(0, x + 1) if remembers else x + 1)[::-1]
    assert isinstance(timed, TimedRound)
    assert [(one.entry, one.status) for one in ended] == [(VARIANT, Status.MISMATCHED)] * remembers


def test_memory_that_runs_out_as_it_is_judged_is_charged_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(recheck, "judge", no_room)
    monkeypatch.setattr(recheck, "clearly_right", no_room)
    found = results(lambda x: x + 1)
    ended = {one.entry: (one.status, one.reason) for one in found if isinstance(one, Ended)}
    assert ended and {status for status, _ in ended.values()} == {Status.SKIPPED}
    assert all("the harness ran out of memory as it judged what was timed" in reason for _, reason in ended.values())
