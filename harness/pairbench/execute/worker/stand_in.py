"""Code of another commit in place of the checkout's: a worker's imports come from the copy, or the suite is refused.

Suites are loaded by path, so they are the copy's. What they import may still be found in the checkout: by an editable
install, by PYTHONPATH, or because the command was started there. Both sides would then run the same code and be found the same.
"""

import sys
from pathlib import Path

from pairbench.errors import SuiteError
from pairbench.execute.protocol import StandIn

_LIBRARIES = ("site-packages", "dist-packages")
_PAIRBENCH = Path(__file__).resolve().parents[2]
"""Running already, and the same for both sides on purpose."""


def redirect(stand_in: StandIn, search_path: list[str]) -> None:
    """Point the entries of a module search path that lie in the checkout to the same places of the copy."""
    for index, text in enumerate(search_path):
        folder = Path(text).resolve()
        if _belongs(folder, stand_in):
            search_path[index] = str(stand_in.copy / folder.relative_to(stand_in.checkout))


def refuse_strays(stand_in: StandIn, suite: Path) -> None:
    """Make sure that no module came from the checkout.

    Raises:
        SuiteError: one did, so the other commit's code is not what would run.
    """
    strays = {name: file for name, module in list(sys.modules.items()) if (file := _stray(module, stand_in))}
    for name in strays:
        del sys.modules[name]  # so that the next suite which imports it is found out too
    for name, file in strays.items():
        raise SuiteError(
            f"suite {suite.name}: imports {name!r} from {file}, which is the checkout's and not the other commit's, so both "
            "sides would run the same code; have it found by its folder (in PYTHONPATH, or a `.pth` editable install)"
        )


def _stray(module: object, stand_in: StandIn) -> Path | None:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not Path(file).is_absolute():  # torch.ops says that it is `_ops.py`
        return None
    path = Path(file).resolve()
    return path if _belongs(path, stand_in) else None


def _belongs(path: Path, stand_in: StandIn) -> bool:
    """Return whether a path is the checkout's own code: no environment in it, and not the pairbench that runs."""
    if not path.is_relative_to(stand_in.checkout) or path.is_relative_to(_PAIRBENCH):
        return False
    return not path.is_relative_to(sys.prefix) and not any(part in _LIBRARIES for part in path.parts)
