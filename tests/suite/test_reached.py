"""Which files a suite is made of, by its import statements."""

import sys
from pathlib import Path

import pytest

from pairbench.suite.reached import names_compiler, reached_files

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
