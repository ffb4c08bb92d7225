"""The interface as a user has it: pairbench installed into a fresh virtual environment, the documentation's example, a shell."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.commands import Done, environment_of
from tests.docs.pages import ROOT, blocks_of

TYPED = "import pairbench\ndef f(x): return x + x\n\n"
MEASURE = "pairbench.measure({'f': f, 'g': lambda x: 2 * x}, 3, device='cpu', rounds=1)"


def python(folder: Path, *arguments: str, text: str = "", executable: str = sys.executable, **variables: str) -> Done:
    """Run Python in a folder, and give it a text to read."""
    environment = environment_of(folder, PAIRBENCH_WORKERS="fork") | variables
    command = [executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, input=text, capture_output=True, text=True, check=False, timeout=280
    )


def test_what_is_typed_into_a_shell_runs_or_says_why_not(tmp_path: Path) -> None:
    """Of lines typed into a shell before Python 3.13 nobody keeps the source; `-i` after a script has it."""
    lines = f"{TYPED}try: print({MEASURE}.ok)\nexcept pairbench.errors.UsageError as error: print('said:', error)\n\n"
    done = python(tmp_path, "-i", "-q", text=lines)
    assert done.returncode == 0 and "Traceback" not in done.stderr
    if sys.version_info < (3, 13):
        assert "said: 'f', which" in done.stdout or "said: function 'f' has no source" in done.stdout
        assert "put it into a file" in done.stdout


@pytest.mark.parametrize("option", ["-", "-c"])
def test_what_has_no_source_is_said_in_a_sentence(tmp_path: Path, option: str) -> None:
    script = f"{TYPED}{MEASURE}\n"
    done = python(tmp_path, "-c", script) if option == "-c" else python(tmp_path, "-", text=script)
    assert "Traceback" not in done.stderr
    if sys.version_info < (3, 13):  # later ones keep the lines of both
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith("pairbench: function 'f' has no source that can be found")


@pytest.mark.slow
def test_installed_into_a_fresh_environment_the_example_of_the_documentation_runs(tmp_path: Path) -> None:
    """What pairbench needs is taken from this environment, torch being large; pairbench itself is what was built and installed."""
    fresh = tmp_path / "fresh"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(fresh)], check=True)
    (site,) = (fresh / "lib").glob("python*/site-packages")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(ROOT)]
    subprocess.run(pip, check=True, cwd=tmp_path)
    (site / "rest.pth").write_text(sysconfig.get_paths()["purelib"])
    settings = "[tool.pairbench]\nrounds = 1\ncase_seconds = 0.02\nmin_samples = 10\n"
    (tmp_path / "pyproject.toml").write_text(settings)
    (tmp_path / "my_ops.py").write_text(next(block.text for block in blocks_of("README.md") if block.title))
    example = next(block.text for block in blocks_of("docs/python.md") if block.language == "python")
    (tmp_path / "bench.py").write_text(f"{example}\nprint(pairbench.__file__)\n")
    done = python(tmp_path, "bench.py", executable=str(fresh / "bin" / "python"), PYTHONPATH="")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.splitlines()[-1]).is_relative_to(site)
    for word in ("silu[dtype=float32,n=1048576]", "bench.py", "gelu[", "baseline", "mine"):
        assert word in done.stdout
    assert (tmp_path / "silu.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "results" / "records").rglob("*.parquet"))
    assert not list(tmp_path.glob("pairbench-run*")), "the folder of what was sent is still there"
