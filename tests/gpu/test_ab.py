"""Two commits in turns on a GPU: of one commit nothing is said, and a planted 2 % is caught and is the code's."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.builders import git
from tests.gpu.commands import pairbench

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

SUITE = Path(__file__).parents[1] / "suites" / "planted.py"
SLOWER_BY = 0.02


def ab(folder: Path, *arguments: str, cycles: int = 0) -> dict[str, Any]:
    """Return the JSON document, its changes by operator and implementation."""
    options = ("--tier", "real")
    document = pairbench("ab", *arguments, *options, folder=folder, codes=(0, 1), PLANTED_CYCLES=str(cycles))
    assert document["rc"] == document["exit_code"]
    names = [
        (change["series"]["case"].split("[")[0], change["series"]["implementation"]) for change in document["changes"]
    ]
    return {**document, "changes": {" ".join(name): one for name, one in zip(names, document["changes"], strict=True)}}


def latency(change: dict[str, Any]) -> dict[str, Any]:
    return next(dict(item) for item in change["judgements"] if item["metric"] == "device_p50_ns")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ab")
    shutil.copy(SUITE, folder / "planted.py")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    return folder


@pytest.fixture(scope="module")
def itself(repository: Path) -> dict[str, Any]:
    """Return what comes of a commit against itself."""
    return ab(repository, "main", "main", "planted.py")


@pytest.fixture(scope="module")
def planted(repository: Path, itself: dict[str, Any]) -> dict[str, Any]:
    """Return what comes of a variant that is slowed by 2 %, and of another that launches one more kernel."""
    rows = {(row["operator"], row["implementation"]): row for row in itself["current_records"]}
    row = rows["slower", "slowed"]
    cycles = int(row["device_p50_ns"] * SLOWER_BY * row["sm_clock_mhz"] / 1e3)
    text = SUITE.read_text()
    for before, after in (
        ("spin(0)  # planted: slowed", f"spin({cycles})"),
        ("return out  # planted: launch", "return out * 1"),
    ):
        assert before in text
        text = text.replace(before, after)
    (repository / "planted.py").write_text(text)
    return ab(repository, "main", "planted.py")


def test_a_commit_against_itself_says_nothing(itself: dict[str, Any]) -> None:
    assert itself["exit_code"] == 0 and len(itself["changes"]) == 8
    assert {change["outcome"] for change in itself["changes"].values()} <= {"unchanged", "undecided"}
    for name, change in itself["changes"].items():
        found = latency(change)
        if found["reference"] >= 100e3:
            assert abs(found["change"]["estimate"] - 1) < 0.005, (name, found)
            assert change["outcome"] == "unchanged", (name, change["reason"])


def test_outputs_of_a_commit_are_its_own_to_the_bit(itself: dict[str, Any]) -> None:
    assert {item["agreement"] for item in itself["outputs"]} == {"equal"}


def test_a_planted_slow_down_is_caught_twice_and_the_code_did_it(planted: dict[str, Any]) -> None:
    change = planted["changes"]["slower slowed"]
    assert (change["outcome"], change["verdict"], change["attribution"]) == ("regression", "slower", "code")
    assert change["confirmed"] is True and change["implementation_changed"] is True
    assert latency(change)["change"]["estimate"] == pytest.approx(1 + SLOWER_BY, abs=0.006)


def test_one_more_launch_is_caught_exactly(planted: dict[str, Any]) -> None:
    change = planted["changes"]["launches launches_more"]
    launches = next(item for item in change["judgements"] if item["metric"] == "launches_per_call")
    assert change["outcome"] == "regression" and launches["current"] == launches["reference"] + 1


def test_what_was_not_touched_raises_no_alarm(planted: dict[str, Any]) -> None:
    touched = ("slower slowed", "launches launches_more")
    others = {name: change["outcome"] for name, change in planted["changes"].items() if name not in touched}
    assert len(others) == 6 and set(others.values()) <= {"unchanged", "undecided"}


def test_a_machine_that_is_slower_for_both_sides_is_no_change(repository: Path) -> None:
    git(repository, "checkout", "-q", "--", "planted.py")
    found = ab(repository, "main", "main", "planted.py::machine", cycles=100_000)
    assert {change["outcome"] for change in found["changes"].values()} <= {"unchanged", "undecided"}
