"""A call that cannot be captured leaves nothing behind for those after it: no memory, no other stream."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]


def waits() -> Any:
    """Ask for a number of a gigabyte in the middle."""
    import torch

    found = torch.ones(2**28, device="cuda")
    return found * float(found[0])


def fills() -> Any:
    """Keep more than there is."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    return [torch.empty(free // 4, dtype=torch.uint8, device="cuda") for _ in range(5)]


@pytest.mark.parametrize("call", [waits, fills], ids=["waits", "fills"])
def test_memory_and_stream_are_what_they_were(call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from pairbench.execute.worker import graphs

    if call is fills:
        monkeypatch.setattr(graphs, "_CAPTURE_WARM_UP", 0)
    torch.zeros(1, device="cuda")
    torch.cuda.empty_cache()
    stream, before = torch.cuda.current_stream(), torch.cuda.memory_reserved()
    for _ in range(2):
        with pytest.raises(graphs.CaptureError):
            graphs.capture(call)
        assert torch.cuda.current_stream() == stream
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() <= before + 2**22
    free, _ = torch.cuda.mem_get_info()
    for part in (0.6, 0.7, 0.65):  # each needs the cached memory of the one before
        torch.empty(int(free * part), dtype=torch.uint8, device="cuda")
    replay = graphs.capture(lambda: torch.ones(16, device="cuda").sum())
    assert float(replay()) == 16


def test_a_call_that_starts_a_thread_is_not_captured() -> None:
    """What the thread launches is in no graph, so a replay would compute something else."""
    import torch

    from pairbench.execute.worker import graphs

    x, found = torch.ones(16, device="cuda"), list[Any]()

    def joins() -> Any:
        thread = threading.Thread(target=lambda: found.append(x + 1))
        thread.start()
        thread.join()
        return found.pop() * 2

    with pytest.raises(graphs.CaptureError, match=r"starts a thread \(test_failed_capture\.py, line \d+: 'Thread-"):
        graphs.capture(joins)
    assert joins().tolist() == [4.0] * 16
