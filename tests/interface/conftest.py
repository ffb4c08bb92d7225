"""Scripts as `__main__`, and what is sent of them to another process."""

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Script = Callable[[str], dict[str, Any]]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Return what runs a text as the script of this process, and returns its names."""

    def run(text: str) -> dict[str, Any]:
        main, file = types.ModuleType("__main__"), tmp_path / "script.py"
        file.write_text(text)
        main.__file__ = str(file)
        monkeypatch.setitem(sys.modules, "__main__", main)
        exec(compile(text, str(file), "exec"), vars(main))  # noqa: S102 (it is the test's own)
        return vars(main)

    return run
