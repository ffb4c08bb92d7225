"""Suites that are written from what a program called: their text, what it declares, and what it leaves out."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from pairbench import capture
from pairbench.execute.worker.calls import build_inputs, make_call
from pairbench.suite.captured import Seen, together
from pairbench.suite.captured_text import written
from pairbench.suite.modules import load_module
from tests.suites.programs import net

CPU = torch.device("cpu")
MADE_BEFORE = torch.nn.ReLU()


def seen_of(run: Callable[[], object], **options: Any) -> Seen:
    with capture(**options) as recorder:
        run()
    return recorder.seen()


def suite_of(folder: Path, run: Callable[[], object], *, steps: float = 1, **options: Any) -> ModuleType:
    """Record a function, write the suite of its calls, call each baseline in each case, and return the loaded suite."""
    seen = seen_of(run, **options)
    path = folder / "captured.py"
    path.write_text(written(seen, path, steps=steps).text)
    module = load_module(path)
    for operator in vars(module).values():
        for case in getattr(operator, "cases", ()):
            here = operator.at(case)
            make_call(here, here.baseline, "eager", build_inputs(here, case, CPU, 0)).observe()
    return module


def without_graph(run: Callable[[], object]) -> Callable[[], object]:
    def inside() -> object:
        with torch.no_grad():
            return run()

    return inside


def weights(operator: Any) -> dict[str, float]:
    return {case.key: case.weight for case in operator.cases}


def test_modules_and_functions_are_operators_with_weights(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, lambda: net.infer(4), steps=4)
    assert weights(suite.linear) == {"linear[dtype=float32,input_shape=2x8x32]": 3}
    (key,) = weights(suite.scaled_dot_product_attention)
    assert key == "scaled_dot_product_attention[dtype=bfloat16,x=2x8x32,y=2x8x32,z=2x8x32]"


def test_views_of_one_buffer_stay_views_of_one_buffer(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, lambda: net.infer(2))
    operator = suite.scaled_dot_product_attention
    inputs = build_inputs(operator, operator.cases[0], CPU, 0)
    assert len({one.untyped_storage().data_ptr() for one in inputs.values()}) == 1
    assert {one.stride() for one in inputs.values()} == {(768, 96, 1)}


def test_training_is_measured_forward_and_backward(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, lambda: net.train(2), whole=["Norm"])
    assert [dict(case.axes)["direction"] for case in suite.linear_training.cases] == ["fwd_bwd"]
    assert suite.linear_training.gradients == ("module.weight", "module.bias", "input")


def test_modules_that_only_an_index_tells_apart_are_one_case(tmp_path: Path) -> None:
    def run() -> None:
        for norm in [net.Norm(32, index=index) for index in range(3)]:
            norm(torch.ones(2, 32))

    suite = suite_of(tmp_path, without_graph(run))
    assert list(weights(suite.norm).values()) == [3]


def test_calls_in_place_are_declared(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, without_graph(lambda: torch.nn.ReLU(inplace=True)(torch.randn(4096))))
    assert suite.re_lu.baseline.consumes == suite.re_lu.variants["compiled"].consumes == ("input",)


def test_targets_that_are_to_be_ignored_are_no_classes(tmp_path: Path) -> None:
    def run() -> None:
        torch.nn.CrossEntropyLoss()(torch.randn(4, 10), torch.tensor([1, -100, 9, 3]))

    suite = suite_of(tmp_path, without_graph(run))
    operator = suite.cross_entropy_loss
    target = build_inputs(operator, operator.cases[0], CPU, 0)["target"]
    assert int(target.min()) >= 0
    assert int(target.max()) < 10


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        ((torch.ones(3, 4).t(), 0.5), {}),
        ((torch.ones(3, 1).expand(3, 4),), {"alpha": 2}),
        ((torch.arange(48).view(6, 8)[::2, ::2],), {}),
        ((torch.ones(3, 4, dtype=torch.float64),), {"dtype": torch.float32}),
    ],
)
def test_strides_and_arguments_are_kept(tmp_path: Path, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    def run() -> None:
        if "dtype" in keywords:
            torch.softmax(arguments[0], 0, **keywords)
        else:
            torch.add(arguments[0], 1, **keywords)

    suite = suite_of(tmp_path, run)
    operator = getattr(suite, "softmax" if "dtype" in keywords else "add")
    inputs = build_inputs(operator, operator.cases[0], CPU, 0)
    assert inputs["x"].stride() == arguments[0].stride()
    assert inputs["x"].dtype == arguments[0].dtype


def test_a_class_of_a_package_is_imported_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    text = "import torch\n\nclass Twice(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n"
    (tmp_path / "here" / "made_for_capture.py").write_text(text)
    sys.path.insert(0, str(tmp_path / "here"))
    try:
        import made_for_capture  # type: ignore[import-not-found]

        suite = suite_of(tmp_path, without_graph(lambda: made_for_capture.Twice()(torch.randn(64))))
    finally:
        sys.path.remove(str(tmp_path / "here"))
    assert "sys.path.insert" in Path(suite.__file__ or "").read_text()
    assert weights(suite.twice) == {"twice[dtype=float32,x=64]": 1}


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (lambda: torch.nn.functional.dropout(torch.ones(4), 0.5), "draws random numbers"),
        (lambda: torch.nn.ReLU.__call__(MADE_BEFORE, torch.ones(4)), "made before the recording"),
        (lambda: torch.compile(torch.sin, backend="eager")(torch.ones(4)), "code of torch.compile"),
        (lambda: torch.sum(torch.ones(4).to_sparse()), "is a tensor of"),
        (lambda: torch.optim.SGD([torch.nn.Parameter(torch.ones(4))], lr=0.1).step(), "an optimizer's step"),
        (lambda: _local_class()(torch.ones(4)), "can be imported"),
    ],
)
def test_what_cannot_be_made_again_is_named(tmp_path: Path, run: Callable[[], object], why: str) -> None:
    text = written(seen_of(run), tmp_path / "captured.py").text
    assert why in text.partition("import torch")[0]
    compile(text, "captured.py", "exec")


def _local_class() -> torch.nn.Module:
    class Local(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    return Local()


def test_several_processes_add_up() -> None:
    one = seen_of(lambda: net.infer(2))
    both = together([Seen.from_json(one.to_json()), one])
    assert both.processes == 2
    assert {call["name"]: call["count"] for call in both.calls} == {
        call["name"]: 2 * call["count"] for call in one.calls
    }
