import importlib.metadata
import sys
import tempfile
from pathlib import Path

import pytest

from pairbench.errors import SuiteError
from pairbench.execute.worker.describe.operators import code_text, describe
from pairbench.model.plan import OperatorDescription
from pairbench.suite.modules import load_suite

SUITE = '''
import torch
from helpers import outside
from pairbench import Cost, Operator, Tolerance, Variant, grid

SCALE = 2.0
UNUSED = 1


def inputs(make, rows, dtype):
    return {"x": make.normal(rows, dtype=dtype), "weight": make.ones(rows)}


def baseline(x, weight):
    """Scale.

    At length.
    """
    return x * SCALE * weight


def helper(x):
    return deeper(x) * 1


def deeper(x):
    return x + x


def fast(x, weight):
    """Do it fast."""
    return helper(x) * weight


def prepared(x, weight, doubled):
    return outside(x) * doubled


def prepare(weight):
    return {"doubled": weight * 2}


def oracle(x, weight):
    return x * 2 * weight


op = Operator(
    "op",
    baseline=baseline,
    variants={"fast": fast, "prepared": Variant(prepared, prepare=prepare, needs="cuda")},
    inputs=inputs,
    cases={"smoke": grid(rows=[4], dtype=["float32"]), "edge": grid(rows=[1], dtype=["float32"])},
    impostors={"wrong": lambda x, weight: x},
    oracle=oracle,
    tolerance=Tolerance(rtol=1e-3),
    cost=lambda rows, dtype: Cost(flops=rows, bytes=8 * rows),
    constants=["weight"],
    source="a paper",
)
'''
HELPERS = "def outside(x):\n    return x\n"


def described(*changes: tuple[str, str], helpers: str = HELPERS, suite: str = SUITE) -> OperatorDescription:
    """Describe the suite after some replacements, each of which must be there to be made."""
    for old, new in changes:
        assert old in suite
        suite = suite.replace(old, new)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "helpers.py").write_text(helpers)
        file = Path(folder, "ops.py")
        file.write_text(suite)
        sys.modules.pop("helpers", None)
        (operator,) = load_suite(file).values()
        sys.modules.pop("helpers", None)
        return describe("ops.py", file, operator)


def hashes(found: OperatorDescription) -> dict[str, str]:
    return {"definition": found.definition_hash, **{item.name: item.hash for item in found.implementations}}


def changed(before: OperatorDescription, after: OperatorDescription) -> set[str]:
    old, new = hashes(before), hashes(after)
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


def test_every_python_has_the_hashes_of_312() -> None:
    """Or an upgrade of Python would begin new series. Those of the runs in results/reference were made by 3.12."""
    assert hashes(described()) == {
        "definition": "28c77e8630fc9b02",
        "baseline": "ecaac8a67d2d95ed",
        "fast": "d837efb3a3857ac5",
        "prepared": "15c6a6d32968d5b4",
    }


def test_a_lambda_that_returns_a_constant_is_found() -> None:
    """In Python 3.12 its code says no place."""
    one, other = lambda n: 1, lambda n: 2
    assert [code_text(one)[-23:], code_text(other)[-23:]] == ["body=Constant(value=1))", "body=Constant(value=2))"]


def test_a_newer_package_is_another_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = ('needs="cuda"', 'needs=["cuda", "package:numpy>=1", "package:not_there"]')
    before = described(needs)
    versions = {item.name: item.packages for item in before.implementations}
    assert versions == {"baseline": {}, "fast": {}, "prepared": {"numpy": importlib.metadata.version("numpy")}}
    assert changed(described(), before) == {"prepared"}
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "99")
    assert changed(before, described(needs)) == {"prepared"}


CODE, PLAIN = "return helper(x) * weight", set[str]()
CHANGES: dict[str, tuple[str, str, set[str]]] = {
    "comment": (CODE, f"# a comment\n    {CODE}  # another", PLAIN),
    "format": (CODE, "return (\n        helper( x )\n        * weight\n    )", PLAIN),
    "helper comment": ("return deeper(x) * 1", "return deeper(x) * 1  # plain", PLAIN),
    "docstring": ('"""Do it fast."""', '"""Do it very fast."""', PLAIN),
    "baseline docstring": ('"""Scale.\n\n    At length.\n    """', '"""Scale."""', PLAIN),
    "blank lines": ("def oracle(", "\n\n\ndef oracle(", PLAIN),
    "unused": ("UNUSED = 1", "UNUSED = 2", PLAIN),
    "source": ('source="a paper"', 'source="another paper"', PLAIN),
    "impostor": ('"wrong": lambda x, weight: x}', '"wrong": lambda x, weight: x + 1}', PLAIN),
    "cost": ("bytes=8 * rows", "bytes=12 * rows", PLAIN),
    "needs": ('needs="cuda"', 'needs="cpu"', PLAIN),
    "accepts constant": ('source="a paper"', "accepts_constant=True", PLAIN),
    "one more case": ("grid(rows=[4]", "grid(rows=[4, 8]", PLAIN),
    "code": (CODE, "return weight * helper(x)", {"fast"}),
    "helper": ("return deeper(x) * 1", "return deeper(x) * 1.0", {"fast"}),
    "helper of a helper": ("return x + x", "return 2 * x", {"fast"}),
    "prepare": ('return {"doubled": weight * 2}', 'return {"doubled": weight + weight}', {"prepared"}),
    "baseline": ("return x * SCALE * weight", "return weight * SCALE * x", {"baseline"}),
    "constant": ("SCALE = 2.0", "SCALE = 2.5", {"baseline"}),
    "inputs": ("make.normal(rows, dtype=dtype)", "make.uniform(rows, dtype=dtype)", {"definition"}),
    "axes": ("def inputs(make, rows, dtype)", "def inputs(make, rows, dtype, groups=1)", {"definition"}),
    "oracle": ("return x * 2 * weight", "return 2 * x * weight", {"definition"}),
    "tolerance": ("rtol=1e-3", "rtol=1e-4", {"definition"}),
    "no tolerance": ("tolerance=Tolerance(rtol=1e-3),\n", "", {"definition"}),
    "state": ('source="a paper"', 'state=["x"]', {"definition"}),
    "no oracle": ("    oracle=oracle,\n", "", {"definition"}),
    "name": ('"op",', '"op2",', {"definition"}),
    "one more variant": ('{"fast": fast,', '{"fast": fast, "another": fast,', {"another"}),
    "consumes": ('needs="cuda"', 'needs="cuda", consumes=["x"]', {"prepared"}),
    "baseline consumes": ('source="a paper"', 'consumes=["x"]', {"baseline"}),
}


@pytest.mark.parametrize(("old", "new", "names"), CHANGES.values(), ids=CHANGES)
def test_what_changes_what(old: str, new: str, names: set[str]) -> None:
    assert changed(described(), described((old, new))) == names


def test_without_an_oracle_the_baseline_is_part_of_the_question_and_so_are_helpers_beside_the_suite() -> None:
    no_oracle = ("    oracle=oracle,\n", "")
    other_baseline = described(no_oracle, ("SCALE = 2.0", "SCALE = 2.5"))
    assert changed(described(no_oracle), other_baseline) == {"definition", "baseline"}
    assert changed(described(), described(helpers="def outside(x):\n    return 1 * x\n")) == {"prepared"}


LAMBDAS = """
from pairbench import Operator, grid
{above}
op = Operator("op", baseline=lambda x: x + x, variants={{"one": lambda x: x * 2, "two": lambda x: {two}}},
    inputs=lambda make, rows: {{"x": make.normal(rows)}}, cases=grid(rows=[4]))
"""


def test_a_lambda_is_not_its_neighbour() -> None:
    """On one line or not: only the variant that changed has changed."""
    before = described(suite=LAMBDAS.format(above="", two="2 * x"))
    assert changed(before, described(suite=LAMBDAS.format(above="", two="1 * x * 2"))) == {"two"}
    assert changed(before, described(suite=LAMBDAS.format(above="# moved", two="2 * x"))) == set()


REACHED = """
import functools
import torch
from pairbench import Operator, grid

{above}

op = Operator("op", baseline=torch.square, variants={{"v": {variant}}},
    inputs=lambda make, rows: {{"x": make.normal(rows)}}, cases=grid(rows=[4]))
"""


FUNCTION = "def f(x):\n    return "
ANOTHER = ("    return x\n", "    return +x\n")
REACHES: dict[str, tuple[str, str, tuple[str, str]]] = {
    "partial keyword": ("functools.partial(f, k=2)", "def f(x, k):\n    return x * k", ("k=2", "k=4")),
    "partial function": ("functools.partial(f, k=2)", "def f(x, k):\n    return x * k", ("x * k", "k * x")),
    "partial of a function": (
        "functools.partial(f, g)",
        "def g(x):\n    return x\ndef f(g, x):\n    return g(x)",
        ANOTHER,
    ),
    "instance attribute": (
        "F(2)",
        "class F:\n def __init__(self, k):\n  self.k = k\n def __call__(self, x):\n  return x * self.k",
        ("F(2)", "F(3)"),
    ),
    "instance class": ("F()", "class F:\n def __call__(self, x):\n  return x * x", ("x * x", "x ** 2")),
    "table of torch functions": (
        "f",
        f"STEPS = (torch.sin, torch.cos)\n{FUNCTION}STEPS[0](x)",
        ("sin, torch.cos", "cos, torch.sin"),
    ),
    "table of own functions": ("f", f"def g(x):\n    return x\nSTEPS = [g]\n{FUNCTION}STEPS[0](x)", ANOTHER),
    "dict": ("f", f"BLOCKS = {{'a': 1}}\n{FUNCTION}x * BLOCKS['a']", ("'a': 1", "'a': 2")),
    "dtype": ("f", f"T = torch.float16\n{FUNCTION}x.to(T)", ("float16", "float32")),
    "wrapped": (
        "f",
        f"def outer(f):\n @functools.wraps(f)\n def g(x):\n  return f(x)\n return g\n@outer\n{FUNCTION}x * x",
        ("x * x", "x ** 2"),
    ),
    "instance that holds itself": (
        "F(2)",
        "class F:\n def __init__(self, k):\n  self.k, self.all = k, [self]\n def __call__(self, x):\n  return x * self.k",
        ("F(2)", "F(3)"),
    ),
    "operator of torch": ("torch.ops.aten.sin.default", "", ("sin", "cos")),
    "torch function": ("torch.square", "", ("torch.square}", "torch.sin}")),
    "partial constant": ("f", f"P = functools.partial(torch.mul, 2)\n{FUNCTION}P(x)", ("mul, 2", "mul, 3")),
}


@pytest.mark.parametrize(("variant", "above", "change"), REACHES.values(), ids=REACHES)
def test_whatever_an_answer_reaches_counts_and_is_the_same_in_every_process(
    variant: str, above: str, change: tuple[str, str]
) -> None:
    suite = REACHED.format(above=above, variant=variant)
    before = described(suite=suite)
    assert changed(before, described(suite=suite)) == set()
    assert changed(before, described(change, suite=suite)) == {"v"}


def test_a_jitted_kernel_is_read() -> None:
    """Triton wraps its kernels; their source and what they call count like any other."""
    kernel = (
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef scale(v):\n    return v * 2\n\n\n"
        "@triton.jit\ndef kernel(p):\n    tl.store(p, scale(tl.load(p)))\n\n\ndef oracle("
    )
    with_kernel = ("def oracle(", kernel), ("return helper(x) * weight", "kernel[(1,)](x)\n    return x")
    before = described(*with_kernel)
    for change in (("tl.load(p)", "tl.load(p + 1)"), ("return v * 2", "return v + v")):
        assert changed(before, described(*with_kernel, change)) == {"fast"}
    assert changed(before, described(*with_kernel, ("p, scale", "p,  scale"))) == set()


def test_a_description_has_everything_but_the_code() -> None:
    found = described()
    assert (found.suite, found.name, found.summary, found.source) == ("ops.py", "op", "Scale.", "a paper")
    assert [item.name for item in found.implementations] == ["baseline", "fast", "prepared"]
    assert [item.needs for item in found.implementations] == [(), (), ("cuda",)]
    assert [item.name for item in found.impostors] == ["wrong"]
    assert found.costs == {
        "op[dtype=float32,rows=4]": (4.0, 32.0),
        "op[dtype=float32,rows=1]": (1.0, 8.0),
    }
    assert len(found.definition_hash) == 16 and len(set(hashes(found).values())) == 4


def test_what_others_published_is_described_and_changes_no_hash() -> None:
    claim = 'Claim(speedup=SCALE, source="them", device="a GPU", cases=grid(rows=[4], dtype=["float32"]))'
    imported = ("from pairbench import Cost", "from pairbench import Claim, Cost")
    before, after = described(), described(imported, ('source="a paper",\n', f'source="a paper", claims=[{claim}],\n'))
    assert changed(before, after) == set()
    assert before.claims == ()
    assert [(claim.speedup, claim.source) for claim in after.claims] == [(2.0, "them")]
    assert [after.claims[0].belongs_to(case) for case in after.cases] == [True, False]


@pytest.mark.parametrize("returned", ['{"flops": rows, "bytes": 8 * rows}', "(rows, 8 * rows)", "[rows, 8.0 * rows]"])
def test_a_cost_is_a_pair_or_a_mapping_of_numbers(returned: str) -> None:
    assert described(("Cost(flops=rows, bytes=8 * rows)", returned)).costs["op[dtype=float32,rows=4]"] == (4.0, 32.0)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ('{"flops": rows}', r"cost\(\) returned \{'flops': 4\} for op\[dtype=float32,rows=4\], expected Cost"),
        ('{"flops": rows, "bytes": None}', r"returned \(4, None\)"),
        ('("1e9", "2e9")', r"returned \('1e9', '2e9'\)"),
        ('"ab"', "returned 'ab'"),
        ("(rows, float('nan'))", r"returned \(4, nan\)"),
        ("(-rows, rows)", r"returned \(-4, 4\)"),
        ("rows", "returned 4 for"),
        ("None", "returned None for"),
        (
            "1 / 0",
            r"suite ops\.py, line \d+: operator 'op': cost\(\) failed on .*: ZeroDivisionError: division by zero; expected",
        ),
        ("exit(3)", "cost.. failed on .*: SystemExit: 3; expected"),
    ],
)
def test_what_is_no_cost_gets_a_sentence(returned: str, words: str) -> None:
    with pytest.raises(SuiteError, match=words):
        described(("Cost(flops=rows, bytes=8 * rows)", returned))


def test_what_cannot_be_described_keeps_its_words() -> None:
    odd = (
        "class Odd:\n    @property\n    def __doc__(self):\n        raise LookupError('no text')\n\n"
        "    def __call__(self, x, weight):\n        return x * weight\n\n\nop = Operator("
    )
    words = r"suite ops\.py, line \d+: operator 'op' cannot be described: LookupError: no text"
    with pytest.raises(SuiteError, match=words):
        described(("op = Operator(", odd), ("baseline=baseline,", "baseline=Odd(),"))
