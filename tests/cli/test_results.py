"""`pairbench results`: the committed page is what the command makes, and what it says of stores that hold little."""

import json
import re
from pathlib import Path

import pytest

from pairbench.model.record import Record
from tests.builders import make_run, write_runs
from tests.cli.conftest import Cli, Pairbench

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "suites" / "RESULTS.md"

OPERATORS = '''
from pairbench import Claim, Operator, grid

CASES = {"smoke": grid(tokens=[8]), "real": grid(tokens=[64])}


def plain(x):
    """Double it."""
    return x + x


def declare(name, **more):
    return Operator(
        name,
        baseline=plain,
        variants={"fused": lambda x: x * 2},
        inputs=lambda make, tokens: {"x": make.normal(tokens)},
        cases=CASES,
        **more,
    )


double = declare("double", claims=[Claim(speedup=1.5, device="a GPU", source="them #1", cases=CASES["real"])])
other = declare("other")
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a file of two operators."""
    (tmp_path / "my_ops.py").write_text(OPERATORS)
    return tmp_path


def a_run(operator: str = "double", tokens: int = 64, tier: str = "real", **changes: object) -> tuple[Record, ...]:
    return make_run(cases=[f"{operator}[tokens={tokens}]"], suite="my_ops.py", tier=tier, **changes)  # type: ignore[arg-type]


def test_the_committed_page_is_what_the_command_makes(quick: Pairbench, tmp_path: Path) -> None:
    """Where this fails, a suite or the reference runs changed: `nox -s results` writes the page anew."""
    where = ("--store", "results/reference", "--format", "markdown", "--pages", str(tmp_path))
    done = quick("results", *where, folder=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == PAGE.read_text(encoding="utf-8")
    assert len(done.stdout.encode()) <= 20_000
    named = re.findall(r"^\| ([^ |]+) \| \d+ \|", done.stdout.replace("\\", ""), re.MULTILINE)
    pages = {page.stem: page.read_text(encoding="utf-8") for page in tmp_path.iterdir()}
    assert named and pages.keys() == {*named}
    devices = [len(re.findall(r"^## ", page, re.MULTILINE)) for page in pages.values()]
    assert sum(devices) == len(named), "an operator that two device models measured is on one page"


def test_a_page_for_each_operator_beside_a_summary(surveyed: Cli, folder: Path) -> None:
    write_runs(folder / "results", a_run(), a_run("other", number=1))
    whole = surveyed("results", "my_ops.py", "--format", "markdown").out
    done = surveyed("results", "my_ops.py", "--format", "markdown", "--pages", "pages", "--output", "page.md")
    assert (done.code, done.out) == (0, ""), done.err
    pages = {page.name: page.read_text() for page in (folder / "pages").iterdir()}
    assert pages.keys() == {"double.md", "other.md"}
    assert pages["double.md"].startswith("# double\n") and "## NVIDIA H200" in pages["double.md"]
    assert "Double it. From my\\_ops.py." in pages["double.md"]
    assert "| 1.500x | a GPU | them \\#1 |" in pages["double.md"]
    summary = (folder / "page.md").read_text()
    assert "| double | 1 |" in summary and "Double it" not in summary
    rows = [{line for line in text.splitlines() if line.startswith("|")} for text in (whole, summary, *pages.values())]
    assert rows[0] == set().union(*rows[1:])
    (folder / "file").write_text("")
    refused = surveyed("results", "my_ops.py", "--pages", "file")
    assert refused.code == 2 and "--pages 'file/double.md' cannot be written" in refused.err


def test_strict_asks_for_every_operator(surveyed: Cli, folder: Path) -> None:
    write_runs(folder / "results", a_run())
    strict = surveyed("results", "my_ops.py", "--strict")
    assert strict.code == 3 and strict.out.startswith("Results\n")
    assert surveyed("results", "double", "my_ops.py::double", "--strict").code == 0


def test_of_a_case_that_is_named_only_that_and_gpus_come_before_cpus(surveyed: Cli, folder: Path) -> None:
    on_cpu = a_run("other", number=2, device_kind="cpu", device_name="AMD")
    write_runs(folder / "results", a_run(), a_run("other", number=1), on_cpu)
    done = surveyed("results", "my_ops.py::other[tokens=64]", "--format", "json")
    found = json.loads(done.out)["results"]
    assert [one["device_name"] for one in found] == ["NVIDIA H200", "AMD"]
    assert all((one["operator"], one["missing"], one["claims"]) == ("other", [], []) for one in found)


def test_a_store_of_a_cpu_says_that_nothing_of_these_tiers_is_there(surveyed: Cli, folder: Path) -> None:
    write_runs(folder / "results", a_run(tokens=8, tier="smoke", device_kind="cpu", device_name="a CPU"))
    done = surveyed("results", "my_ops.py")
    assert done.code == 0
    assert "The store holds no measurement of these tiers" in done.out
    smoke = surveyed("results", "my_ops.py::double", "--tier", "smoke", "--strict")
    assert smoke.code == 0
    assert "a CPU" in smoke.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["my_ops.py"], "has no records"),
        (["my_ops.py", "--tier", "edge"], "--tier 'edge' is unknown, expected one of smoke, real, headline"),
    ],
)
def test_wrong_arguments_have_a_sentence(surveyed: Cli, folder: Path, arguments: list[str], words: str) -> None:
    (folder / "results").mkdir()
    done = surveyed("results", *arguments, "--output", "page.md")
    assert done.code == 2 and words in done.err
    assert not (folder / "page.md").exists()


def test_a_broken_suite_and_a_damaged_file_are_named_and_cost_only_themselves(surveyed: Cli, folder: Path) -> None:
    write_runs(folder / "results", a_run())
    (folder / "results" / "records" / "broken.parquet").write_text("no parquet")
    (folder / "broken.py").write_text("from pairbench import Operator\n1 / 0\n")
    done = surveyed("results", "my_ops.py", "broken.py", "--output", "page.md")
    assert done.code == 2
    assert "broken.parquet: cannot be read" in done.err
    assert "suite broken.py, line 2: ZeroDivisionError" in done.err
    assert "Double it." in (folder / "page.md").read_text()
