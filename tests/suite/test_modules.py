"""Helpers of suites: each file is a module of its own, whatever other files are called."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pairbench.errors import SuiteError
from pairbench.execute.worker.describe.operators import describe
from pairbench.suite.modules import NAMESPACE, STATEMENTS, load_module, load_suite, parse_module, search

SUITE = """
{imports}
from pairbench import Operator, grid

op = Operator(
    "op", baseline=lambda x: x, variants={{"v": {variant}}}, inputs=lambda make, n: {{"x": make.ones(n)}}, cases=grid(n=[1])
)
"""


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write files by their names, without the ending, and return the first."""
    paths = [folder / f"{name}.py" for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return paths[0]


def variant(path: Path) -> Any:
    return load_suite(path)["op"].variants["v"].function


def hash_of(path: Path) -> str:
    (found,) = (item.hash for item in describe("s", path, load_suite(path)["op"]).implementations if item.name == "v")
    return found


def test_two_suites_with_helpers_of_one_name_run_their_own(tmp_path: Path) -> None:
    """The second suite once ran the first one's kernel, and its hash did not show it."""
    text = SUITE.format(imports="import kernels", variant="lambda x: kernels.double(x)")
    a = write(tmp_path / "a", {"ops": text, "kernels": "def double(x):\n    return 2 * x\n"})
    b = write(tmp_path / "b", {"ops": text, "kernels": "def double(x):\n    return x + x\n"})
    assert variant(a).__globals__["kernels"].__file__ == str(tmp_path / "a" / "kernels.py")
    assert variant(b).__globals__["kernels"].__file__ == str(tmp_path / "b" / "kernels.py")
    assert hash_of(a) != hash_of(b) and variant(a).__module__ != variant(b).__module__
    assert not {"kernels", "ops"} & sys.modules.keys()


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("import kernels", "lambda x: kernels.f(x)"),
        ("import kernels as k", "lambda x: k.f(x)"),
        ("from kernels import f", "f"),
        ("from kernels import f as g, SIZE", "lambda x: g(x) + SIZE - SIZE"),
        ("from . import kernels", "lambda x: kernels.f(x)"),
        ("from .kernels import f", "f"),
        ("import package.kernels", "lambda x: package.kernels.f(x)"),
        ("import package.kernels as k", "lambda x: k.f(x)"),
        ("from package import kernels", "lambda x: kernels.f(x)"),
        ("from package.kernels import f", "f"),
        ("import plain.kernels", "lambda x: plain.kernels.f(x)"),
        ("from plain.kernels import f", "f"),
        ("from ..other.kernels import f", "f"),
        ("try:\n    from kernels import f\nexcept ImportError:\n    f = None", "f"),
        ("def f(x):\n    import kernels\n    return kernels.f(x)", "f"),
    ],
)
def test_every_form_of_an_import(tmp_path: Path, imports: str, call: str) -> None:
    kernels = "SIZE = 3\n\ndef f(x):\n    return ('{}', x)\n"
    path = write(
        tmp_path / "suites",
        {
            "ops": SUITE.format(imports=imports, variant=call),
            "kernels": kernels.format("it"),
            "package/__init__": "",
            "package/kernels": kernels.format("it"),
            "plain/kernels": kernels.format("it"),
        },
    )
    write(tmp_path / "other", {"kernels": kernels.format("it")})
    function = variant(path)
    if "+ SIZE" not in call:
        assert function(1) == ("it", 1)
    assert not {"kernels", "package", "plain"} & sys.modules.keys()


@pytest.mark.parametrize(
    "inside",
    [
        "if n: pass\n    else:\n        {}",
        "try:\n        {}\n    finally: pass",
        "try: 1 / 0\n    except ZeroDivisionError:\n        {}",
        "try: pass\n    finally:\n        {}",
        "match n:\n        case 0: {}",
        "for _ in range(1):\n        with open(__file__): {}",
        "class Inner:\n        {}\n    kernels = Inner.kernels",
    ],
)
def test_an_import_inside_of_any_statement(tmp_path: Path, inside: str) -> None:
    helper = f"def v(x, n=0):\n    {inside.format('import kernels')}\n    return kernels.f(x)\n"
    files = {"ops": SUITE.format(imports=helper, variant="v"), "kernels": "def f(x):\n    return 7 * x\n"}
    assert variant(write(tmp_path, files))(2) == 14


def test_all_places_of_statements_are_known() -> None:
    """As the standard library documents its nodes."""
    documented = "".join(node.__doc__ or "" for node in vars(ast).values() if isinstance(node, type))
    assert set(re.findall(r"(?:stmt|excepthandler|match_case)\* (\w+)", documented)) == set(STATEMENTS)


@pytest.mark.parametrize(
    ("files", "result"),
    [
        (
            {
                "my ops": SUITE.format(imports="from package import kernels", variant="kernels.f"),
                "package/__init__": "",
                "package/kernels": "from package.deep import value\nimport beside\n\ndef f(x):\n    return value + beside.value\n",
                "package/deep": "value = 1\n",
                "beside": "value = 2\n",
            },
            3,
        ),
        # A suite called json.py means the library by `import json`.
        ({"json": SUITE.format(imports="import json", variant="lambda x: json.dumps(x)")}, "5"),
    ],
)
def test_helpers_import_their_own_neighbours_and_a_suite_is_none_of_itself(
    tmp_path: Path, files: dict[str, str], result: object
) -> None:
    assert variant(write(tmp_path / "my suites-1.0" / "a b", files))(5) == result


def test_an_installed_package_beside_a_suite_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice, it would register its operators twice."""
    text = SUITE.format(imports="import installed_here", variant="installed_here.f")
    path = write(tmp_path, {"ops": text, "installed_here/__init__": "def f(x):\n    return x\n"})
    monkeypatch.syspath_prepend(tmp_path)
    assert variant(path).__module__ == "installed_here"


def test_a_file_is_one_module_for_all(tmp_path: Path) -> None:
    text = SUITE.format(imports="from ..common.shared import f", variant="f")
    one, two = write(tmp_path / "one", {"ops": text}), write(tmp_path / "two", {"ops": text})
    write(tmp_path / "common", {"shared": "def f(x):\n    return x\n"})
    assert variant(one) is variant(two)
    assert load_module(tmp_path / "common" / "shared.py").__name__.startswith(f"{NAMESPACE}.")


def test_what_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    path = write(tmp_path, {"ops": "import kernels\n1 / 0\n", "kernels": "value = 1\n"})
    with pytest.raises(SuiteError, match=r"suite ops\.py, line 2: ZeroDivisionError"):
        load_suite(path)
    assert not [name for name in sys.modules if name.startswith(NAMESPACE) and name.endswith(f"{tmp_path.name}.ops")]
    path.write_text(SUITE.format(imports="import kernels", variant="lambda x: kernels.value"))
    assert variant(path)(0) == 1


def test_no_bytecode_of_the_changed_imports_is_kept(tmp_path: Path) -> None:
    """Python would take it for the file's own, and fail at a relative import of a module without a package."""
    path = write(tmp_path, {"ops": SUITE.format(imports="import kernels", variant="lambda x: kernels.f(x)")})
    write(tmp_path, {"kernels": "import deeper\n\ndef f(x):\n    return deeper.value\n", "deeper": "value = 7\n"})
    assert variant(path)(0) == 7
    code = "import kernels; print(kernels.f(0))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "7\n", done.stderr


@pytest.mark.parametrize(
    ("imports", "text", "own"),
    [
        ("import queue", "raise SystemExit\n", False),
        ("import queue", "def mine(): ...\n", True),
        ("import queue as q", "def mine(): ...\n", True),
        ("import queue as q", "def other(): ...\n", False),
        ("from queue import mine", "mine = 1\n", True),
        ("from queue import Queue", "from queue import Queue\n", False),
        ("from queue import Queue", "def f(:\n", False),
    ],
)
def test_a_name_of_the_standard_library_means_a_neighbour_that_has_what_is_asked_for(
    tmp_path: Path, imports: str, text: str, own: bool
) -> None:
    used = {"import queue": "queue.mine", "import queue as q": "q.mine"}.get(imports, "None")
    path = write(tmp_path, {"ops": f"{imports}\n\n\ndef f():\n    return {used}\n", "queue": text})
    (found,) = (node for node in parse_module(path).body if isinstance(node, ast.Import | ast.ImportFrom))
    assert (isinstance(found, ast.ImportFrom) and found.level == 1) is own


def test_the_current_folder_is_searched_for_suites_and_not_for_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        tmp_path, {"only_here": "import deeper_here\n", "deeper_here": "value = 3\n", "calendar": "raise SystemExit\n"}
    )
    imports = "import calendar\nimport only_here"
    path = write(
        tmp_path / "below", {"ops": SUITE.format(imports=imports, variant="lambda x: only_here.deeper_here.value")}
    )
    monkeypatch.setattr("sys.meta_path", [*sys.meta_path])
    search(str(tmp_path))
    library = write(tmp_path / "site-packages", {"a_library": "import only_here\n"})
    monkeypatch.syspath_prepend(library.parent)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("a_library")
    try:
        assert variant(path)(0) == 3
    finally:
        sys.modules.pop("only_here", None)
        sys.modules.pop("deeper_here", None)
