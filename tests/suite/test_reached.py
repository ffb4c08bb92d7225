"""What the text of suites says without running them: the files that they import, and the descriptions of their operators."""

import json
import sys
from pathlib import Path

import pytest

from pairbench.model.site import About
from pairbench.suite.reached import about, names_compiler, reached_files

FILES = {
    "suites/conv/ops.py": "import kernels\nfrom ..common import shared\ndef late():\n    from deep.inner import f\n",
    "suites/conv/kernels.py": "from .odd_2d_name import g\nimport torch, json\n",
    "suites/conv/odd-name.py": "",
    "suites/conv/deep/__init__.py": "from . import beside\n",
    "suites/conv/deep/inner.py": "",
    "suites/conv/deep/beside.py": "import mylib_reached.parts\n",
    "suites/conv/alone.py": "",
    "suites/common/shared.py": "import kernels\n",
    "suites/common/kernels.py": "not python (",
    "mylib_reached/__init__.py": "from mylib_reached import parts\n",
    "mylib_reached/parts.py": "from . import more\nimport pairbench\n",
    "mylib_reached/more.py": "",
    "mylib_reached/other.py": "",
}


def test_helpers_and_packages_of_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    reached = reached_files(tmp_path / "suites" / "conv" / "ops.py", tmp_path)
    conv = ("ops", "kernels", "odd-name", "deep/__init__", "deep/inner", "deep/beside")
    tree = {*(f"suites/conv/{name}.py" for name in conv), "suites/common/shared.py", "suites/common/kernels.py"}
    assert {path.relative_to(tmp_path).as_posix() for path in reached.tree} == tree
    assert {path.relative_to(tmp_path).as_posix() for path in reached.packages} == {
        *("mylib_reached/__init__.py", "mylib_reached/parts.py", "mylib_reached/more.py"),
    }
    assert not {name for name in set(sys.modules) - before if name.startswith("mylib_reached")}, "it was imported"


def test_a_package_of_elsewhere_is_not_of_the_repository(tmp_path: Path) -> None:
    suite = tmp_path / "ops.py"
    suite.write_text("import torch, pytest, pairbench, nothing_of_that_name\n")
    assert reached_files(suite, tmp_path).tree == {suite}
    assert not reached_files(suite, tmp_path).packages


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("run = torch.compile(f)", True),
        ("from torch.nn.attention.flex_attention import flex_attention", True),
        ("import torch\ncompiled = re.compile('x')", False),
    ],
)
def test_whether_a_suite_names_the_compiler(tmp_path: Path, text: str, named: bool) -> None:
    (tmp_path / "ops.py").write_text("from . import helper\n")
    (tmp_path / "helper.py").write_text(text)
    (tmp_path / "other.py").write_text("torch.compile")
    assert names_compiler([tmp_path / "ops.py"], tmp_path) is named
    assert not names_compiler([tmp_path / "gone.py"], tmp_path)


ROOT = Path(__file__).parents[2]
SUITE = '''"""Norms of several kinds.

More of them.
"""

from pairbench import Operator, Variant, grid

SOURCE = "a paper"


def eager(x):
    """Square, mean and
    root.

    And more.
    """


def silent(x):
    return x


norm = Operator("norm", baseline=eager, source="llama #" "12")
other = Operator(name="other", baseline=Variant(eager), source=SOURCE + ", page 3", owner="@team/norms")
third = Operator("third", baseline=Variant(function=silent), source=f"{SOURCE}!")
fourth = Operator("fourth", baseline=lambda x: x)
fifth = Operator("fifth", baseline=elsewhere.function)
'''


def read(folder: Path, text: str | bytes) -> dict[str, About]:
    file = folder / "suite.py"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return about(file, "suites/suite.py")


def test_every_operator_of_the_catalogue() -> None:
    found = {
        name: one
        for file in sorted((ROOT / "suites").rglob("*.py"))
        for name, one in about(file, file.relative_to(ROOT).as_posix()).items()
    }
    pinned = json.loads((ROOT / "tests/catalogue/hashes.json").read_text(encoding="utf-8"))
    assert found.keys() == {name for operators in pinned.values() for name in operators}
    assert found["depthwise_conv1d"].source == "candle #3531"
    for one in found.values():
        lines = (ROOT / one.path).read_text().splitlines()
        assert "Operator(" in lines[one.line - 1]
        assert one.source and 20 < len(one.summary) <= 600 and "\n" not in one.summary


def test_name_source_line_and_summary(tmp_path: Path) -> None:
    found = read(tmp_path, SUITE)
    assert list(found) == ["norm", "other", "third", "fourth", "fifth"]
    line = 1 + SUITE[: SUITE.index("norm = Operator")].count("\n")
    assert found["norm"] == About(
        summary="Square, mean and root.", source="llama #12", path="suites/suite.py", line=line
    )
    assert (found["other"].owner, found["norm"].owner) == ("@team/norms", "")
    assert found["other"].source == "a paper, page 3" and found["other"].summary == "Square, mean and root."
    assert found["third"].source == "", "what is only known when it runs is left out"
    assert {found[name].summary for name in ("third", "fourth", "fifth")} == {"Norms of several kinds."}


@pytest.mark.parametrize(
    "text", ["Operator()", "Operator(name())", "Operator(1)", "Operator(*names)", "Operator(**all)"]
)
def test_a_name_that_is_not_written_there_is_passed_over_and_the_first_of_two_counts(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, f"{text}\nOperator('x', source='a')\nOperator('x', source='b')")
    assert list(found) == ["x"] and found["x"].source == "a"


@pytest.mark.parametrize(
    "text",
    [
        "import pairbench\npairbench.Operator('x')",
        "import pairbench as p\np.Operator('x')",
        "from pairbench import Operator as Op\nOp('x')",
        "from pairbench.model.operator import Operator\nif True:\n    Operator(name='x')",
        "NAME = 'x'\nOperator(NAME)",
    ],
)
def test_ways_to_declare(tmp_path: Path, text: str) -> None:
    assert list(read(tmp_path, text)) == ["x"]


def test_nothing_is_executed(tmp_path: Path) -> None:
    trap = f"open({str(tmp_path / 'touched')!r}, 'w')\nraise SystemExit(3)\nOperator('x')"
    assert list(read(tmp_path, trap)) == ["x"]
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"def (",
        b"\xff\xfe\x00Operator('x')",
        b"Operator('x')\x00",
        b"# coding: no-such\nOperator('x')",
        b"(" * 100_000,
        b"-" * 100_000 + b"1",
        b"Operator('x', source=" + b"+".join([b"'a'"] * 100_000) + b")",
        b"x = " + b"[" * 3_000 + b"]" * 3_000,
        b"",
        b"#" * 5 * 2**20,
    ],
    ids=["syntax", "encoding", "null", "coding", "parentheses", "minus", "sum", "nested", "empty", "large"],
)
def test_a_broken_file_and_what_is_none_say_nothing(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path, content) == {}
    assert about(tmp_path, "x") == about(tmp_path / "missing.py", "x") == about(Path("/dev/zero"), "x") == {}


def test_hostile_text_is_kept_as_it_is(tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=alert(1)>\x01\u202e" + "y" * 10_000
    one = read(tmp_path, f'"""\\d {hostile}"""\nOperator("x", source={hostile!r})')["x"]
    assert one.source == hostile
    assert one.summary.startswith("\\d </script><img src=x onerror=alert(1)>") and len(one.summary) == 600
