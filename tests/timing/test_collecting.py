"""How much work it is for pytest to collect the whole catalogue."""

import os
import re
import statistics
from pathlib import Path

import pytest

from tests.clock import cpu_seconds
from tests.commands import ROOT
from tests.integrations.pytest_project import Finished, Project

SPY = """
import os, sys

class Spy:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            open(os.environ["TORCH_IMPORTS"], "a").write(f"{os.getpid()}\\n")

sys.meta_path.insert(0, Spy())
"""


PLAIN = """
import pytest, torch

@pytest.mark.parametrize("number", range({count}))
def test_plain(number):
    pass
"""


@pytest.mark.timing
def test_collecting_the_whole_catalogue_imports_torch_once_and_costs_little_more(tmp_path: Path) -> None:
    """In processor time, beside what pytest takes to collect as many plain tests: how fast or busy this machine is has no say in it."""
    project = Project(tmp_path)
    project.start_interpreters()
    project.folder = ROOT  # where the settings are that list the catalogue
    (tmp_path / "spy").mkdir()
    (tmp_path / "spy" / "sitecustomize.py").write_text(SPY)
    imports = tmp_path / "imports.txt"
    project.environment |= {"TORCH_IMPORTS": str(imports)}
    project.environment.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # Python is to find its own code compiled, as everybody's does
    project.environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "spy"), project.environment["PYTHONPATH"]])
    plain = tmp_path / "test_plain.py"
    # hypothesis is these tests' own plugin: half a second that no user of pairbench's waits for.
    arguments = ("--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")

    def seconds(*more: str) -> float:
        done: list[Finished] = []
        taken = cpu_seconds(lambda: done.append(project.pytest(*arguments, *more)))
        assert done[0].code == 0, done[0].out
        plain.write_text(PLAIN.format(count=max(map(int, re.findall(r"(\d+) tests collected", done[0].out)))))
        return taken

    seconds("suites")
    ratios = list[float]()
    # Where others share the processor, processor time itself varies by a half: then the median of several is asked.
    while not ratios or (statistics.median(ratios) >= 2 and len(ratios) < 8):
        imports.unlink()
        ours = seconds("suites")
        assert len(imports.read_text().splitlines()) == 1
        ratios.append(ours / seconds("-p", "no:pairbench", str(plain)))
    assert statistics.median(ratios) < 2
