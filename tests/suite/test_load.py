"""Loading suites by path: found, loaded under names of their own, and refused with the line at fault."""

import sys
from pathlib import Path

import pytest

from pairbench.errors import SuiteError
from pairbench.suite.modules import NAMESPACE, find_suites, load_suite, refuse_syntax_errors

PLAIN = """
from pairbench import Operator, grid

{name} = Operator("{name}", baseline=lambda x: x, variants={{"v": lambda x: x}}, inputs=lambda make, n: {{}}, cases=grid(n=[1]))
"""


def write(folder: Path, name: str, text: str = "") -> Path:
    file = folder / f"{name}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text or PLAIN.format(name=name))
    return file


def test_a_folder_gives_its_suites_in_order_and_neither_its_helpers_nor_what_is_no_suite(tmp_path: Path) -> None:
    b, a = write(tmp_path, "b"), write(tmp_path, "a")
    write(tmp_path, "kernels", "def helper(): ...\n")
    (tmp_path / "notes.txt").write_text("Operator")
    assert find_suites((tmp_path,)) == (a, b)
    assert find_suites((b, tmp_path, a)) == (b, a)
    with pytest.raises(
        SuiteError, match=r"suite '.*/no\.py' does not exist, expected a file or a folder of suite files"
    ):
        find_suites((tmp_path / "no.py",))
    with pytest.raises(
        SuiteError,
        match=r"suite notes\.txt: not a Python file, expected \.py, a definition of FlashInfer-Trace or SOL-ExecBench, or a list",
    ):
        load_suite(tmp_path / "notes.txt")


def test_operators_come_in_the_order_of_declaration(tmp_path: Path) -> None:
    text = PLAIN.format(name="zebra") + PLAIN.format(name="ant") + "alias = zebra\n"
    assert list(load_suite(write(tmp_path, "ops", text))) == ["zebra", "ant"]
    in_a_list = (
        PLAIN.format(name="op").replace("op = Operator", "PAIRS = [Operator").rstrip() + "]\nfirst, *rest = PAIRS\n"
    )
    assert [*load_suite(write(tmp_path, "listed", in_a_list))] == ["op"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n\n1 / 0\n", "suite ops.py, line 3: ZeroDivisionError: division by zero"),
        ("def f(:\n", "suite ops.py, line 1: SyntaxError: "),
        ("import json\njson.loads('{')\n", "suite ops.py, line 2: JSONDecodeError: "),  # where it led into a library
        ("import sys\nsys.exit('usage: ops')\n", "suite ops.py, line 2: SystemExit: usage: ops"),
        ("x = 3\n", "suite ops.py: declares no operator, expected at least one module-level Operator(...)"),
        ("def get_inputs(): ...\nModel = 3\n", "; to be a problem of KernelBench, it lacks get_init_inputs"),
        ("x = '\0'\n", "suite ops.py: SyntaxError: source code string cannot contain null bytes"),
        (
            PLAIN.format(name="op").replace("n=[1]", "m=[1]"),
            "suite ops.py, line 4: operator 'op': case op[m=1] names the axis 'm'",
        ),
        (
            PLAIN.format(name="op")
            + "again = Operator('op', baseline=op.baseline, variants=op.variants, inputs=op.inputs, cases=[{'n': 2}])\n",
            "suite ops.py: two operators are named 'op'; a name is the key of its history, so give each its own",
        ),
    ],
    ids=["error", "syntax", "library", "exit", "nothing", "almost", "null", "declaration", "twins"],
)
def test_what_cannot_be_loaded(tmp_path: Path, text: str, words: str) -> None:
    before = set(sys.modules)
    with pytest.raises(SuiteError) as caught:
        load_suite(write(tmp_path, "ops", text))
    assert words in str(caught.value)
    assert str(tmp_path) not in sys.path
    if not any(told in words for told in ("two operators", "declares no", "it lacks")):
        assert not [name for name in set(sys.modules) - before if "ops" in name]


def test_files_of_which_none_is_python_are_refused_without_loading_any(tmp_path: Path) -> None:
    bad, other = write(tmp_path, "bad", "x = (\n"), write(tmp_path, "other", "def\n")
    with pytest.raises(
        SuiteError, match=r"suite bad\.py, line 1: SyntaxError: .*; suite other\.py, line 1: SyntaxError"
    ):
        refuse_syntax_errors([bad, other])
    refuse_syntax_errors([bad, write(tmp_path, "fine")])
    refuse_syntax_errors([])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "import no_such\n",
            "ModuleNotFoundError: No module named 'no_such'; searched were {folder} and {here}, PYTHONPATH",
        ),
        (
            "from .nowhere import f\n",
            "ModuleNotFoundError: No module named 'nowhere'; searched were {folder} and {here}",
        ),
        ("from . import nowhere\n", "ImportError: cannot import name 'nowhere' from the folder {folder}"),
        ("import helper\n", "ModuleNotFoundError: No module named 'nowhere'; searched were {folder} and {here}"),
        ("from helper2 import f\n", "ImportError: cannot import name 'f' from 'helper2' ({folder}/helper2.py)"),
    ],
)
def test_an_import_that_fails_names_the_folder_and_nothing_of_ours(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "helper.py").write_text("from .nowhere import f\n")
    (tmp_path / "helper2.py").write_text("")
    (tmp_path / "ops.py").write_text(text)
    with pytest.raises(SuiteError) as caught:
        load_suite(tmp_path / "ops.py")
    assert words.format(folder=tmp_path, here=Path.cwd()) in str(caught.value) and NAMESPACE not in str(caught.value)
