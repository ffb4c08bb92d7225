from typing import Any

import pytest
import torch

from pairbench import Operator, Variant
from pairbench.errors import DeclarationError
from pairbench.execute.worker import calls
from pairbench.execute.worker.calls import Call, make_call
from pairbench.execute.worker.timing.values import Values
from tests.execute.made import declare

prepared = list[Any]()


def scaled(x: torch.Tensor, scale: Any, doubled: Any = None) -> torch.Tensor:
    return x * (2 * scale if doubled is None else doubled)


def double(scale: Any) -> dict[str, torch.Tensor]:
    prepared.append(scale)
    return {"doubled": torch.as_tensor(2.0 * scale)}


@pytest.mark.parametrize(
    ("scale", "fresh", "times", "right"),
    [(torch.tensor(3.0), torch.tensor(5.0), 2, 10.0), (3.0, 3.0, 1, 6.0)],
    ids=["a tensor", "a number"],
)
def test_values_of_constants_are_prepared_anew_where_there_are_any(
    scale: Any, fresh: Any, times: int, right: float
) -> None:
    operator = declare(Variant(scaled, prepare=double), baseline=scaled, constants=["scale"])
    prepared.clear()
    call = make_call(operator, operator.implementations["v"], "eager", {"x": torch.ones(1), "scale": scale})
    address = call.kwargs["doubled"].data_ptr()
    assert call.refill({"x": torch.ones(1), "scale": fresh})
    assert (call.run().item(), len(prepared)) == (right, times)
    assert call.kwargs["doubled"].data_ptr() == address


def append(x: torch.Tensor, cache: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    cache.index_copy_(0, position, x)
    position += 1
    return cache.sum(0)


def start(cache: torch.Tensor, position: torch.Tensor) -> None:
    cache.fill_(7)
    position.zero_()


def inputs(make: Any = None, n: int = 1) -> dict[str, torch.Tensor]:
    return {
        "x": torch.ones(1, 4),
        "cache": torch.full((3, 4), 5.0),
        "position": torch.tensor([1]),
    }


def operator(**changes: Any) -> Operator:
    return declare(append, **{"baseline": append, "inputs": inputs, "state": ["cache", "position"], **changes})


def made(**changes: Any) -> Call:
    op = operator(**changes)
    return make_call(op, op.baseline, "eager", inputs())


def test_values_are_restored_at_the_same_addresses_and_fresh_ones_from_then_on() -> None:
    call = made(reset=True)
    addresses = [call.kwargs[name].data_ptr() for name in ("cache", "position")]
    first = call.observe()["output"].clone()
    for _ in range(10):  # more than there is room for
        assert torch.equal(call.observe()["output"], first)
    for cached, position in ((5, 1), (9, 2)):
        call.reset()
        assert call.kwargs["position"].item() == position and bool((call.kwargs["cache"] == cached).all())
        assert call.refill({"x": torch.ones(1, 4), "cache": torch.full((3, 4), 9.0), "position": torch.tensor([2])})
        call.run()
    assert [call.kwargs[name].data_ptr() for name in ("cache", "position")] == addresses


def test_a_function_says_how() -> None:
    call = made(reset=start)
    for _ in range(10):
        observed = call.observe()
        assert observed["output"].tolist() == [15.0] * 4 and observed["state"]["position"].item() == 1


def test_without_it_a_call_finds_what_the_last_one_left() -> None:
    call = made()
    call.observe()
    call.observe()
    with pytest.raises(IndexError):
        call.observe()


@pytest.mark.parametrize(("reset", "judged"), [(False, False), (True, True), (start, True)])
def test_outputs_of_timed_calls_are_judged_where_state_is_put_back(reset: Any, judged: bool) -> None:
    op = operator(reset=reset)
    values = Values.of(op, op.cases[0], torch.device("cpu"), inputs(), 0.0)
    assert values.judged is judged


def test_a_reset_that_cannot_be_is_refused() -> None:
    with pytest.raises(DeclarationError, match="reset= puts state back, but there is none"):
        operator(reset=True, state=[])
    with pytest.raises(DeclarationError, match="reset is 'cache', expected True"):
        operator(reset="cache")


def test_a_captured_call_begins_where_the_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capturing calls it, and what it left in its state is not what is judged next."""

    def capture(call: Any, **_: Any) -> Any:
        call()
        return call

    monkeypatch.setattr(calls, "capture", capture)
    op = operator()
    captured, eager = (make_call(op, op.baseline, mode, inputs()).observe() for mode in ("graph", "eager"))
    assert torch.equal(captured["output"], eager["output"])
    assert torch.equal(captured["state"]["position"], eager["state"]["position"])
