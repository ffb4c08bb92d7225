import sys
import types
from pathlib import Path

import pytest

import pairbench
from pairbench.errors import SuiteError
from pairbench.execute.protocol import StandIn
from pairbench.execute.worker.__main__ import redirect, refuse_strays


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    # Not the thousands that other tests have imported, each of which is looked for on the disk.
    ours = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "pairbench"}
    monkeypatch.setattr(sys, "modules", ours)
    for name in ("checkout/src", "copy/src", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    return StandIn(checkout=(tmp_path / "checkout").resolve(), copy=(tmp_path / "copy").resolve())


def test_folders_of_the_checkout_become_the_copys(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, elsewhere = str(stand_in.checkout / ".venv" / "lib" / "site-packages"), str(tmp_path / "elsewhere")
    path = [str(stand_in.checkout / "src"), elsewhere, environment, str(stand_in.checkout), ""]
    monkeypatch.chdir(stand_in.checkout / "src")
    redirect(stand_in, path)
    copied = str(stand_in.copy / "src")
    assert path == [copied, elsewhere, environment, str(stand_in.copy), copied]


def module_of(file: Path, monkeypatch: pytest.MonkeyPatch, name: str = "my_kernels") -> None:
    module = types.ModuleType(name)
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, name, module)


def test_a_module_of_the_checkout_is_refused_and_can_be_found_again(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    module_of(stand_in.checkout / "src" / "my_kernels.py", monkeypatch)
    with pytest.raises(SuiteError, match=r"suite ops\.py: imports 'my_kernels' from .*both sides would run the same"):
        refuse_strays(stand_in, Path("ops.py"))
    assert "my_kernels" not in sys.modules
    refuse_strays(stand_in, Path("ops.py"))


def test_all_others_are_none_of_its_business(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a module without a whole path: torch.ops says that its file is `_ops.py`, wherever one stands."""
    monkeypatch.chdir(stand_in.checkout)
    module_of(Path("_ops.py"), monkeypatch)
    for name in ("copy/src/a.py", "elsewhere/b.py", "checkout/.venv/lib/site-packages/c.py"):
        module_of(tmp_path / name, monkeypatch, Path(name).stem)
    refuse_strays(stand_in, Path("ops.py"))
    # And the pairbench that runs stays, of which plenty is imported here.
    refuse_strays(StandIn(checkout=Path(pairbench.__file__).parents[1], copy=tmp_path), Path("ops.py"))
    assert pairbench.__name__ in sys.modules
