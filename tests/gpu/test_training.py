"""A backward as CUDA graph: captured over a forward that is captured too, whose replay makes what was saved valid again."""

from typing import Any

import pytest
import torch

from pairbench.execute.worker.calls import build_inputs, make_call
from pairbench.execute.worker.graphs import Rotation, rotate
from pairbench.execute.worker.trees import copy_tree, refill
from pairbench.model.operator import Operator

pytestmark = pytest.mark.gpu


def plain(x: Any, weight: Any) -> Any:
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight


@pytest.mark.parametrize("direction", ["fwd", "bwd", "fwd_bwd"])
@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_a_replay_computes_with_the_values_in_place(direction: str, mode: str) -> None:
    operator = Operator(
        "norm",
        baseline=plain,
        variants={"same": plain},
        inputs=lambda make, n: {"x": make.normal(n, n), "weight": make.normal(n)},
        cases=[dict(n=256)],
        gradients=["x", "weight"],
    )
    case = next(case for case in operator.cases if dict(case.axes)["direction"] == direction)
    directed, device = operator.at(case), torch.device("cuda")
    call = make_call(directed, directed.baseline, mode, build_inputs(directed, case, device, 0))
    call.observe()
    captured: Any = call.run if mode == "graph" else call.capture()
    replay = rotate(captured)
    assert isinstance(replay, Rotation)
    for seed in range(1, 4):
        fresh = build_inputs(directed, case, device, seed)
        refill(call.shared, fresh)
        right = copy_tree(make_call(directed, directed.baseline, "eager", fresh).observe())
        for _ in replay.replays:
            replay.before()
            torch.testing.assert_close(copy_tree(replay()), right)
