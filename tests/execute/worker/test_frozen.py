import copy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pairbench.execute.worker.frozen import Frozen
from pairbench.model.case import Tolerance
from pairbench.model.operator import Operator
from pairbench.suite.modules import load_suite

MODULE = """
import functools, statistics
from random import SystemRandom

_LIMIT = 2.0
_TABLE = {"cpu": 1.0, "cuda": [1, 2]}
_state = []

def judge(value, *, factor=2.0, least=3):
    return value * factor

def with_default(value, limit=1.0):
    return value < limit

def _make(limit):
    def inner(value):
        return value < limit
    return inner

closed = _make(5.0)

@functools.cache
def cached(value):
    return value + 1

class Judge:
    def method(self):
        return 1

    @property
    def size(self):
        return 2

    @staticmethod
    def plain():
        return 3
"""
SUITE = """
import torch
from pairbench import Operator, Tolerance, grid

SCALE = 2.0
calls = 0

def helper(x):
    return x * SCALE

def baseline(x):
    global calls
    calls += 1
    return helper(x)

def good(x):
    return 2 * x

op = Operator("op", baseline=baseline, variants={"good": good}, inputs=lambda make, n: {"x": make.normal(n)}, tolerance=Tolerance(rtol=1e-3),
              cases=grid(n=[4]))
"""


@pytest.fixture(scope="module")
def module() -> Iterator[ModuleType]:
    made = ModuleType(OWN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, made.__name__, made)
        exec(compile(MODULE, "made_up.py", "exec"), vars(made))  # noqa: S102
        yield made


@pytest.fixture(scope="module")
def frozen(module: ModuleType) -> Frozen:
    """Return one for all tests, each of which leaves everything as it was."""
    made = Frozen()
    made.hold_own_modules()
    assert module.judge and made.changed() == []
    return made


def other(value: Any, **_: Any) -> Any:
    return value


def set_code(function: Any) -> None:
    function.__code__ = other.__code__


OWN = "pairbench.execute.made_up"
CHANGES: dict[str, Callable[[Any], object]] = {
    f"{OWN}._LIMIT": lambda module: setattr(module, "_LIMIT", float("inf")),
    f"{OWN}._TABLE.cpu": lambda module: module._TABLE.update(cpu=9.0),
    f"{OWN}._TABLE.cuda": lambda module: module._TABLE["cuda"].append(3),
    f"{OWN}._TABLE": lambda module: module._TABLE.update(more=1),
    f"{OWN}.statistics": lambda module: setattr(module, "statistics", ModuleType("other")),
    f"{OWN}.judge": lambda module: setattr(module, "judge", other),
    f"the code of {OWN}.judge": lambda module: set_code(module.judge),
    f"the defaults of {OWN}.judge.factor": lambda module: module.judge.__kwdefaults__.update(factor=0),
    "the defaults of with_default": lambda module: setattr(module.with_default, "__defaults__", (9.0,)),
    f"the closure of {OWN}.closed": lambda module: setattr(module.closed.__closure__[0], "cell_contents", 9.0),
    f"the code of {OWN}.cached": lambda module: set_code(module.cached.__wrapped__),
    f"{OWN}.Judge.method": lambda module: setattr(module.Judge, "method", other),
    f"the code of {OWN}.Judge.method": lambda module: set_code(module.Judge.method),
    f"the code of {OWN}.Judge.size": lambda module: set_code(module.Judge.size.fget),
    f"the code of {OWN}.Judge.plain": lambda module: set_code(module.Judge.plain),
    "statistics.median": lambda module: setattr(module.statistics, "median", other),
    "the code of statistics.median": lambda module: set_code(module.statistics.median),
    "random.SystemRandom.random": lambda module: setattr(module.SystemRandom, "random", other),
    f"sys.modules.{OWN}": lambda module: sys.modules.update({module.__name__: ModuleType("other")}),
}


def behaviour(module: ModuleType) -> tuple[Any, ...]:
    called = module.judge(2), module.with_default(0.5), module.closed(4), module.cached(1), module.Judge().size
    return (*called, vars(module)["_LIMIT"], copy.deepcopy(module._TABLE))


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_named_and_put_back(frozen: Frozen, module: ModuleType, name: str) -> None:
    before = behaviour(module)
    CHANGES[name](module)
    # A function is named by the first module that holds it, whichever tests have loaded.
    assert name.rpartition(".")[2] in {label.rpartition(".")[2] for label in frozen.changed()}
    frozen.restore()
    assert frozen.changed() == []
    assert behaviour(module) == before and sys.modules[module.__name__] is module


def test_what_is_new_or_state_or_the_same_is_no_change(frozen: Frozen, module: ModuleType) -> None:
    module.new = other  # type: ignore[attr-defined]
    module._state.append(1)
    module._LIMIT = float("2.0")  # type: ignore[attr-defined]
    assert frozen.changed() == []


@pytest.fixture
def suite(tmp_path: Path) -> Any:
    (tmp_path / "ops.py").write_text(SUITE)
    operator = load_suite(tmp_path / "ops.py")["op"]
    return operator, sys.modules[operator.baseline.function.__module__]


DECLARED: dict[str, Callable[[Operator, Any], object]] = {
    "operator 'op'.tolerance": lambda operator, _: object.__setattr__(operator, "tolerance", Tolerance(rtol=9.0)),
    "operator 'op'.tolerance.rtol": lambda operator, _: object.__setattr__(operator.tolerance, "rtol", 9.0),
    "operator 'op'.cases": lambda operator, _: object.__setattr__(operator, "cases", ()),
    "operator 'op'.variants.good": lambda operator, _: operator.variants.update(good=operator.baseline),  # type: ignore[attr-defined]
    "operator 'op'.good.function": lambda operator, _: object.__setattr__(operator.variants["good"], "function", other),
    "the code of operator 'op'.baseline.function": lambda operator, _: set_code(operator.baseline.function),
    "the code of ops.helper": lambda _, module: set_code(module.helper),
    "ops.helper": lambda _, module: setattr(module, "helper", other),
    "ops.SCALE": lambda _, module: setattr(module, "SCALE", 3.0),
}


@pytest.mark.parametrize("name", DECLARED)
def test_a_change_of_what_a_suite_declares_is_named_and_put_back(suite: Any, name: str) -> None:
    operator, module = suite
    frozen = Frozen()
    frozen.hold_operator(operator)
    DECLARED[name](operator, module)
    assert name in frozen.changed()
    frozen.restore()
    assert frozen.changed() == [] and operator.tolerance == Tolerance(rtol=1e-3) and operator.baseline.function(1) == 2


def test_what_a_suite_counts_and_what_variants_keep_is_theirs(suite: Any) -> None:
    operator, module = suite
    frozen = Frozen()
    frozen.hold_operator(operator)
    operator.baseline.function(1)
    set_code(module.good)
    module.kept = 1
    assert module.calls == 1 and frozen.changed() == []


def test_the_copy_of_a_case_is_held_until_the_next_one(suite: Any) -> None:
    frozen, (first, second) = Frozen(), (copy.copy(suite[0]), copy.copy(suite[0]))
    frozen.begin_case(first, first.cases[0])
    object.__setattr__(first, "tolerance", Tolerance(rtol=9.0))
    assert frozen.changed() == ["operator 'op'.tolerance"]
    frozen.restore()
    assert first.tolerance == Tolerance(rtol=1e-3)
    frozen.begin_case(second, second.cases[0])
    object.__setattr__(first, "tolerance", Tolerance(rtol=9.0))
    assert frozen.changed() == []
