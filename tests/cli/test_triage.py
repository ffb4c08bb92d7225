"""`pairbench triage`: what it lists, stores and refuses, and what a site makes of it."""

import datetime as dt
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pairbench.model.site import Triage
from pairbench.store.documents import read_triages, write_document
from tests.builders import make_run, write_runs
from tests.cli.conftest import SLOWER, Cli, write
from tests.in_process import call_main

URL = "https://example.org/team/operators/issues/12"
TODAY = dt.datetime.now(dt.UTC).date()
Row = dict[str, Any]


def listed(cli: Cli, *words: str) -> list[Row]:
    said = cli("triage", *words, "-f", "json")
    assert said.code == 0, said.err
    rows: list[Row] = said.document["events"]
    return rows


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Row]:
    """Return a folder with a store in which the newest run is slower, and its event."""
    folder = tmp_path_factory.mktemp("made")
    write_runs(folder / "results", *(make_run(24 * day, slower=SLOWER if day == 8 else {}) for day in range(9)))
    (row,) = call_main(folder, "triage", "-f", "json").document["events"]
    assert (row["state"], row["outcome"], row["since"]) == ("new", "regression", "2024-01-09")
    assert row["what"].startswith("rms_norm fused +20")
    return folder, row


@pytest.fixture
def event(made: tuple[Path, Row], tmp_path: Path) -> Row:
    """Return the event of the store in this test's folder."""
    folder, row = made
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return row


def built(cli: Cli) -> tuple[Row, str]:
    """Return the newest event of the site's index, and the overview."""
    assert cli("dashboard", "--output", "site").code == 0
    return json.loads(Path("site/index.json").read_text())["events"][0], Path("site/index.html").read_text()


def test_a_state_is_stored_and_shown_and_taken_back(cli: Cli, event: Row) -> None:
    id_ = event["id"]
    first, page = built(cli)
    assert first["key"] == id_ and first["triage"] is None and "Known: " not in page and ">1</b> <span" in page
    address = f"https://host/regressions.html#{first['href'].partition('#')[2]}"
    for text, state, *more in ((id_, "investigating"), (address, "filed", "--url", URL, "--note", " see <there> ")):
        (row,) = listed(cli, text, "--state", state, *more)
        assert (row["id"], row["state"]) == (id_, state)
    first, page = built(cli)
    assert {**first["triage"], "at": ""} == {
        "event": id_,
        "state": "filed",
        "url": URL,
        "until": None,
        "note": "see <there>",
        "at": "",
    }
    assert (
        "Known: " in page and f'<a href="{URL}">' in page and "see &lt;there&gt;" in page and ">1</b> <span" not in page
    )
    assert len(read_triages("results").value) == len(list(Path("results/triage").iterdir())) == 2
    assert [row["state"] for row in listed(cli, id_, "--state", "new")] == ["new"]


@pytest.mark.parametrize(("days", "state"), [(0, "expected"), (-1, "new")])
def test_an_event_is_new_again_after_the_last_day(cli: Cli, event: Row, days: int, state: str) -> None:
    until = (TODAY + dt.timedelta(days=days)).isoformat()
    write_document("results", Triage(event=event["id"], state="expected", url=None, until=until, note="a", at="2024"))
    (row,) = listed(cli)
    note = "a" if state == "expected" else f"expected until {until}, which has passed: a"
    assert (row["state"], row["note"]) == (state, note)


def test_an_event_that_ended_is_listed_on_request(cli: Cli, event: Row) -> None:
    listed(cli, event["id"], "--state", "not-ours")
    write(*(make_run(24 * day, slower=SLOWER if day < 16 else {}) for day in range(9, 24)))
    assert listed(cli) == []
    assert [(row["id"], row["state"], row["life"]) for row in listed(cli, "--all")] == [
        (event["id"], "not-ours", "recovered")
    ]


BAD: tuple[tuple[list[str], str], ...] = (
    (["--state", "new", "0123456789ab"], "'0123456789ab' is the id of no event of the store"),
    (["--state", "new", ""], "'' is the id of no event"),
    (["ID"], "--state is missing"),
    (["ID", "--state", "banana"], "--state 'banana' is unknown, expected one of new, investigating"),
    (["ID", "--state", "filed"], "--state 'filed' needs url"),
    (["ID", "--state", "expected"], "--state 'expected' needs until"),
    (["ID", "--state", "new", "--url", URL], "goes with state 'filed' alone"),
    (["ID", "--state", "filed", "--url", "javascript:x"], "--url 'javascript:x' is no address"),
    (["ID", "--state", "filed", "--url", "https://a:b@example.org/1"], "is no address"),
    (["ID", "--state", "expected", "--until", "20991224"], "--until '20991224' is no day"),
    (["ID", "--state", "expected", "--until", "2024-02-30"], "is no day"),
    (["ID", "--state", "expected", "--until", f"{TODAY - dt.timedelta(days=1)}"], "has passed"),
    (["--note", "x"], "no ID"),
)
"""What is refused, and a part of the sentence; ID stands for the event's."""


def test_bad_input_is_refused_in_a_sentence_and_nothing_is_stored(cli: Cli, event: Row) -> None:
    for words, said in BAD:
        done = cli("triage", *(event["id"] if word == "ID" else word for word in words))
        assert done.code == 2 and said in done.err and done.err.count("\n") == 1, done.err
    assert not Path("results/triage").exists()


def test_a_file_that_is_damaged_is_named_and_costs_nothing_else(cli: Cli, event: Row) -> None:
    listed(cli, event["id"], "--state", "not-ours")
    Path("results/triage/1.json").write_text("{")
    said = cli("triage")
    assert said.code == 0 and "triage/1.json: cannot be read" in said.err and "not-ours" in said.out
