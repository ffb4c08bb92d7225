import pytest

from pairbench.model.environment import Device
from pairbench.workflow import progress
from pairbench.workflow.progress import BarProgress, PlainProgress

CPU = Device(selector="cpu", kind="cpu", name="a CPU")


def test_lines_count_no_further_than_their_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress.PlainProgress, "every_s", 0.0)
    shown = PlainProgress()
    shown.expect(CPU, 2)
    for number in range(4):
        shown.step(CPU, f"round {number + 1}", "silu[n=8]")
        shown.stepped(CPU)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "[0/2] cpu round 1: silu[n=8]"
    assert lines[1].startswith("[1/2] cpu round 2: silu[n=8] (about ")
    assert lines[2:] == ["[2/2] cpu round 3: silu[n=8]", "[3/3] cpu round 4: silu[n=8]"]


def test_bars_grow_with_what_comes_on_top() -> None:
    shown = BarProgress()
    try:
        shown.expect(CPU, 2)
        for _ in range(4):
            shown.step(CPU, "round", "silu[n=8]")
            shown.stepped(CPU)
        (task,) = shown._progress.tasks
        assert (task.completed, task.total) == (4, 4)
    finally:
        shown.close()
