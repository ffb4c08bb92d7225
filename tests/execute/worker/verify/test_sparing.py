import functools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pairbench.errors import DeclarationError
from pairbench.execute.protocol import HoldCase, VerifyCase
from pairbench.execute.worker import stages, trees
from pairbench.execute.worker.guard import TooLargeError
from pairbench.execute.worker.profile import host_memory
from pairbench.execute.worker.verify import case as verify_case
from pairbench.execute.worker.verify import distance, judge, sparing
from pairbench.execute.worker.verify.audit import audit_automatic
from pairbench.execute.worker.verify.sparing import Held
from pairbench.model.case import grid
from pairbench.model.operator import Operator
from pairbench.model.outcome import Status, Verification
from tests.execute import made
from tests.execute.made import entry, job_of

CPU = torch.device("cpu")
ROWS, COLUMNS = 256, 2048
SIZE = ROWS * COLUMNS * 4


def elu(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.elu(x)


def declare(baseline: Callable[..., Any] = elu, **changes: Any) -> Operator:
    plain: dict[str, Any] = {
        "variants": {"v": lambda x: torch.where(x > 0, x, torch.expm1(x))},
        "inputs": lambda make, rows: {"x": make.normal(rows, COLUMNS)},
        "cases": grid(rows=[ROWS]),
    }
    return made.declare(baseline=baseline, **{**plain, **changes})


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparing, "free_bytes", lambda device: 0)
    monkeypatch.setattr(distance, "_CHUNK", 1 << 14)
    monkeypatch.setattr(judge, "_LARGE", 1 << 14)


def hold(operator: Operator) -> Held:
    (case,) = operator.cases
    job = job_of(VerifyCase, operator, automatic_impostors=False, declared_impostors=())
    references, useless = stages._held_or_sparing(job, operator, CPU)
    assert useless is None
    return Held(operator, case, CPU, references, functools.partial(stages._made, operator, CPU))


@pytest.mark.usefixtures("short")
def test_a_case_that_is_short_on_a_gpu_is_not_judged_by_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    operator, made = declare(), stages._made
    monkeypatch.setattr(stages, "_made", lambda operator, _, case, seed: made(operator, CPU, case, seed))
    job = job_of(HoldCase, operator, automatic_impostors=False)
    with pytest.raises(TooLargeError):
        stages._held_or_sparing(job, operator, torch.device("cuda"))
    assert stages._held_or_sparing(job, operator, CPU)[1] is None


def verify(held: Held, name: str = "v") -> Verification:
    return held.verify(entry(name))


@pytest.mark.parametrize(("baseline", "outputs"), [(elu, SIZE), (lambda x: x.sum(1), ROWS * 4)])
@pytest.mark.usefixtures("short")
def test_a_case_is_verified_within_inputs_two_outputs_and_a_float64_copy_of_both(
    baseline: Callable[..., Any], outputs: int
) -> None:
    operator = declare(baseline, variants={"v": baseline})

    def all_of_it() -> None:
        held = hold(operator)
        assert all(result.rejected for result in audit_automatic(operator, held.references[0]))
        for name in operator.implementations:
            found = verify(held, name)
            assert (found.status, found.reason) == (Status.VERIFIED, None)
            assert found.correctness is not None and found.correctness.oracle_ratio is not None

    all_of_it()
    peak, _ = host_memory(all_of_it)
    assert peak <= SIZE + 2 * outputs + 2 * (SIZE + outputs) + (1 << 20)


@pytest.mark.usefixtures("short")
def test_wrong_outputs_are_found_where_memory_is_short() -> None:
    first = dict[int, torch.Tensor]()
    wrong = {
        "wrong": lambda x: x * 1.01,
        "cached": lambda x: first.setdefault(0, elu(x)),
        "writes": lambda x: torch.nn.functional.elu(x, inplace=True),
    }
    operator = declare(variants=wrong)
    held = hold(operator)
    assert {name: verify(held, name).status for name in wrong} == dict.fromkeys(wrong, Status.MISMATCHED)


def out_of(calls: int) -> Callable[[torch.Tensor], torch.Tensor]:
    left = iter(range(calls))

    def call(x: torch.Tensor) -> torch.Tensor:
        if next(left, None) is not None:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 6.00 GiB")
        return elu(x)

    return call


@pytest.mark.parametrize(("calls", "outputs"), [(0, True), (1, True), (2, False)])
def test_memory_that_runs_out_in_a_call_has_less_held_and_the_call_made_again(calls: int, outputs: bool) -> None:
    operator = declare(variants={"v": out_of(calls)})
    held = hold(operator)
    found = verify(held)
    assert found.status is Status.VERIFIED and (held.references[0].outputs is not None) is outputs
    assert (found.reason is None) is outputs and (outputs or "no oracle: out of memory" in str(found.reason))
    assert held.references[0].sparing is (calls > 0)


def test_memory_that_runs_out_with_nothing_held_is_charged_and_what_the_harness_needs_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = declare(variants={"v": out_of(3)})
    with pytest.raises(torch.OutOfMemoryError):
        verify(hold(operator))
    operator = declare()
    held = hold(operator)

    def no_room(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(verify_case, "judge", no_room)
    found = verify(held)
    assert found.status is Status.SKIPPED and "the harness ran out of memory as it verified this, not the call" in str(
        found.reason
    )


@pytest.fixture
def small_oracle(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have the oracle run out of memory on more than a quarter of the rows; returns the sizes that it was computed for."""
    sizes = list[int]()
    plain = trees.upcast_inputs

    def upcast(tree: Any) -> Any:
        if tree["x"].numel() > ROWS * COLUMNS // 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        sizes.append(tree["x"].shape[0])
        return plain(tree)

    monkeypatch.setattr(trees, "upcast_inputs", upcast)
    return sizes


def shifted(x: torch.Tensor, by: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.softmax(x + by, 1), x.sum(1)


@pytest.mark.parametrize("size", [ROWS, ROWS - 3])
def test_an_oracle_that_does_not_fit_is_computed_in_slices(small_oracle: list[int], size: int) -> None:
    operator = declare(
        shifted,
        variants={"v": shifted},
        inputs=lambda make, rows: {"x": make.normal(rows, COLUMNS), "by": make.normal(COLUMNS)},
        cases=grid(rows=[size]),
        batched="rows",
    )
    held = hold(operator)
    assert small_oracle[:2] == [1, 2] and max(small_oracle) <= ROWS // 4
    first: Any = held.references[0]
    whole = shifted(*(tensor.double() for tensor in first.inputs.values()))
    assert all(torch.allclose(one, two) for one, two in zip(first.oracle.values(), whole, strict=True))
    found = verify(held)
    assert (
        found.status is Status.VERIFIED and found.correctness is not None and found.correctness.oracle_ratio is not None
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, r"out of memory.*; batched= names the axis along which it may be computed in slices"),
        (
            {"baseline": lambda x: x.sum(0), "batched": "rows"},
            r"no oracle: in slices along 'rows': output '' does not run along 'rows'",
        ),
    ],
)
@pytest.mark.usefixtures("small_oracle")
def test_an_oracle_that_does_not_fit_is_left_out_with_a_reason(changes: dict[str, Any], words: str) -> None:
    baseline = changes.get("baseline", elu)
    operator = declare(**{"variants": {"v": baseline}, **changes})
    found = verify(hold(operator))
    assert found.status is Status.VERIFIED and found.correctness is not None and found.correctness.oracle_ratio is None
    assert re.search(words, str(found.reason))


@pytest.mark.parametrize("axis", ["lines", "dtype"])
def test_batched_is_an_axis_of_whole_numbers(axis: str) -> None:
    with pytest.raises(DeclarationError, match=f"batched is '{axis}', expected the name of an axis of whole numbers"):
        declare(batched=axis, cases=grid(rows=[3], dtype=["float32"]), inputs=lambda make, rows, dtype: {})


@pytest.mark.parametrize(
    ("long_s", "copied_a_s", "kept"),
    [(0.0, 7e8, True), (60.0, 7e8, False), pytest.param(0.0, 1e-3, False, id="copying takes longer")],
)
def test_inputs_that_take_long_are_made_once_for_each_seed(
    monkeypatch: pytest.MonkeyPatch, long_s: float, copied_a_s: float, kept: bool
) -> None:
    """And once more to see how large they are."""
    monkeypatch.setattr(sparing, "is_short", lambda *_: True)
    monkeypatch.setattr(stages, "is_short", lambda *_: True)
    monkeypatch.setattr(sparing, "_LONG_S", long_s)
    monkeypatch.setattr(sparing, "_COPIED_BYTES_A_S", copied_a_s)
    calls = list[int]()

    def inputs(make: Any, rows: int) -> dict[str, torch.Tensor]:
        calls.append(rows)
        return {"x": make.normal(rows, 8)}

    operator = declare(inputs=inputs)
    held = hold(operator)
    assert [verify(held, name).status for name in operator.implementations] == [Status.VERIFIED] * 2
    assert len(calls) == 3 if kept else len(calls) > 15
