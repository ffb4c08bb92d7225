"""Problems of the form of SOL-ExecBench, our own ones."""

from pathlib import Path
from typing import Any

import pytest
import torch

from pairbench.execute.worker.calls import build_inputs, make_call
from pairbench.model.operator import Operator
from tests.corpora.conftest import definition, only, save, solution, spec, workload

CPU = torch.device("cpu")
NAMES = {
    "post_norm_weight": spec("N"),
    "norm_bias": spec("N"),
    "attention_mask": spec("1", "M", "M"),
    "sin": spec("M"),
    "rstd": spec("M", dtype="float64"),
    "A_log": spec("M"),
    "routing_weights": spec("M", "N"),
    "q_proj": spec("N", "TWICE"),
    "token_ids": spec("M", dtype="int64"),
    "drop_mask": spec("M", dtype="float16"),
}


def called(operator: Operator, variant: str, place: int = 0) -> Any:
    inputs = build_inputs(operator, operator.cases[place], CPU, 0)
    return make_call(operator, operator.implementations[variant], "eager", inputs).observe()


@pytest.fixture
def sol(tmp_path: Path) -> Path:
    reference = """
        import torch

        def generate(axes_and_scalars, device):
            return {"x": torch.rand(axes_and_scalars["M"], axes_and_scalars["TWICE"], device=device) + axes_and_scalars["N"]}

        def run(x):
            return x - 24, x.sum(1)
    """
    axes = {
        "M": {"type": "var"},
        "N": {"type": "const", "value": 24},
        "TWICE": {"type": "expr", "expression": "2 * N + M // 8"},
    }
    made = definition(
        "own",
        reference,
        axes=axes,
        inputs={"x": spec("M", "TWICE")},
        outputs={"y": spec("M", "TWICE"), "sum": spec("M")},
        custom_inputs_entrypoint="generate",
    )
    del made["op_type"]
    path = save(tmp_path / "own" / "definition.json", made)
    save(path.parent / "workload.jsonl", workload("a-1", {"M": 4}, x={"type": "custom"}), workload("a-2", {"M": 3}))
    content = "def run(x, y, s):\n    y.copy_(x - 24)\n    s.copy_(x.sum(1))\n"
    one = solution("mine", "own", content, languages=["pytorch"])
    save(path.parent / "solution_python.json", one)
    return path


def test_a_folder_is_a_problem_with_its_own_inputs(sol: Path) -> None:
    operator = only(sol)
    assert [case.key for case in operator.cases] == ["own[M=3,workload=a-2]", "own[M=4,workload=a-1]"]
    inputs = build_inputs(operator, operator.cases[1], CPU, 0)
    assert inputs["x"].shape == (4, 48) and bool((inputs["x"] >= 24).all()), (
        "an axis that is computed, and the problem's function"
    )
    for left, right in zip(called(operator, "baseline", 1), called(operator, "mine", 1), strict=True):
        torch.testing.assert_close(left, right)


def test_random_inputs_go_by_their_names(tmp_path: Path) -> None:
    axes = {"M": {"type": "var"}, "N": {"type": "const", "value": 24}, "TWICE": {"type": "expr", "expression": "2*N"}}
    made = definition("names", "def run(*inputs):\n    return inputs[0]\n", axes=axes, inputs=NAMES)
    path = save(tmp_path / "names" / "definition.json", made)
    save(path.parent / "workload.jsonl", workload("a", {"M": 16}))
    operator = only(path)
    found = build_inputs(operator, operator.cases[0], CPU, 0)
    assert list(found)[:-1] == list(NAMES), "in the order of the definition"
    assert bool((found["post_norm_weight"] == 1).all()) and bool((found["norm_bias"] == 0).all())
    mask = found["attention_mask"][0]
    assert mask[0, 1] == torch.finfo(torch.float32).min and mask[1, 0] == 0 == mask[1, 1]
    assert (
        bool((found["sin"].abs() <= 1).all())
        and bool((found["rstd"] >= 0.1).all())
        and found["rstd"].dtype == torch.float64
    )
    assert bool((found["A_log"] < -0.9).all()) and found["routing_weights"].sum(-1).allclose(torch.ones(16))
    assert found["q_proj"].std() < 0.25 and found["token_ids"].dtype == torch.int64
    assert set(found["drop_mask"].tolist()) <= {0.0, 1.0}
