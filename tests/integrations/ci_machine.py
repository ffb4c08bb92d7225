"""A machine for CI jobs to run on: a Python with the packages of the running one, and a project with operators in git."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.builders import git
from tests.commands import ROOT

_PROJECT = {
    "pyproject.toml": """
[build-system]
requires = ["setuptools>=70.1"]
build-backend = "setuptools.build_meta"

[project]
name = "ops-under-test"
version = "0"

[tool.setuptools]
py-modules = ["my_ops"]
package-dir = { "" = "src" }

[tool.pairbench]
case_seconds = 0.05
min_samples = 20
rounds = 1
""",
    "src/my_ops.py": """
def plain(x):
    return x * x.sigmoid()


def fused(x):
    return x.sigmoid().mul_(x)
""",
    "suites/silu.py": """
import my_ops

from pairbench import Operator, grid

silu = Operator(
    "silu",
    baseline=my_ops.plain,
    variants={"fused": my_ops.fused},
    inputs=lambda make, n: {"x": make.normal(n)},
    cases=grid(n=[1024]),
    impostors={"gateless": lambda x: x.sigmoid()},
)
""",
}
PLANTED = {"src/my_ops.py": _PROJECT["src/my_ops.py"].replace("x.sigmoid().mul_(x)", "(x + 0).sigmoid().mul_(x)")}
"""One operator more in a variant, and the same results. Not in the suite itself, so that it takes an install to see it."""

_RECORDER = """#!{python}
import json, pathlib, sys
arguments = sys.argv[1:]
named = [one.removeprefix("body=@") for one in arguments if one.startswith("body=@")]
named += [after for one, after in zip(arguments, arguments[1:]) if one == "--body-file"]
body = pathlib.Path(named[0]).read_text() if named else None
here = pathlib.Path(__file__).parent
with (here / "gh.jsonl").open("a") as log:
    log.write(json.dumps({{"arguments": arguments, "body": body}}) + "\\n")
if "--jq" in arguments:
    sys.stdout.write((here / "found").read_text())
"""


@dataclass(frozen=True)
class Machine:
    folder: Path

    @classmethod
    def make(cls, folder: Path, *, comments: str = "") -> "Machine":
        """Set one up in a new folder, where `gh` finds the ids of some comments of ours."""
        for name in ("home", "tmp", "tools"):
            (folder / name).mkdir(parents=True)
        # Behind the packages of every environment that is made with --system-site-packages, as an image's own torch is.
        packages = folder / "user" / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
        packages.mkdir(parents=True)
        (packages / "machine.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
        run([sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", folder / "python"], folder)
        (folder / "tools" / "gh").write_text(_RECORDER.format(python=sys.executable))
        (folder / "tools" / "gh").chmod(0o755)
        (folder / "tools" / "found").write_text(comments)
        return cls(folder)

    @property
    def environment(self) -> dict[str, str]:
        """What a shell starts with: nothing of a CI system that this test may itself run in."""
        own = str(Path(sys.executable).parent)
        paths = [path for path in os.environ["PATH"].split(os.pathsep) if path != own]
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GITHUB_", "CI", "PYTHON", "PYTEST_", "COV_", "VIRTUAL_ENV", "RUNNER_"))
        }
        return {
            **kept,
            "PATH": os.pathsep.join([str(self.folder / "tools"), str(self.folder / "python" / "bin"), *paths]),
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "PYTHONUSERBASE": str(self.folder / "user"),
            # pip reads this name as "false": builds use what is installed here, and need no network.
            "PIP_NO_BUILD_ISOLATION": "false",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "NO_COLOR": "1",
            # A test's many processes share few cores.
            "OMP_NUM_THREADS": "1",
            # What jobs measure is judged by its counts.
            "PAIRBENCH_WORKERS": "fork",
        }

    def shell(
        self, script: str, folder: Path, environment: Mapping[str, str], *options: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a script in bash as runners do, from a file."""
        file = self.folder / "tmp" / "script.sh"
        file.write_text(script)
        return subprocess.run(
            ["bash", *options, str(file)],
            cwd=folder,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=600,
        )


def run(command: list[str | Path], folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run a command that must not fail."""
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def make_origin(folder: Path) -> None:
    """Make a repository: two commits on main, of which the first is a branch, and on planted one that makes a variant worse."""
    folder.mkdir()
    git(folder, "init", "-q")
    for branch, files in (("first", _PROJECT), ("main", {"NOTES": "not measured\n"}), ("planted", PLANTED)):
        git(folder, "checkout", "-q", "-B", branch)
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text.lstrip("\n"))
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", "a change")
    git(folder, "checkout", "-q", "main")


def build_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run([*command, "--wheel-dir", folder, ROOT], folder)
    (wheel,) = folder.glob("*.whl")
    return wheel
