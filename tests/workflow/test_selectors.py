import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pairbench.errors import StoreError
from pairbench.model.record import Record
from pairbench.store.reader import RunIndex
from pairbench.workflow.git import Repository
from pairbench.workflow.lookup import Picked, RunSelector
from tests.builders import CASES, FIRST, git, make_run, run_id_of, sha, write_runs

LATER = FIRST + dt.timedelta(days=400)


def runs_of(picked: Picked) -> list[str]:
    return [head.run_id for head in picked.heads]


def few(number: int, **changes: Any) -> tuple[Record, ...]:
    return make_run(number, cases=CASES[:1], **changes)


def selector(folder: Path, *runs: Sequence[Record], now: dt.datetime = LATER) -> RunSelector:
    """Return a selector of the runs of a store, in a folder that may be a checkout."""
    write_runs(folder / "store", *runs)
    return RunSelector(RunIndex.of_store(folder / "store"), Repository(folder), now=now)


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> RunSelector:
    return selector(tmp_path_factory.mktemp("ten"), *map(few, range(10)))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> RunSelector:
    return selector(tmp_path_factory.mktemp("two"), few(0), few(1))


@pytest.fixture
def checkout(tmp_path: Path) -> list[str]:
    """Make tmp_path a repository of three commits, with a tag on the first and a branch at the second; return them."""
    git(tmp_path, "init", "-q")
    commits = []
    for _ in range(3):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", "made up")
        commits.append(git(tmp_path, "rev-parse", "HEAD"))
    git(tmp_path, "tag", "v1", commits[0])
    git(tmp_path, "branch", "topic/fast", commits[1])
    return commits


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("auto", [9]),
        ("latest", [9]),
        ("latest~0", [9]),
        ("latest~1", [8]),
        ("latest~9", [0]),
        ("previous", [8]),
        ("last:3", [9, 8, 7]),
        ("last:99", list(range(9, -1, -1))),
        (run_id_of(4), [4]),
        (run_id_of(4)[:13], [4]),
        (sha(6), [6]),
        (sha(6)[:7], [6]),
        ("main", [9]),
        ("2024-01-01", list(range(9, -1, -1))),
        ("2024-01", list(range(9, -1, -1))),
        ("2024-01-01T03:00", [3]),
        ("2024-01-01T03:00:00Z", [3]),
        ("2024-01-01T02:00..2024-01-01T04:00", [4, 3, 2]),
        ("2024-01-01T07:00..", [9, 8, 7]),
        ("..2024-01-01T01:00:00", [1, 0]),
        ("2024-01-01T05:00:00+02:00", [3]),
    ],
)
def test_words(ten: RunSelector, text: str, numbers: list[int]) -> None:
    picked = ten.pick(text)
    assert runs_of(picked) == [run_id_of(number) for number in numbers]
    assert picked.side.commits == tuple(sha(number) for number in reversed(numbers))
    assert ten.notes == () and ten.index.problems == []


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("latest", [6]),
        ("last:3", [6, 5, 4]),
        ("previous", [6]),
        ("latest~5", [4]),
        ("main", [6, 5, 4, 3, 2]),
        ("2024-01-01T06:00..", [9, 8, 6]),
        (run_id_of(9), [9]),
    ],
)
def test_a_reference_by_order_is_earlier_than_the_current_side(ten: RunSelector, text: str, numbers: list[int]) -> None:
    current = ten.pick(run_id_of(7))
    assert runs_of(ten.pick(text, against=current)) == [run_id_of(number) for number in numbers]


@pytest.mark.parametrize("text", ["last:5", "latest", "previous", "main"])
def test_nothing_earlier_is_no_mistake(two: RunSelector, text: str) -> None:
    assert runs_of(two.pick(text, against=two.pick(run_id_of(0)))) == []


def test_the_current_side_is_no_reference_for_itself(two: RunSelector) -> None:
    with pytest.raises(StoreError, match="is the current side itself"):
        two.pick(run_id_of(1), against=two.pick("latest"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "'nonsense' names no run of store .*; the newest runs are .*; expected auto, latest, latest~N, "),
        ("last:0", "expected last:N with N of at least 1"),
        ("last:many", "expected last:N with N of at least 1"),
        ("2024-01-01T0", "begins several in store .*give more of it|names no run"),
        ("20240101", "begins several in store .*give more of it"),
        ("2025-01-01", r"no run of store .* started in '2025-01-01' \(UTC\); the newest runs are"),
        ("2024-02-30", "'2024-02-30': day is out of range for month; expected a date"),
        ("2024-13", "expected a date"),
        ("no.parquet", "no.parquet: there is no such file"),
        ("--all", "names no run"),
        ("abcdef0", "names no run"),
    ],
)
def test_words_that_mean_nothing_or_too_much(two: RunSelector, text: str, words: str) -> None:
    with pytest.raises(StoreError, match=words):
        two.pick(text)


def test_a_prefix_of_two_commits_is_refused_with_both(tmp_path: Path) -> None:
    found = selector(tmp_path, few(0, commit="abcd" + "0" * 36), few(1, commit="abcd" + "1" * 36))
    with pytest.raises(StoreError, match=r"begins several .*commit abcd00000000, commit abcd11111111"):
        found.pick("abcd")
    assert runs_of(found.pick("abcd0")) == [run_id_of(0)]


def test_branches_tags_and_expressions_are_looked_up_in_the_checkout(tmp_path: Path, checkout: list[str]) -> None:
    found = selector(tmp_path, *(few(number, commit=commit, branch=None) for number, commit in enumerate(checkout)))
    for text, number in (("v1", 0), ("topic/fast", 1), ("HEAD~1", 1), ("main", 2)):
        assert runs_of(found.pick(text)) == [run_id_of(number)]
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "not measured")
    with pytest.raises(StoreError, match=r"no run of store .* is of commit .* \(HEAD\); the newest runs are"):
        found.pick("HEAD")


def test_a_branch_that_runs_name_needs_no_checkout(tmp_path: Path) -> None:
    found = selector(tmp_path, few(0, branch="topic/fast"), few(1), few(2, branch="topic/fast"), few(3))
    assert runs_of(found.pick("topic/fast")) == [run_id_of(2)]
    assert runs_of(found.pick("topic/fast", against=found.pick("latest"))) == [run_id_of(2), run_id_of(0)]


def test_uncommitted_changes_are_another_state_of_the_code(tmp_path: Path) -> None:
    found = selector(
        tmp_path, few(0, commit=sha(7)), few(1, commit=sha(7), dirty=True), few(2, commit=sha(8), dirty=True)
    )
    assert runs_of(found.pick(sha(7))) == [run_id_of(0)]
    assert not found.notes
    assert runs_of(found.pick(sha(8))) == [run_id_of(2)]
    assert "had uncommitted changes" in " ".join(found.notes)
    assert found.pick(run_id_of(1)).side.commits == (f"{sha(7)}+",)


def test_what_confirms_a_run_comes_with_it(tmp_path: Path) -> None:
    found = selector(tmp_path, few(0), few(1), few(2, confirms=run_id_of(1)), few(3, confirms=run_id_of(0)))
    assert runs_of(found.pick("latest")) == [run_id_of(2), run_id_of(1)]
    assert runs_of(found.pick(run_id_of(0))) == [run_id_of(3), run_id_of(0)]
    assert runs_of(found.pick("last:2")) == [run_id_of(number) for number in (3, 2, 1, 0)]
    assert runs_of(found.pick(run_id_of(2))) == [run_id_of(2)]


def test_a_file_is_a_side(tmp_path: Path) -> None:
    found = selector(tmp_path, few(0), few(1))
    file = next((tmp_path / "store").rglob(f"{run_id_of(0)}.parquet")).rename(tmp_path / "kept.parquet")
    picked = found.pick(str(file))
    assert runs_of(picked) == [run_id_of(0)] and picked.side.asked == str(file)
    assert picked.index.records(picked.heads).value == few(0)


def test_another_store_is_a_side(tmp_path: Path) -> None:
    write_runs(tmp_path / "other", *(few(number) for number in range(20, 28)))
    found = selector(tmp_path, few(0), few(1))
    for name in (str(tmp_path / "other"), (tmp_path / "other").as_uri()):
        assert runs_of(found.pick(name)) == [run_id_of(27)]
        reference = found.pick(name, against=found.pick("latest"))
        assert runs_of(reference) == [run_id_of(number) for number in (27, 26, 25, 24, 23)]
        assert {record.run_id for record in reference.index.records(reference.heads).value} == set(runs_of(reference))
    with pytest.raises(StoreError, match="has no records"):
        found.pick((tmp_path / "nowhere").as_uri())


def test_runs_from_the_future_are_left_out_and_named(tmp_path: Path) -> None:
    # An hour ahead is no wrong clock.
    found = selector(tmp_path, *map(few, range(4)), now=FIRST + dt.timedelta(hours=1))
    assert runs_of(found.pick("latest")) == [run_id_of(2)]
    (note,) = found.notes
    assert f"run {run_id_of(3)} says to have started in the future" in note
    assert runs_of(found.pick(run_id_of(3))) == [run_id_of(3)]
    store = RunIndex.of_store(tmp_path / "store")
    nothing = RunSelector(store, Repository(tmp_path), now=FIRST - dt.timedelta(days=9))
    with pytest.raises(StoreError, match="names no run"):
        nothing.pick("latest")
    assert "4 runs" in nothing.notes[0]
    # A start in the future counts whatever the id says.
    write_runs(tmp_path / "store", few(4, started_at="2031-01-01T00:00:00+00:00"))
    wrong = RunSelector(RunIndex.of_store(tmp_path / "store"), Repository(tmp_path), now=LATER)
    assert runs_of(wrong.pick("latest")) == [run_id_of(3)] and "2031-01-01" in wrong.notes[0]


def test_ids_and_starts_that_say_nothing(tmp_path: Path) -> None:
    found = selector(tmp_path, few(0, run_id="a", started_at="yesterday"), few(1, run_id="b", started_at=""))
    assert runs_of(found.pick("latest")) == ["b"]
    assert runs_of(found.pick("a")) == ["a"]
    with pytest.raises(StoreError, match="no run of store"):
        found.pick("2024-01-01")


def test_a_store_without_a_sound_file_says_which_are_not(tmp_path: Path) -> None:
    found = selector(tmp_path, few(0))
    next((tmp_path / "store").rglob("*.parquet")).write_bytes(b"")
    with pytest.raises(StoreError, match=r"no run of it can be read; .*parquet: cannot be read, left out"):
        found.pick("latest")


def test_the_default_branch(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, checkout: list[str]) -> None:
    none = Repository(tmp_path_factory.mktemp("none"))
    assert not none.is_one and not none.default_commits
    assert none.default_branch is None and none.commit("HEAD") is None
    found = Repository(tmp_path)
    assert found.is_one and found.default_branch == "main" and found.default_commits == set(checkout)
    git(tmp_path, "update-ref", "refs/remotes/origin/trunk", checkout[0])
    git(tmp_path, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    found = Repository(tmp_path)
    assert found.default_branch == "trunk" and found.default_commits == {checkout[0]}
    assert found.commit("trunk") == checkout[0]
    assert found.commit("--help") is None


def test_auto_is_the_newest_run_of_each_device_model_within_a_day(tmp_path: Path) -> None:
    nights = [few(24 * day, device_name="H200") for day in range(3)]
    found = selector(tmp_path, *nights, few(49, device_name="H100"), few(20, device_name="B200"))
    assert runs_of(found.pick("auto")) == [run_id_of(49), run_id_of(48)]
    assert runs_of(found.pick("latest")) == [run_id_of(49)]
