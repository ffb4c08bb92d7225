"""The interface as a user has it: pairbench installed into a fresh virtual environment, the documentation's example, a shell."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def example(page: str = "docs/python.md") -> str:
    """Return the first Python of a page."""
    found = re.search(r"```python[^\n]*\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert found
    return found[1]


def environment(folder: Path, **more: str) -> dict[str, str]:
    names = ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "TMPDIR")
    return {**os.environ, **dict.fromkeys(names, str(folder)), "PAIRBENCH_WORKERS": "fork", **more}


def run(folder: Path, python: str, script: str, **more: str) -> subprocess.CompletedProcess[str]:
    (folder / "pyproject.toml").write_text("[tool.pairbench]\nrounds = 1\ncase_seconds = 0.02\nmin_samples = 10\n")
    (folder / "bench.py").write_text(script)
    (folder / "my_ops.py").write_text(example("README.md"))
    return subprocess.run(
        [python, "bench.py"],
        cwd=folder,
        env=environment(folder, **more),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


def check(folder: Path, done: subprocess.CompletedProcess[str]) -> None:
    """Check what the script of docs/python.md has printed and left behind."""
    assert done.returncode == 0, done.stderr
    assert "silu[dtype=float32,n=1048576]" in done.stdout and "bench.py" in done.stdout
    assert "gelu[" in done.stdout and "baseline" in done.stdout and "mine" in done.stdout
    assert (folder / "silu.png").read_bytes().startswith(b"\x89PNG")
    assert list((folder / "results" / "records").rglob("*.parquet"))
    left = [file for file in folder.iterdir() if file.name.startswith("pairbench-run")]
    assert not left, "the folder of what was sent is still there"


def test_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT / "harness"), *filter(None, [os.environ.get("PYTHONPATH")])])
    check(tmp_path, run(tmp_path, sys.executable, example(), PYTHONPATH=path))


def test_what_is_typed_into_a_shell_runs_or_says_why_not(tmp_path: Path) -> None:
    """Of lines typed into a shell before Python 3.13 nobody keeps the source; `-i` after a script has it."""
    lines = (
        "import pairbench\ndef f(x): return x + x\n\n"
        "try: print(pairbench.measure({'f': f, 'g': lambda x: 2 * x}, 3, device='cpu', rounds=1).ok)\n"
        "except pairbench.errors.UsageError as error: print('said:', error)\n\n"
    )
    path = os.pathsep.join([str(ROOT / "harness"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-i", "-q"],
        input=lines,
        cwd=tmp_path,
        env=environment(tmp_path, PYTHONPATH=path),
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    if sys.version_info < (3, 13):
        assert "said: 'f', which" in done.stdout or "said: function 'f' has no source" in done.stdout
        assert "put it into a file" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_installed_into_a_fresh_environment(tmp_path: Path) -> None:
    """What pairbench needs is taken from this environment, torch being large; pairbench itself is what was built and installed."""
    fresh = tmp_path / "fresh"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(fresh)], check=True)
    (site,) = (fresh / "lib").glob("python*/site-packages")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(ROOT)]
    subprocess.run(pip, check=True, cwd=tmp_path)
    (site / "rest.pth").write_text(sysconfig.get_paths()["purelib"])
    python = str(fresh / "bin" / "python")
    where = subprocess.run(
        [python, "-c", "import pairbench; print(pairbench.__file__)"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(where.stdout.strip()).is_relative_to(site)
    check(tmp_path, run(tmp_path, python, example(), PYTHONPATH=""))


@pytest.mark.parametrize("options", [["-"], ["-c"]])
def test_what_has_no_source_is_said_in_a_sentence(tmp_path: Path, options: list[str]) -> None:
    text = "import pairbench\ndef f(x): return x + x\npairbench.measure({'f': f, 'g': lambda x: 2 * x}, 3, device='cpu', rounds=1)\n"
    path = os.pathsep.join([str(ROOT / "harness"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, *options, *([text] if options == ["-c"] else [])],
        input=text,
        cwd=tmp_path,
        env=environment(tmp_path, PYTHONPATH=path),
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    if sys.version_info >= (3, 13):  # it keeps the lines of both
        assert "Traceback" not in done.stderr
        return
    assert done.returncode == 1
    assert done.stderr.startswith("pairbench: function 'f' has no source that can be found")
    assert len(done.stderr.splitlines()) == 1
