"""Hashes of questions and answers: what changes them, and what must not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pairbench.errors import SuiteError
from pairbench.execute.worker.describe.operators import describe
from pairbench.model.plan import OperatorDescription
from pairbench.suite.load import load_suite

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

Describe = Callable[..., OperatorDescription]


@pytest.fixture
def described(tmp_path: Path) -> Describe:
    """Describe the suite after some replacements, each of which must be there to be made."""

    def make(*changes: tuple[str, str], helpers: str = HELPERS, suite: str = SUITE) -> OperatorDescription:
        import sys

        for old, new in changes:
            assert old in suite
            suite = suite.replace(old, new)
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        (folder / "helpers.py").write_text(helpers)
        (folder / "ops.py").write_text(suite)
        sys.modules.pop("helpers", None)
        (operator,) = load_suite(folder / "ops.py").values()
        sys.modules.pop("helpers", None)
        return describe("ops.py", folder / "ops.py", operator)

    return make


def hashes(found: OperatorDescription) -> dict[str, str]:
    return {"definition": found.definition_hash, **{item.name: item.hash for item in found.implementations}}


def changed(before: OperatorDescription, after: OperatorDescription) -> set[str]:
    old, new = hashes(before), hashes(after)
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


def test_every_python_has_the_hashes_of_312(described: Describe) -> None:
    """Or an upgrade of Python would begin new series. Those of the runs in results/reference were made by 3.12."""
    assert hashes(described()) == {
        "definition": "28c77e8630fc9b02",
        "baseline": "ecaac8a67d2d95ed",
        "fast": "d837efb3a3857ac5",
        "prepared": "15c6a6d32968d5b4",
    }


def test_the_same_file_has_the_same_hashes(described: Describe) -> None:
    assert changed(described(), described()) == set()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            ("return helper(x) * weight", "# a comment\n    return helper(x) * weight  # another"), id="comment"
        ),
        pytest.param(
            ("return helper(x) * weight", "return (\n        helper( x )\n        * weight\n    )"), id="format"
        ),
        pytest.param(("return deeper(x) * 1", "return deeper(x) * 1  # plain"), id="helper comment"),
        pytest.param(('"""Do it fast."""', '"""Do it very fast."""'), id="docstring"),
        pytest.param(('"""Scale.\n\n    At length.\n    """', '"""Scale."""'), id="baseline docstring"),
        pytest.param(("def oracle(", "\n\n\ndef oracle("), id="blank lines"),
        pytest.param(("UNUSED = 1", "UNUSED = 2"), id="unused"),
        pytest.param(('source="a paper"', 'source="another paper"'), id="source"),
        pytest.param(('"wrong": lambda x, weight: x}', '"wrong": lambda x, weight: x + 1}'), id="impostor"),
        pytest.param(("bytes=8 * rows", "bytes=12 * rows"), id="cost"),
    ],
)
def test_what_changes_nothing(described: Describe, change: tuple[str, str]) -> None:
    assert changed(described(), described(change)) == set()


@pytest.mark.parametrize(
    ("change", "names"),
    [
        pytest.param(("return helper(x) * weight", "return weight * helper(x)"), {"fast"}, id="code"),
        pytest.param(("return deeper(x) * 1", "return deeper(x) * 1.0"), {"fast"}, id="helper"),
        pytest.param(("return x + x", "return 2 * x"), {"fast"}, id="helper of a helper"),
        pytest.param(
            ('return {"doubled": weight * 2}', 'return {"doubled": weight + weight}'), {"prepared"}, id="prepare"
        ),
        pytest.param(("return x * SCALE * weight", "return weight * SCALE * x"), {"baseline"}, id="baseline"),
        pytest.param(("SCALE = 2.0", "SCALE = 2.5"), {"baseline"}, id="constant"),
        pytest.param(
            ("make.normal(rows, dtype=dtype)", "make.uniform(rows, dtype=dtype)"), {"definition"}, id="inputs"
        ),
        pytest.param(
            ("def inputs(make, rows, dtype)", "def inputs(make, rows, dtype, groups=1)"), {"definition"}, id="axes"
        ),
        pytest.param(("return x * 2 * weight", "return 2 * x * weight"), {"definition"}, id="oracle"),
        pytest.param(("rtol=1e-3", "rtol=1e-4"), {"definition"}, id="tolerance"),
        pytest.param(("tolerance=Tolerance(rtol=1e-3),\n", ""), {"definition"}, id="no tolerance"),
        pytest.param(('source="a paper"', 'state=["x"]'), {"definition"}, id="state"),
        pytest.param(("    oracle=oracle,\n", ""), {"definition"}, id="no oracle"),
        pytest.param(('{"fast": fast,', '{"fast": fast, "another": fast,'), {"another"}, id="one more variant"),
        pytest.param(('needs="cuda"', 'needs="cpu"'), set(), id="needs"),
        pytest.param(('needs="cuda"', 'needs="cuda", consumes=["x"]'), {"prepared"}, id="consumes"),
        pytest.param(('source="a paper"', 'consumes=["x"]'), {"baseline"}, id="baseline consumes"),
        pytest.param(('source="a paper"', "accepts_constant=True"), set(), id="accepts constant"),
    ],
)
def test_what_changes_what(described: Describe, change: tuple[str, str], names: set[str]) -> None:
    assert changed(described(), described(change)) == names


def test_without_an_oracle_the_baseline_is_part_of_the_question(described: Describe) -> None:
    no_oracle = ("    oracle=oracle,\n", "")
    before = described(no_oracle)
    assert changed(before, described(no_oracle, ("SCALE = 2.0", "SCALE = 2.5"))) == {"definition", "baseline"}


def test_a_helper_in_a_file_beside_the_suite_counts(described: Describe) -> None:
    after = described(helpers="def outside(x):\n    return 1 * x\n")
    assert changed(described(), after) == {"prepared"}


def test_a_new_case_begins_no_new_series_for_the_others(described: Describe) -> None:
    assert changed(described(), described(("grid(rows=[4]", "grid(rows=[4, 8]"))) == set()


def test_a_new_name_is_a_new_question(described: Describe) -> None:
    assert changed(described(), described(('"op",', '"op2",'))) == {"definition"}


LAMBDAS = """
from pairbench import Operator, grid
{above}
op = Operator("op", baseline=lambda x: x + x, variants={{"one": lambda x: x * 2, "two": lambda x: {two}}},
    inputs=lambda make, rows: {{"x": make.normal(rows)}}, cases=grid(rows=[4]))
"""


def test_a_lambda_is_not_its_neighbour(described: Describe) -> None:
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


@pytest.mark.parametrize(
    ("variant", "above", "change"),
    [
        pytest.param(
            "functools.partial(f, k=2)", "def f(x, k):\n    return x * k", ("k=2", "k=4"), id="partial keyword"
        ),
        pytest.param(
            "functools.partial(f, k=2)", "def f(x, k):\n    return x * k", ("x * k", "k * x"), id="partial function"
        ),
        pytest.param(
            "functools.partial(f, g)",
            "def g(x):\n    return x\ndef f(g, x):\n    return g(x)",
            ("    return x\n", "    return +x\n"),
            id="partial of a function",
        ),
        pytest.param(
            "F(2)",
            "class F:\n    def __init__(self, k):\n        self.k = k\n    def __call__(self, x):\n        return x * self.k",
            ("F(2)", "F(3)"),
            id="instance attribute",
        ),
        pytest.param(
            "F()",
            "class F:\n    def __call__(self, x):\n        return x * x",
            ("x * x", "x ** 2"),
            id="instance class",
        ),
        pytest.param(
            "f",
            "STEPS = (torch.sin, torch.cos)\ndef f(x):\n    return STEPS[0](x)",
            ("sin, torch.cos", "cos, torch.sin"),
            id="table of torch functions",
        ),
        pytest.param(
            "f",
            "def g(x):\n    return x\nSTEPS = [g]\ndef f(x):\n    return STEPS[0](x)",
            ("    return x\n", "    return +x\n"),
            id="table of own functions",
        ),
        pytest.param("f", "BLOCKS = {'a': 1}\ndef f(x):\n    return x * BLOCKS['a']", ("'a': 1", "'a': 2"), id="dict"),
        pytest.param("f", "T = torch.float16\ndef f(x):\n    return x.to(T)", ("float16", "float32"), id="dtype"),
        pytest.param(
            "f",
            "def outer(f):\n    @functools.wraps(f)\n    def g(x):\n        return f(x)\n    return g\n@outer\ndef f(x):\n    return x * x",
            ("x * x", "x ** 2"),
            id="wrapped",
        ),
        pytest.param("torch.square", "", ("torch.square}", "torch.sin}"), id="torch function"),
        pytest.param(
            "f",
            "P = functools.partial(torch.mul, 2)\ndef f(x):\n    return P(x)",
            ("mul, 2", "mul, 3"),
            id="partial constant",
        ),
    ],
)
def test_whatever_an_answer_reaches_counts_and_is_the_same_in_every_process(
    described: Describe, variant: str, above: str, change: tuple[str, str]
) -> None:
    suite = REACHED.format(above=above, variant=variant)
    before = described(suite=suite)
    assert changed(before, described(suite=suite)) == set()
    assert changed(before, described(change, suite=suite)) == {"v"}


def test_a_jitted_kernel_is_read(described: Describe) -> None:
    """Triton wraps its kernels; their source and what they call count like any other."""
    kernel = (
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef scale(v):\n    return v * 2\n\n\n"
        "@triton.jit\ndef kernel(p):\n    tl.store(p, scale(tl.load(p)))\n\n\ndef oracle("
    )
    use = ("return helper(x) * weight", "kernel[(1,)](x)\n    return x")
    before = described(("def oracle(", kernel), use)
    assert changed(before, described(("def oracle(", kernel), use, ("tl.load(p)", "tl.load(p + 1)"))) == {"fast"}
    assert changed(before, described(("def oracle(", kernel), use, ("return v * 2", "return v + v"))) == {"fast"}
    assert changed(before, described(("def oracle(", kernel), use, ("p, scale", "p,  scale"))) == set()


def test_a_description_has_everything_but_the_code(described: Describe) -> None:
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


def test_a_cost_that_fails_is_a_fault_of_the_suite(described: Describe) -> None:
    with pytest.raises(SuiteError, match=r"operator 'op': cost\(\) failed on op\[dtype=float32,rows=4\]: ZeroDivision"):
        described(("flops=rows,", "flops=rows / 0,"))
    with pytest.raises(SuiteError, match=r"expected Cost\(flops=\.\.\., bytes=\.\.\.\)"):
        described(("Cost(flops=rows, bytes=8 * rows)", "rows"))


def test_what_others_published_is_described_and_changes_no_hash(described: Describe) -> None:
    claims = [
        ("from pairbench import Cost", "from pairbench import Claim, Cost"),
        (
            'source="a paper",\n',
            (
                'source="a paper",\n    claims=[Claim(speedup=SCALE, source="them", device="a GPU", '
                'cases=grid(rows=[4], dtype=["float32"]))],\n'
            ),
        ),
    ]
    before, after = described(), described(*claims)
    assert changed(before, after) == set()
    assert before.claims == ()
    assert [(claim.speedup, claim.source) for claim in after.claims] == [(2.0, "them")]
    assert [after.claims[0].belongs_to(case) for case in after.cases] == [True, False]


@pytest.mark.parametrize("returned", ['{"flops": rows, "bytes": 8 * rows}', "(rows, 8 * rows)", "[rows, 8.0 * rows]"])
def test_a_cost_is_a_pair_or_a_mapping_of_numbers(described: Describe, returned: str) -> None:
    found = described(("Cost(flops=rows, bytes=8 * rows)", returned))
    assert found.costs["op[dtype=float32,rows=4]"] == (4.0, 32.0)


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
def test_what_is_no_cost_gets_a_sentence(described: Describe, returned: str, words: str) -> None:
    with pytest.raises(SuiteError, match=words):
        described(("Cost(flops=rows, bytes=8 * rows)", returned))


def test_what_cannot_be_described_keeps_its_words(described: Describe) -> None:
    odd = (
        "class Odd:\n    @property\n    def __doc__(self):\n        raise LookupError('no text')\n\n"
        "    def __call__(self, x, weight):\n        return x * weight\n\n\nop = Operator("
    )
    with pytest.raises(
        SuiteError, match=r"suite ops\.py, line \d+: operator 'op' cannot be described: LookupError: no text"
    ):
        described(("op = Operator(", odd), ("baseline=baseline,", "baseline=Odd(),"))
