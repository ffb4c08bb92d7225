"""A notebook that is executed headless: operators of its cells, a table and a chart as output, and Ctrl-C."""

import os
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient", reason="the extra `test` brings what runs notebooks")
nbformat = pytest.importorskip("nbformat")

ROOT = Path(__file__).parents[2]
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
    "result.plot('n')",
    "pairbench.measure({'plain': plain, 'mine': lambda x: F.silu(x) / 2}, torch.randn(300), **QUICK)",
)


def execute(folder: Path, cells: tuple[str, ...]) -> tuple[Any, Any]:
    """Return a client that has not begun, and its notebook."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    return nbclient.NotebookClient(book, timeout=200, resources={"metadata": {"path": str(folder)}}), book


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "places"))
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(ROOT / "harness"), *filter(None, [os.environ.get("PYTHONPATH")])])
    )
    monkeypatch.setenv("PAIRBENCH_WORKERS", "fork")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_notebook_measures_what_its_cells_define(tmp_path: Path, environment: None) -> None:
    client, book = execute(tmp_path, CELLS)
    client.execute()
    outputs = [cell.outputs for cell in book.cells]
    (shown,) = (one for one in outputs[4] if one.output_type == "execute_result")
    assert "half_silu[n=512]" in shown.data["text/html"] and "<svg" in shown.data["text/html"]
    assert "notebook.py" in shown.data["text/html"]
    (picture,) = (one for one in outputs[5] if one.output_type == "execute_result")
    assert "image/png" in picture.data
    # The line of progress is gone, and left no other output.
    assert all(one.data == {"text/plain": ""} for one in outputs[4] if one.output_type == "display_data")
    assert "plain[dtype=float32,x=300]" in outputs[6][-1].data["text/html"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_in_a_notebook_gives_what_was_finished(tmp_path: Path, environment: None) -> None:
    long = "cut = pairbench.run(silu, **{**QUICK, 'rounds': 500})\nassert cut.interrupted\nlen(cut.records)"
    tell = (
        "import os, signal\nfrom pairbench.workflow.progress import PlainProgress\ndone = []\n"
        "def stepped(self, device):\n    done.append(device)\n    if len(done) == 5:\n        os.kill(os.getpid(), signal.SIGINT)\n"
        "PlainProgress.stepped = stepped"
    )
    client, book = execute(tmp_path, (*CELLS[:4], tell, long))
    client.execute()
    assert int(book.cells[-1].outputs[-1].data["text/plain"]) > 0
