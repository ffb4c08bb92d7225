"""Another commit's files in place of the checkout's: what is found by a search path, and what must be refused."""

import sys
import types
from pathlib import Path

import pytest

import pairbench
from pairbench.errors import SuiteError
from pairbench.execute.protocol import StandIn
from pairbench.execute.worker.__main__ import redirect, refuse_strays


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    for name in ("checkout/src", "copy/src", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    return StandIn(checkout=(tmp_path / "checkout").resolve(), copy=(tmp_path / "copy").resolve())


def test_folders_of_the_checkout_become_the_copys(stand_in: StandIn, tmp_path: Path) -> None:
    environment = str(stand_in.checkout / ".venv" / "lib" / "site-packages")
    path = [str(stand_in.checkout / "src"), str(tmp_path / "elsewhere"), environment, str(stand_in.checkout)]
    redirect(stand_in, path)
    assert path == [str(stand_in.copy / "src"), str(tmp_path / "elsewhere"), environment, str(stand_in.copy)]


def test_the_current_folder_is_one_too(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stand_in.checkout / "src")
    path = [""]
    redirect(stand_in, path)
    assert path == [str(stand_in.copy / "src")]


def test_the_pairbench_that_runs_stays(tmp_path: Path) -> None:
    package = Path(pairbench.__file__).parent
    own = StandIn(checkout=package.parent, copy=tmp_path)
    refuse_strays(own, Path("suite.py"))  # of which plenty is imported here
    assert pairbench.__name__ in sys.modules


def module_of(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("my_kernels")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "my_kernels", module)


def test_a_module_of_the_checkout_is_refused_and_can_be_found_again(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    module_of(stand_in.checkout / "src" / "my_kernels.py", monkeypatch)
    with pytest.raises(SuiteError, match=r"suite ops\.py: imports 'my_kernels' from .*both sides would run the same"):
        refuse_strays(stand_in, Path("ops.py"))
    assert "my_kernels" not in sys.modules
    refuse_strays(stand_in, Path("ops.py"))


@pytest.mark.parametrize("name", ["copy/src/my_kernels.py", "elsewhere/x.py", "checkout/.venv/lib/site-packages/x.py"])
def test_all_others_are_none_of_its_business(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    module_of(tmp_path / name, monkeypatch)
    refuse_strays(stand_in, Path("ops.py"))


def test_a_module_without_a_whole_path_is_no_file_of_the_checkout(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.ops says that its file is `_ops.py`, wherever one stands."""
    monkeypatch.chdir(stand_in.checkout)
    module_of(Path("_ops.py"), monkeypatch)
    refuse_strays(stand_in, Path("ops.py"))
