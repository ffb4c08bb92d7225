"""Lists of inputs in the form of BackendBench, our own ones."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from pairbench.errors import SuiteError
from pairbench.execute.worker.calls import build_inputs
from pairbench.execute.worker.input_lists import operators_of
from pairbench.model.operator import Operator
from pairbench.suite.modules import find_suites, load_suite, refuse_syntax_errors
from tests.corpora.conftest import save
from tests.corpora.test_sol import CPU, called
from tests.corpora.test_traces import pairbench

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
cnt: 1, [T([8], f32)]
Operator: aten.add_.Tensor
cnt: 2, ((T([8, 16], f32), T([16], f32)), {})
cnt: 2, ((2, T([16], f32)), {})
Operator: aten.clamp.default
cnt: 1, ((T([8, 16], i64, None, 'cuda:0'), -3, None,), {})
cnt: 1, ((T([8, 16], f32), -inf, 0.5), {})
Operator: aten._to_copy.default
cnt: 1, ((T([8, 16], f32),), {'dtype': f16, 'device': "torch.device('cuda')", 'memory_format': torch.contiguous_format})
Operator: aten.cat.default
cnt: 1, (([T([2, 3], u8), T([2, 3], u8)], 1), {})
Operator: aten.full.default
cnt: 1, (([4, 2], -nan), {'dtype': torch.float64, 'layout': torch.strided, 'device': 'cuda', 'pin_memory': False})
Operator: aten.where.self
cnt: 1, ((T([3], b8), T([3], c64), T([3], c64)), {})
Operator: aten.no_such.default
cnt: 1, ((T([8, 16], i64),), {})
"""


def operators(path: Path, against: Path | str = "") -> dict[str, Operator]:
    return load_suite(path, functools.partial(operators_of, against=str(against)))


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    return save(tmp_path / "inputs.txt", LIST)


def test_a_list_is_a_suite_with_a_case_for_each_line(inputs: Path) -> None:
    save(inputs.parent / "notes.txt", "Operators: none")
    assert find_suites((inputs.parent,)) == (inputs,)
    refuse_syntax_errors([inputs])
    found = operators(inputs)
    names = [
        "add.Tensor",
        "add_.Tensor",
        "clamp.default",
        "op__to_copy.default",
        "cat.default",
        "full.default",
        "where.self",
    ]
    assert list(found) == names
    add = found["add.Tensor"]
    assert [(case.tier, case.key.rpartition(",workload=")[0]) for case in add.cases] == [
        ("smoke", "add.Tensor[dtype=bfloat16,shape=4x4"),
        ("real", "add.Tensor[dtype=float32,shape=8x16"),
        ("real", "add.Tensor[dtype=float32,shape=6x5"),
    ]
    strided = next(case for case in add.cases if "6x5" in case.key)
    assert [one.stride() for one in build_inputs(add, strided, CPU, 0)["args"]] == [(1, 6), (1, 6)]
    assert called(found["clamp.default"], "baseline").min() >= -3
    assert called(found["op__to_copy.default"], "baseline").dtype == torch.float16
    assert called(found["cat.default"], "baseline").shape == (2, 6)
    assert called(found["full.default"], "baseline").isnan().all()
    assert called(found["where.self"], "baseline").dtype == torch.complex64


@pytest.mark.parametrize(
    "words",
    [
        "line 5: its inputs are those of an earlier line",
        "line 6: \"__import__('os').getcwd()\" is unknown",
        "line 7: Trying to create tensor with negative dimension -1: [8, -1]",
        "line 8: the operator has no 'out'",
        "line 9: expected `cnt: N, ((...), {...})`",
        "line 10: expected `cnt: N, ((...), {...})`, the arguments by position and by name",
        "'no_such.default' is no operator of this torch",
    ],
)
def test_a_line_that_cannot_be_taken_is_named(inputs: Path, words: str) -> None:
    assert words in "\n".join(operators(inputs)["add.Tensor"].left_out)


def test_the_order_of_lines_says_nothing(inputs: Path, tmp_path: Path) -> None:
    def keys(path: Path) -> set[str]:
        return {case.key for operator in operators(path).values() for case in operator.cases}

    head, first, second, *rest = LIST.splitlines()
    again = save(tmp_path / "again" / "inputs.txt", "\n".join([head, second, first.replace("12", "7"), *rest]))
    assert keys(inputs) == keys(again)


def test_an_operator_in_place_is_judged_by_its_target(inputs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kernels" / "add___Tensor"
    save(folder / "add___Tensor_implementation_v1.py", "def add___Tensor_kernel_impl(a, b):\n    return a.copy_(a + b)")
    save(folder / "add___Tensor_implementation.py", "x = 3")
    operator = operators(inputs, tmp_path / "kernels")["add_.Tensor"]
    assert list(operator.variants) == ["compiled", "kernels", "v1"] and operator.state == ("target",)
    assert any("first argument is no tensor" in why for why in operator.left_out)
    before: dict[str, Any] = build_inputs(operator, operator.cases[0], CPU, 0)
    expected = before["target"] + before["args"][0]
    for name in ("baseline", "v1"):
        assert torch.equal(called(operator, name)["state"]["target"], expected)
    with pytest.raises(SuiteError, match="defines no function add___Tensor_kernel_impl"):
        called(operator, "kernels")


def test_loading_a_candidate_changes_nothing_that_all_share(inputs: Path) -> None:
    content = "def add___Tensor_kernel_impl(a, b):\n    return a.copy_(a + b)"
    save(inputs.parent / "kernels" / "add___Tensor" / "add___Tensor_implementation_v1.py", content)
    done = pairbench(inputs, "verify", "inputs.txt::add_.Tensor", "--against", "kernels", "-i", "v1", "--format=json")
    rows = json.loads(done.stdout)["verifications"]
    assert [(row["implementation"], row["status"]) for row in rows] == [("baseline", "verified"), ("v1", "verified")]
    assert "taken: 7 of 8 problems, 10 of 17 workloads, 1 of 1 solutions" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Operator: aten.none.x", "no operator can be taken: problem 'none.x' is no operator of this torch"),
        (
            "Operator: aten.add.out\ncnt: 1, ((T([2], f32), 1), {'out': T([2], f32)})",
            "problem 'add.out' writes into out, expected into its first argument",
        ),
        ("Operator: aten.add.Tensor", "none of its inputs can be taken: it has none"),
        ("cnt: 1, ((), {})", "not a Python file, expected .py, a definition of FlashInfer-Trace or SOL-ExecBench, or"),
    ],
)
def test_a_list_without_operators_is_said(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SuiteError) as raised:
        operators(save(tmp_path / "list.txt", text))
    assert words in str(raised.value)
