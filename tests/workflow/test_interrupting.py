import signal
import sys
import time
import weakref

import pytest

from pairbench.workflow.setup import ends_on_signals


class Thing:
    """Something that is let go."""

    def __init__(self, number: int = 0) -> None:
        self.number = number

    def __del__(self) -> None:
        if self.number:
            signal.raise_signal(self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("where", ["callback", "end of a thing"])
def test_a_signal_where_what_is_raised_is_dropped(
    number: int, where: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)  # a command's, not that of tests
    before = sys.unraisablehook, [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGALRM)]

    def command() -> None:
        thing = Thing(number if where == "end of a thing" else 0)
        noticed = weakref.ref(thing, lambda _: signal.raise_signal(number)) if where == "callback" else None
        del thing
        time.sleep(5)
        raise AssertionError(f"nobody heard it, {noticed}")

    with pytest.raises(SystemExit) as ended, ends_on_signals():
        command()
    assert ended.value.code == 130 and capfd.readouterr().err == ""
    assert (sys.unraisablehook, [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGALRM)]) == before


def test_what_else_is_dropped_is_told(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)

    def fail(_: object) -> None:
        raise ValueError("told")

    with ends_on_signals():
        thing = Thing()
        noticed = weakref.ref(thing, fail)
        del thing
    assert noticed() is None and "ValueError: told" in capfd.readouterr().err
