"""Problems of SOL-ExecBench's form and lists of inputs of BackendBench's, our own ones."""

from pathlib import Path
from typing import Any

import pytest
import torch

from pairbench.errors import SuiteError
from pairbench.execute.worker.calls import make_call
from pairbench.execute.worker.inputs import build_inputs
from pairbench.model.operator import Operator
from tests.corpora.conftest import definition, only, operators, save, solution, spec, workload

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


def test_a_reference_may_stand_beside_the_definition(sol: Path, tmp_path: Path) -> None:
    made = definition("apart", "")
    del made["reference"]
    path = save(tmp_path / "apart" / "definition.json", made)
    save(path.parent / "reference.py", "def run(x):\n    return {'y': x * 2}")
    save(path.parent / "workload.jsonl", workload("a", {"M": 4}))
    assert called(only(path), "baseline").shape == (4, 24)
    (path.parent / "reference.py").unlink()
    with pytest.raises(SuiteError, match=r"apart/definition\.json: the key 'reference' is missing"):
        only(path)


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


LIST = """\
Operator: aten.add.Tensor
cnt: 12, ((T([8, 16], f32), T([8, 16], f32)), {'alpha': 2})
cnt: 0, ((T([4, 4], bf16), 2.0), {})
cnt: 3, ((T([6, 5], f32, [1, 6]), T([6, 5], 'f32', stride=[1, 6])), {})
cnt: 12, ((T([8, 16], f32),  T([8, 16], f32)), {'alpha': 2})
cnt: 1, ((T([8, 16], f32), __import__('os').getcwd()), {})
cnt: 1, ((T([8, -1], f32), 1), {})
cnt: 1, ((T([8], f32), 1), {'out': T([8], f32)})
cnt: one
Operator: aten.add_.Tensor
cnt: 2, ((T([8, 16], f32), T([16], f32)), {})
Operator: aten.clamp.default
cnt: 1, ((T([8, 16], i64), -3, None), {})
cnt: 1, ((T([8, 16], f32), -inf, 0.5), {})
Operator: aten._to_copy.default
cnt: 1, ((T([8, 16], f32),), {'dtype': f16, 'device': "torch.device('cuda')"})
Operator: aten.cat.default
cnt: 1, (([T([2, 3], u8), T([2, 3], u8)], 1), {})
Operator: aten.no_such.default
cnt: 1, ((T([8, 16], i64),), {})
"""


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    return save(tmp_path / "inputs.txt", LIST)


def test_a_list_of_inputs_is_a_suite_of_operators(inputs: Path) -> None:
    found = operators(inputs)
    assert list(found) == ["add.Tensor", "add_.Tensor", "clamp.default", "op__to_copy.default", "cat.default"]
    add = found["add.Tensor"]
    assert sorted(case.key.rpartition(",workload=")[0] for case in add.cases) == [
        "add.Tensor[dtype=bfloat16,shape=4x4",
        "add.Tensor[dtype=float32,shape=6x5",
        "add.Tensor[dtype=float32,shape=8x16",
    ]
    said = "\n".join(why for _, why in add.left_out)
    for words in (
        "line 5, add.Tensor: its inputs are those of an earlier line",
        "line 6, add.Tensor: \"__import__('os').getcwd()\" is unknown",
        "line 7, add.Tensor: 'T([8, -1], f32)' is unknown",
        "line 8, add.Tensor: it writes into out=",
        "line 9, add.Tensor: expected `cnt: N, ((...), {...})`",
        "'no_such.default' is no operator of this torch",
    ):
        assert words in said, said
    strided = next(case for case in add.cases if "6x5" in case.key)
    args = build_inputs(add, strided, CPU, 0)["args"]
    assert [one.stride() for one in args] == [(1, 6), (1, 6)]
    assert called(found["clamp.default"], "baseline").min() >= -3
    assert called(found["op__to_copy.default"], "baseline").dtype == torch.float16
    assert called(found["cat.default"], "baseline").shape == (2, 6)


def test_an_operator_in_place_is_judged_by_its_target(inputs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kernels" / "add___Tensor"
    save(folder / "add___Tensor_implementation_v1.py", "def add___Tensor_kernel_impl(a, b):\n    return a.copy_(a + b)")
    save(folder / "add___Tensor_implementation.py", "x = 3")
    operator = operators(inputs, tmp_path / "kernels")["add_.Tensor"]
    assert list(operator.variants) == ["compiled", "kernels", "v1"] and operator.state == ("target",)
    before = build_inputs(operator, operator.cases[0], CPU, 0)
    expected = before["target"] + before["args"][0]
    for name in ("baseline", "v1"):
        assert torch.equal(called(operator, name)["state"]["target"], expected)
    with pytest.raises(SuiteError, match="defines no function add___Tensor_kernel_impl"):
        called(operator, "kernels")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cnt: 1, ((), {})", "line 1: expected `Operator: NAME` before the first inputs"),
        ("Operator: aten.none.x", "no operator can be taken: 'none.x' is no operator of this torch"),
        ("Operator: aten.add.Tensor", "none of its inputs can be taken: it has none"),
    ],
)
def test_a_list_without_operators_is_said(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SuiteError) as raised:
        operators(save(tmp_path / "list.txt", text))
    assert words in str(raised.value)
