"""Operators of a notebook's cells: in IPython in this process, and in a notebook that is executed headless, with Ctrl-C."""

import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import environment_of, forked_workers

nbclient = pytest.importorskip("nbclient", reason="the extra `test` brings what runs notebooks")
nbformat = pytest.importorskip("nbformat")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

CELLS = (
    (
        "import torch\nimport torch.nn.functional as F\nimport pairbench\n"
        "QUICK = dict(device='cpu', rounds=1, case_seconds=0.02, min_samples=10)"
    ),
    "def plain(x):\n    return x * torch.sigmoid(x) / 2",
    "SCALE = 0.5\n\ndef plain(x):  # again, and this one counts\n    return x * torch.sigmoid(x) * SCALE",
    (
        "silu = pairbench.Operator(\n    'half_silu', baseline=plain, variants={'builtin': lambda x: F.silu(x) * SCALE},\n"
        "    inputs=lambda make, n: {'x': make.normal(n)}, cases=pairbench.grid(n=[256, 512]))"
    ),
    "result = pairbench.run(silu, **QUICK)\nassert result.ok, result\nresult",
)
PLOT = "result.plot('n')"
# Interrupts at the fifth step: two cases are verified, and two timed.
INTERRUPT = (
    "import os, signal\nfrom pairbench.workflow.progress import PlainProgress\ndone = []\n"
    "def stepped(self, device):\n    done.append(device)\n    if len(done) == 5:\n        os.kill(os.getpid(), signal.SIGINT)\n"
    "PlainProgress.stepped = stepped"
)
CUT = "cut = pairbench.run(silu, **{**QUICK, 'rounds': 500})\nassert cut.interrupted\nlen(cut.records)"


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give the shell of a notebook's kernel, without the kernel, in a folder without settings."""
    interactive: Any = importlib.import_module("IPython.core.interactiveshell")
    traitlets: Any = importlib.import_module("traitlets.config")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAIRBENCH_WORKERS", "fork")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    for prompt in ("ps1", "ps2", "ps3"):  # by which libraries take a process for an interactive one
        monkeypatch.setattr(sys, prompt, "", raising=False)
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    without_history = traitlets.Config(HistoryManager={"enabled": False})
    made = interactive.InteractiveShell.instance(user_module=main, config=without_history)
    made.kernel = None
    with forked_workers():
        yield made
    interactive.InteractiveShell.clear_instance()


def test_a_run_of_what_cells_define_is_shown_as_a_table_and_a_chart(shell: Any) -> None:
    capture: Any = importlib.import_module("IPython.utils.capture")
    for cell in CELLS:
        with capture.capture_output() as captured:
            done = shell.run_cell(cell, store_history=True)
        done.raise_error()
    shown = shell.display_formatter.format(done.result)[0]["text/html"]
    assert "half_silu[n=512]" in shown and "<svg" in shown and "notebook.py" in shown
    assert captured.outputs[-1].data == {"text/plain": ""}, "the line of progress is gone"


@pytest.mark.slow
def test_a_notebook_that_is_executed_headless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment_of(tmp_path / "places", PAIRBENCH_WORKERS="fork").items():
        monkeypatch.setenv(name, value)
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "places"))
    (tmp_path / "places").mkdir()
    cells = [nbformat.v4.new_code_cell(text) for text in (*CELLS, PLOT, INTERRUPT, CUT)]
    book = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(book, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    run, plot, _, cut = (cell.outputs for cell in book.cells[-4:])
    (shown,) = (one for one in run if one.output_type == "execute_result")
    assert "half_silu[n=512]" in shown.data["text/html"] and "notebook.py" in shown.data["text/html"]
    assert all(one.data == {"text/plain": ""} for one in run if one.output_type == "display_data")
    assert "image/png" in plot[-1].data
    assert int(cut[-1].data["text/plain"]) > 0, "what was finished before Ctrl-C is there"
