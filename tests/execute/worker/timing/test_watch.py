from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from pairbench.errors import DeclarationError
from pairbench.execute.worker import trusted
from pairbench.execute.worker.flags import restore_flags, watched_flags
from pairbench.execute.worker.guard import SuiteFaultError, UnnamedError
from pairbench.execute.worker.timing.values import FirstCalls, Values, Watch
from pairbench.execute.worker.trees import copy_tree, refill


@pytest.fixture(autouse=True)
def _flags() -> Iterator[None]:
    before = watched_flags()
    yield
    restore_flags(before)


def made(*, sets: int = 2, **constants: torch.Tensor) -> tuple[Values, Watch]:
    shared = {"x": torch.arange(5.0), "half": torch.arange(6.0).to(torch.float16)[::2]}
    several: list[dict[str, Any]] = [copy_tree(shared) for _ in range(sets)]
    for number, one in enumerate(several):
        one["x"] += number
    values = Values(
        shared=shared, sets=(shared,) if sets == 1 else tuple(several), place_s=0.0, free_s=1.0, judged=True
    )
    return values, Watch(values, constants)


def test_honest_turns_pass_and_a_later_write_is_named() -> None:
    values, watch = made(weight=torch.ones(3))
    for block in range(20):
        with watch.turn(block):
            values.put(block % 2)
            assert values.shared["x"].sum() >= 10
    with watch.turn(5):
        values.shared["x"].add_(1.0).sub_(1.0)  # what is taken back is no change
    assert watch.changed() is None
    with pytest.raises(DeclarationError), watch.turn(1010):
        values.shared["x"].zero_()
    assert values.shared["x"].sum() >= 10, "the others get the inputs as they were"
    values.shared["x"].data.zero_()
    assert "changes its input 'x'" in (watch.changed() or ""), "a write that nobody saw is found at the end"


@pytest.mark.parametrize("sets", [1, 2])
@pytest.mark.parametrize("name", ["x", "half", "weight"])
@pytest.mark.parametrize("seen", [True, False], ids=["by torch", "unseen"])
def test_who_changes_an_input_is_named(name: str, seen: bool, sets: int) -> None:
    weight = torch.ones(3)
    values, watch = made(sets=sets, weight=weight)
    target = {**values.shared, "weight": weight}[name]
    with watch.turn(0):
        pass
    with pytest.raises(DeclarationError, match=f"changes its input '{name}' while it is timed"), watch.turn(0):
        (target if seen else target.data)[-1] += 1


@pytest.mark.parametrize("block", [0, 1000])
def test_who_leaves_a_thread_is_named_in_any_block(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    left: list[str] = []
    monkeypatch.setattr(trusted, "left_running", lambda **_: next(iter(left), None))
    _, watch = made()
    with pytest.raises(DeclarationError, match="leaves a thread"), watch.turn(block):
        left.append("leaves a thread running")


def test_who_changes_a_flag_is_named_and_it_is_put_back() -> None:
    _, watch = made()
    with pytest.raises(DeclarationError, match="grad_enabled True -> False"), watch.turn(0):
        torch.set_grad_enabled(False)
    assert torch.is_grad_enabled()


def test_a_change_in_a_turn_that_was_not_looked_at_is_the_case_s() -> None:
    _, watch = made()
    watch._owed_s = 1e9
    with watch.turn(1):
        torch.set_grad_enabled(False)
    watch._owed_s = 0.0
    with pytest.raises(SuiteFaultError, match="one of the implementations changes global flags"), watch.turn(2):
        pytest.fail("nothing is timed then")


def test_looking_takes_a_small_part_of_the_time() -> None:
    _, watch = made()
    looked = 0
    for block in range(1, 400):
        with watch.turn(block):
            pass
        looked += watch._clean
    assert looked < 100


def first_calls(x: torch.Tensor) -> FirstCalls:
    inputs = {"x": x, "more": [torch.ones(2), 3]}
    before = copy_tree(inputs)
    return FirstCalls(inputs, lambda: refill(inputs, before))


def test_who_changes_an_input_before_anything_is_timed_is_named() -> None:
    x = torch.arange(5.0)
    looks = first_calls(x)
    looks.look()
    for _ in range(2):
        x.zero_()
        with pytest.raises(DeclarationError, match="changes its input 'x' as it is made ready to be timed"):
            looks.look()
        assert x.tolist() == [0, 1, 2, 3, 4]
    looks.look()
    x.add_(1).sub_(1)
    looks.look()
    assert looks.changed() is None
    x = torch.arange(5.0)
    looks = first_calls(x)
    x.data.zero_()
    looks.look()
    assert looks.changed() == (
        "changes its input 'x' as it is made ready to be timed; an operator leaves its inputs alone: declare consumes=('x',) if its caller "
        "may lose it, or state= if what a call leaves there is a result"
    )


def _turns(watch: Watch, *calls: Callable[[], object]) -> Callable[[], str]:
    """Return what times some calls in turns that are not looked at by themselves."""

    def time() -> str:
        for index, call in enumerate(calls):
            watch._owed_s = 1e9
            try:
                with watch.turn(1000):
                    call()
            except DeclarationError as error:
                return f"{index}: {error}"
        return "timed"

    return time


def _changes_a_flag() -> None:
    torch.set_num_threads(torch.get_num_threads() + 1)


def test_what_is_done_unseen_is_put_back_and_its_author_named_the_second_time() -> None:
    _, watch = made()
    assert watch.named(_turns(watch, int, _changes_a_flag, int)).startswith("1: changes global flags")
    assert watch.changed() is None
    _, watch = made()
    changes: Iterator[Callable[[], object]] = iter([_changes_a_flag, int])

    def changes_once() -> None:
        next(changes)()

    assert watch.named(_turns(watch, int, changes_once, int)) == "timed"
    assert watch.changed() is None


def test_what_runs_and_cannot_be_put_back_is_nobody_s(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[str] = []
    monkeypatch.setattr(trusted, "left_running", lambda *, thorough=True: next(iter(left), None) if thorough else None)
    _, watch = made()
    with pytest.raises(UnnamedError, match="one of the implementations leaves a thread"):
        watch.named(_turns(watch, int, lambda: left.append("leaves a thread running"), int))
