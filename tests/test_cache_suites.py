"""The suites of caches: what they save is counted, and their windows are right for more geometries than they declare."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from pairbench.execute.worker.calls import Make
from pairbench.model.operator import Operator
from pairbench.suite.modules import load_suite

SUITES = Path(__file__).parents[1] / "suites"


class Dispatched(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Counts operators by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def inputs_of(operator: Operator, **axes: object) -> dict[str, Any]:
    return dict(operator.inputs(Make(device=torch.device("cpu"), seed=0), **axes))


def count(operator: Operator, implementation: str, inputs: dict[str, Any]) -> Counter[str]:
    variant = operator.implementations[implementation]
    constants = {name: inputs[name] for name in operator.constants}
    prepared = variant.prepare(**constants) if variant.prepare else {}
    with Dispatched() as dispatched:
        variant.function(**inputs, **prepared)
    found: Counter[str] = dispatched.counts
    return found


@pytest.fixture(scope="module")
def rings() -> Operator:
    return load_suite(SUITES / "kv" / "ring.py")["kv_cache_ring"]


@pytest.fixture(scope="module")
def counters() -> Operator:
    return load_suite(SUITES / "kv" / "index.py")["kv_index_host"]


@pytest.fixture(scope="module")
def prompts() -> Operator:
    return load_suite(SUITES / "attention" / "cross_cache.py")["crossattn_cache"]


@settings(max_examples=60)
@given(
    window=st.integers(1, 9),
    sink=st.integers(0, 8),
    block=st.integers(1, 5),
    tokens=st.integers(1, 2),
    blocks=st.integers(1, 6),
    passes=st.integers(1, 2),
    videos=st.integers(1, 2),
)
def test_every_ring_keeps_the_tokens_of_the_window(rings: Operator, sink: int, window: int, **axes: int) -> None:
    assume(sink < window)
    inputs = inputs_of(rings, sink=sink, window=window, heads=1, size=2, dtype="float64", **axes)
    assert rings.oracle is not None
    expected = rings.oracle(**inputs)
    for name, variant in rings.implementations.items():
        if "triton" in variant.needs:
            continue
        for video, (found, wanted) in enumerate(zip(variant.function(**inputs), expected, strict=True)):
            for mine, theirs in zip(found, wanted, strict=True):
                assert torch.equal(mine, theirs), f"{name}, video {video}"


def test_a_ring_moves_nothing_but_what_is_new(rings: Operator) -> None:
    inputs = inputs_of(rings, window=6, block=3, tokens=2, blocks=5, passes=2, heads=1, size=2, dtype="float32")
    inserts = 5 * 2 * 2
    rolls = 3 * 2
    assert count(rings, "ring", inputs)["copy_"] == inserts
    assert count(rings, "baseline", inputs)["copy_"] == inserts + rolls
    assert count(rings, "two_buffers", inputs)["clone"] < count(rings, "baseline", inputs)["clone"]


def test_device_counters_are_read_three_to_six_times_a_layer_and_pass(counters: Operator) -> None:
    axes = dict(window=7, block=3, tokens=2, blocks=4, layers=3, passes=4, heads=1, size=2, dtype="float32")
    read = count(counters, "baseline", inputs_of(counters, **axes))["_local_scalar_dense"]
    blocks_that_fit, others = 2, 2
    assert read == 3 * (blocks_that_fit * (4 + 3 * 3) + others * (6 + 3 * 3))


@pytest.mark.parametrize("implementation", ["host_ints", "host_ring", "device_position"])
def test_nothing_else_asks_the_device(counters: Operator, implementation: str) -> None:
    axes = dict(window=7, block=3, tokens=2, blocks=4, layers=3, passes=4, heads=1, size=2, dtype="float32")
    found = count(counters, implementation, inputs_of(counters, **axes))
    assert found["copy_"] + found["index_copy_"] > 0
    assert not {"_local_scalar_dense", "item", "nonzero", "_to_copy"} & found.keys()


@pytest.mark.parametrize(
    ("implementation", "products"),
    [
        ("baseline", 2 * 2 * 3 * 3 * 2),  # keys and values, prompts, steps, layers, branches
        ("each_step_packed", 2 * 3 * 3 * 2),
        ("cached", 2 * 2 * 3 * 2),
        ("cached_packed", 2 * 3 * 2),
        ("cached_together", 2 * 2),
    ],
)
def test_a_cached_prompt_is_projected_once(prompts: Operator, implementation: str, products: int) -> None:
    axes = dict(tokens=4, width=8, heads=2, layers=3, steps=3, text=5, prompts=2, guided=True, dtype="float32")
    assert count(prompts, implementation, inputs_of(prompts, **axes))["addmm"] == products


def test_both_branches_may_share_the_image(prompts: Operator) -> None:
    axes = dict(tokens=4, width=8, heads=2, layers=3, steps=3, text=0, clip=5, guided=True, dtype="float32")
    found = {name: count(prompts, name, inputs_of(prompts, **axes))["addmm"] for name in ("cached", "cached_together")}
    assert found == {"cached": 2 * 3 * 2, "cached_together": 1}
