"""What is sent of a notebook or script, and the sentence for what cannot be."""

import functools
import linecache
import math
import types
from typing import Any

import pytest

from pairbench import Operator, Tolerance
from pairbench.errors import UsageError
from pairbench.interface.opened import add_operator
from pairbench.interface.source import SourceText, _texts, literal_of
from tests.interface.conftest import Script


def arrive(value: Any) -> Any:
    """Return a value as another process would have it."""
    source = SourceText()
    expression = source.expression(value, "function 'f'")
    names: dict[str, Any] = {"__name__": "sent"}
    exec(compile(f"{source.text()}\nresult = {expression}", "<sent>", "exec"), names)  # noqa: S102 (it is the test's own)
    return names["result"]


@pytest.mark.parametrize(
    "value",
    [
        *(1, -2.5, True, None, "a'b", b"x", 1 + 2j, ..., math.inf, -math.inf, math.nan),
        *((), [], {}, (1,), [1, (2, "x")], {"a": [1.5, None]}, {1, 2}, frozenset({3}), set()),
    ],
)
def test_plain_values_arrive(value: object) -> None:
    assert repr(eval(literal_of(value) or "")) == repr(value)  # noqa: S307 (it is what is tested)


def test_a_function_arrives_with_all_that_it_uses(script: Script) -> None:
    names = script(
        "import math as m\nfrom functools import reduce\nSCALE = {'a': [2, 3]}\nUNUSED = object()\n"
        "def helper(x):\n    return m.floor(x) * SCALE['a'][1]\n\n"
        "def f(x, *, more=SCALE):\n    '''Say { what }.'''\n    return reduce(lambda a, b: a + b, [helper(x), again(x, 2)])\n"
        "def again(x, n):\n    return again(x, n - 1) if n else x\n"
    )
    f = arrive(names["f"])
    assert f(2.5) == names["f"](2.5) == 8.5
    assert f.__doc__ == names["f"].__doc__
    assert "UNUSED" not in f.__globals__


def test_lambdas_of_one_line_are_told_apart(script: Script) -> None:
    names = script("fs = [lambda x: x + 1, lambda x: x - 1, (lambda k: lambda x: x * k)(3)]\n")
    assert [arrive(f)(5) for f in names["fs"]] == [6, 4, 15]


def test_decorators_and_wrappers_arrive(script: Script) -> None:
    names = script(
        "import functools\n"
        "def twice(f):\n    @functools.wraps(f)\n    def g(x):\n        return 2 * f(x)\n    return g\n"
        "@twice\ndef decorated(x):\n    return x + 1\n"
        "def plain(x):\n    return x + 1\n"
        "plain = twice(plain)\n"
        "def other(x):\n    return x + 2\n"
        "wrapped = twice(other)\nalias = other\npart = functools.partial(pow, 2)\n"
        "def user(x):\n    return alias(x) + wrapped(x)\n"
    )
    for name, value in (("decorated", 8), ("plain", 8), ("wrapped", 10), ("alias", 5), ("user", 15), ("part", 8)):
        assert arrive(names[name])(3) == names[name](3) == value, name


MAKE = "def make(k, g):\n    def f(x):\n        return g(x) * k\n    return f\n"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        pytest.param(f"{MAKE}def base(x):\n    return x + 1\nf = make(2, base)\n", 12, id="a closure with a function"),
        pytest.param(f"{MAKE}f = make(3, lambda x: -x)\n", -15, id="a closure with a lambda"),
        pytest.param(
            "class Base:\n    FACTOR = 3\n\nclass Scale(Base):\n    def __init__(self, n):\n        self.n = n\n"
            "    def __call__(self, x):\n        return x * self.n * self.FACTOR\n\ndef f(x):\n    return Scale(2)(x)\n",
            30,
            id="classes",
        ),
        pytest.param(
            "from __future__ import annotations\ndef f(x: Nowhere) -> AlsoNowhere:\n    return x\n",
            5,
            id="annotations that are not evaluated",
        ),
        pytest.param(
            "import types\nbox = types.SimpleNamespace(n=4)\ndef f(x):\n    return x * box.n\n",
            20,
            id="another value, by its statement",
        ),
    ],
)
def test_what_a_function_uses_arrives(script: Script, text: str, result: int) -> None:
    assert arrive(script(text)["f"])(5) == result


def test_what_is_installed_is_imported() -> None:
    assert arrive(math.floor) is math.floor
    assert arrive(functools.reduce) is functools.reduce
    assert arrive(str.upper)("a") == "A"
    assert arrive(Tolerance(rtol=0.1)) == Tolerance(rtol=0.1)


def test_a_tensor_of_the_script_says_to_pass_it(script: Script) -> None:
    names = script("import torch\nweight = torch.ones(3)\ndef f(x):\n    return x * weight\n")
    with pytest.raises(UsageError, match=r"'weight', which function 'f' uses, is a Tensor .* pass it as an input"):
        arrive(names["f"])


def test_what_no_source_is_found_of_says_so() -> None:
    names: dict[str, Any] = {"__name__": "typed"}
    exec("def f(x):\n    return x", names)  # noqa: S102 (that is what has no source)
    with pytest.raises(UsageError, match=r"function 'f' has no source .* put it into a file"):
        arrive(names["f"])


def test_methods_and_objects_say_so(script: Script) -> None:
    names = script("class A:\n    def m(self, x):\n        return x\nf = A().m\nthings = [A()]\n")
    with pytest.raises(UsageError, match=r"function 'f' is a method of an object .* put it into a file"):
        arrive(types.MethodType(names["A"].m, object()))
    with pytest.raises(UsageError, match=r"an? A that cannot be sent"):
        arrive(names["things"])


def test_an_operator_arrives_whole(script: Script) -> None:
    names = script(
        "from pairbench import Operator, Variant, Tolerance, Claim, grid\n"
        "def cost(n):\n    return (n, 2 * n)\n"
        "op = Operator('double', baseline=lambda x, w: x + x, variants={'one': Variant(lambda x, w: 2 * x, needs='cpu', valid=lambda x, w: True),\n"
        "    'two': Variant(lambda x, w: x * 2, builds_on='one', consumes=['x'])},\n"
        "    inputs=lambda make, n: {'x': make.normal(n), 'w': make.ones(n)}, cases={'smoke': grid(n=[1, 2]), 'real': [dict(n=(3, 4))]},\n"
        "    impostors={'zero': lambda x, w: x * 0}, oracle=lambda x, w: x + x, tolerance={'float32': Tolerance(rtol=0.1)}, cost=cost,\n"
        "    constants=['w'], consumes=['x'], accepts_constant=True, source='a paper', owner='@us',\n"
        "    gradients=['x'], gradient_tolerance={'x': Tolerance(rtol=0.2)})\n"
    )
    source = SourceText()
    add_operator(source, names["op"])
    there: dict[str, Any] = {"__name__": "sent"}
    exec(source.text(), there)  # noqa: S102 (it is the test's own)
    (found,) = (value for value in there.values() if isinstance(value, Operator))
    given = names["op"]
    same = "name cases tolerance constants state reset accepts_constant source owner gradients gradient_tolerance"
    for name in same.split():
        assert getattr(found, name) == getattr(given, name), name
    assert found.variants["one"].needs == ("cpu",) and found.variants["two"].builds_on == "one"
    assert found.baseline.consumes == found.variants["two"].consumes == ("x",) and not found.variants["one"].consumes
    assert found.variants["two"].function(3, 1) == 6 and found.impostors["zero"].function(3, 1) == 0
    assert found.cost is not None and found.cost(n=2) == (2, 4)
    assert found.oracle is not None and found.oracle(2, 0) == 4


def test_what_is_typed_into_a_shell_of_python_3_14_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which keeps it by code, not by the name of a file."""
    names: dict[str, Any] = {"__name__": "__main__"}
    kept: dict[tuple[str, str, int], tuple[Any, ...]] = {}
    typed = ("k, _ = 3, 4\n", "def f(x):\n    return g(x) * k\n", "g = lambda x: x + 1\n", "h = f\n")
    for number, text in enumerate(typed):
        stack = [compile(text, f"<python-input-{number}>", "exec")]
        exec(stack[0], names)  # noqa: S102 (it is the test's own)
        for code in stack:  # which grows
            key = (code.co_filename, code.co_qualname, code.co_firstlineno)
            kept[key] = (len(text), None, text.splitlines(keepends=True), "<stdin>")
            stack += [one for one in code.co_consts if isinstance(one, types.CodeType)]

    def lines(code: types.CodeType) -> list[str]:
        return list(kept.get((code.co_filename, code.co_qualname, code.co_firstlineno), ((), (), ()))[2])

    monkeypatch.setattr(linecache, "_interactive_cache", kept, raising=False)
    monkeypatch.setattr(linecache, "_getlines_from_code", lines, raising=False)
    assert arrive(names["f"])(1) == 6
    assert next(iter(_texts(names))) == typed[-1], "the newest first"
