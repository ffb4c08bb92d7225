import contextlib
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pairbench.execute.worker import graphs
from pairbench.execute.worker.graphs import CaptureError, Replay, Rotation, capture, rotate


class Device:
    """A device whose time is that of the replays."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.replays = 0

    def event(self, **_: object) -> Any:
        made = SimpleNamespace(at=0.0, synchronize=lambda: None)
        made.record = lambda: setattr(made, "at", self.now_ms)
        made.elapsed_time = lambda later: later.at - made.at
        return made

    def captured(self, ms: float, *, first_ms: float = 0.0) -> Replay:
        def replay() -> None:
            self.now_ms += ms + (first_ms if not self.replays else 0.0)
            self.replays += 1

        return Replay(call=lambda: None, graph=SimpleNamespace(replay=replay), outputs=None)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()

    def captures(_: Callable[[], Any], **__: Any) -> Replay:
        return made.captured(0.0)

    monkeypatch.setattr(torch.cuda, "Event", made.event)
    monkeypatch.setattr(graphs, "capture", captures)
    return made


@pytest.mark.parametrize(
    ("ms", "first_ms", "rotates", "replays"),
    [
        pytest.param(0.01, 0.0, True, 4, id="short"),
        pytest.param(0.01, 2.0, True, 4, id="short, with an upload"),
        pytest.param(0.2, 0.0, False, 4, id="not short"),
        pytest.param(1500.0, 0.0, False, 1, id="a decoder"),
    ],
)
def test_short_calls_take_turns(device: Device, ms: float, first_ms: float, rotates: bool, replays: int) -> None:
    found = rotate(device.captured(ms, first_ms=first_ms))
    assert isinstance(found, Rotation) is rotates
    assert device.replays == replays


ENDED = "CUDA error: operation failed due to a previous error during capture"


@pytest.mark.parametrize(
    ("ends", "attempts"),
    [
        pytest.param([ENDED], 2, id="ended by another"),
        pytest.param(["CUDA error: operation not permitted when stream is capturing"], 1, id="forbids it itself"),
        pytest.param([ENDED, ENDED], 2, id="ended twice"),
    ],
)
def test_what_another_ended_is_captured_once_more(
    monkeypatch: pytest.MonkeyPatch, ends: list[str], attempts: int
) -> None:
    left, tried = iter(ends), list[int]()

    def capture_once(*_: Any) -> Replay:
        tried.append(1)
        for end in left:
            raise CaptureError(end)
        return Device().captured(1.0)

    stream = SimpleNamespace(wait_stream=lambda _: None, synchronize=lambda: None)
    monkeypatch.setattr(graphs, "_capture_once", capture_once)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    with pytest.raises(CaptureError, match=re.escape(ends[-1])) if attempts == len(ends) else contextlib.nullcontext():
        capture(lambda: None)
    assert len(tried) == attempts
