from collections import namedtuple
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pairbench import Operator, Tolerance
from pairbench.execute.protocol import CompareOutputs, Fingerprint, FingerprintOutputs, SaveOutputs
from pairbench.execute.worker.verify import outputs as module
from pairbench.execute.worker.verify.outputs import exchange_outputs, fingerprint
from pairbench.model.outcome import Agreement, OutputsCompared
from tests.execute.made import BASELINE, VARIANT, declare, job_of, new_heartbeat

CPU = torch.device("cpu")
Pair = namedtuple("Pair", "left right")  # noqa: PYI024 (an untyped one, as suites have)


@given(
    size=st.integers(1, 300),
    at=st.integers(0, 299),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int8, torch.float64, torch.complex64]),
)
def test_one_bit_more_is_another_fingerprint(size: int, at: int, dtype: torch.dtype) -> None:
    tensor = torch.zeros(size, dtype=dtype)
    other = tensor.clone()
    other.view(torch.uint8)[at % (size * tensor.element_size())] ^= 1
    assert fingerprint(tensor) == fingerprint(tensor.clone()) != fingerprint(other)


@given(words=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_a_digest_is_the_sum_that_it_says(words: list[int]) -> None:
    """Whatever machine computes it: sums and products that wrap round, in Python's whole numbers."""

    def signed(value: int) -> int:
        return (value + 2**63) % 2**64 - 2**63

    def odd(place: int) -> int:
        mixed = signed((place + 1) * 0x9E3779B97F4A7C15)
        mixed = signed((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9)
        mixed = signed((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB)
        return mixed | 1

    expected = sum(word * odd(place) for place, word in enumerate(words)) % 2**64
    assert module._digest(torch.tensor(words)) == expected


def test_bits_order_shape_dtype_and_place_count_and_strides_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.arange(6.0)
    different = [x, x.flip(0), x.reshape(2, 3), x.double(), {"a": x}, {"b": x}, (x, x), x[:5], torch.cat([x, x[:1]])]
    assert len({fingerprint(tree) for tree in different}) == len(different)
    table = x.reshape(2, 3)
    assert fingerprint(table.t().contiguous()) == fingerprint(table.t()) == fingerprint(table.clone().t())
    assert fingerprint(torch.arange(7.0)[1:]) == fingerprint(torch.arange(1.0, 7.0))
    zero, nan = torch.zeros(2), torch.full((2,), float("nan"))
    assert fingerprint(zero) != fingerprint(-zero)
    assert fingerprint(nan) == fingerprint(nan.clone())
    assert fingerprint(torch.zeros(0)) != fingerprint(torch.zeros(0, 3))
    assert fingerprint([1, "a", None]) != fingerprint([2, "a", None])
    assert fingerprint([object()]) == fingerprint([object()])
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    whole = fingerprint(x)
    monkeypatch.setattr(module, "_CHUNK", 64)
    assert fingerprint(x) == whole, "nor do the pieces that it is read in"


def exchanged(old: Operator, new: Operator, folder: Path) -> OutputsCompared:
    file = folder / "outputs.pt"
    saving = job_of(SaveOutputs, old, "v", file=file)
    assert list(exchange_outputs(saving, old, new_heartbeat(), CPU)) == [VARIANT]
    (found,) = exchange_outputs(job_of(CompareOutputs, old, "v", file=file), new, new_heartbeat(), CPU)
    assert isinstance(found, OutputsCompared)
    return found


def test_outputs_within_the_tolerance_beyond_it_and_of_another_form(tmp_path: Path) -> None:
    loose = Tolerance(atol=0.1)
    old = declare(lambda x: x + 1, tolerance=loose)
    near = exchanged(old, declare(lambda x: x + 1.05, tolerance=loose), tmp_path)
    assert near.agreement is Agreement.WITHIN and near.correctness is not None
    assert near.correctness.margin == pytest.approx(0.5, abs=0.01)
    far = exchanged(old, declare(lambda x: x + 1.2, tolerance=loose), tmp_path)
    assert far.agreement is Agreement.DIFFERENT
    assert "differs from the reference's in 8 of 8 elements" in (far.reason or "")
    found = exchanged(old, declare(lambda x: (x + 1, x)), tmp_path)
    assert found.agreement is Agreement.DIFFERENT and "the reference returns" in (found.reason or "")

    def variant(x: torch.Tensor) -> object:
        return {"pair": Pair(x, x + 1), "flag": True, "name": "a", "own": VARIANT}

    found = exchanged(declare(variant), declare(variant), tmp_path)
    assert found.agreement is Agreement.WITHIN and found.reason is None, "trees of a suite's own types cross"


def test_inputs_and_outputs_are_told_and_state_counts() -> None:
    def moves(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)

    job = job_of(FingerprintOutputs, declare(), "v")
    plain = list(exchange_outputs(job, declare(lambda x: x + 1), new_heartbeat(), CPU))
    moved = list(exchange_outputs(job, declare(moves, state=["x"]), new_heartbeat(), CPU))
    assert all(isinstance(item, Fingerprint) for item in plain + moved)
    assert [item.entry for item in plain] == [None, VARIANT]
    assert plain[0].text == moved[0].text and plain[1].text != moved[1].text


def test_what_raises_ends_only_itself() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no")

    job = job_of(FingerprintOutputs, declare(), "v", "baseline")
    found = list(exchange_outputs(job, declare(fails), new_heartbeat(), CPU))
    assert "ValueError: no" in found[1].reason and found[2].entry == BASELINE
