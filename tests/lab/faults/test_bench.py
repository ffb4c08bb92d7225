"""The table of `nox -s faults`: what went wrong is counted by its kind, and an attack that cannot be made says why."""

from pathlib import Path

import pytest

from tests.lab.faults import bench
from tests.lab.faults.attacks import ATTACKS, Attack
from tests.lab.faults.bench import KINDS, PAGE, Seen, attack, filled, kind_of, table


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("kill -9 of all after 1 s: 2 records are lost: [...]", "lost"),
        ("trend: 3 rows twice, x the first", "doubled"),
        ("kill -9 of parent: a traceback: KeyError", "tracebacks"),
        ("processes are left of errors-3: {1: 'sleep 600'}", "orphans"),
        ("left: /store/.a.tmp", "files left"),
        ("SIGINT after 1 s: it hangs: it had not ended after 180 s", "hangs"),
        ("accepted, byte 3 of 7: trend has other values, and names no file", "wrong values"),
        ("exit code 9", "other"),
    ],
)
def test_each_sentence_has_its_kind(sentence: str, kind: str) -> None:
    assert kind in KINDS and kind_of(sentence) == kind


@pytest.mark.slow
def test_an_attack_is_made_in_its_parts_and_shown_in_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ATTACKS, "disks", Attack(**{**vars(ATTACKS["disks"]), "needs": lambda: "no disk here"}))
    monkeypatch.setitem(ATTACKS, "messages", Attack(**{**vars(ATTACKS["messages"]), "tries": 20, "parts": 2}))
    messages, disks = attack(["messages", "disks"])
    assert (messages.tried, messages.wrong, disks.tried, disks.why_not) == (20, (), 0, "no disk here")
    rows = table([messages, disks]).splitlines()
    assert rows[2].endswith("| 20 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 |") and "no disk here" in rows[3]


def test_what_there_was_no_time_for_is_said() -> None:
    (none,) = attack(["messages"], seconds=-1.0)
    assert (none.tried, none.why_not) == (0, "no time was left")
    some = Seen(name="kills", tried=30, unmade=6)
    assert table([none, some]).endswith("\nFor want of time not all was made of kills (6 of 7 parts).")
    assert "| 0 | no time was left |" in table([none])


def test_an_attack_that_fails_itself_counts_as_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ROOT", Path("/"))  # where there are no attacks
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (found,) = attack(["messages"])
    assert len(found.wrong) == 1 and "the attack itself ended with 1" in found.wrong[0]


def test_the_page_has_a_row_for_every_attack() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in ATTACKS if f"\n| {name}: " not in page] == []


def test_a_part_that_is_made_again_leaves_the_other_rows() -> None:
    """Each row was measured by one of the commands that the page names."""
    empty = "# Page\n<!-- measured -->\n<!-- /measured -->\nmore\n"
    first = filled(empty, f"{table([Seen(name=name, tried=1) for name in ATTACKS])}\n\nthe first command")
    again = filled(first, f"{table([Seen(name='imports', tried=2, wrong=('a row is lost',))])}\n\nthe second command")
    assert [line for line in again.splitlines() if line not in first.splitlines()] == [
        "| imports: fuzzed imports | 2 | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 0 |",
        "the second command",
    ]
    assert "the first command" in again and again.endswith("<!-- /measured -->\nmore\n")
    whole = filled(again, f"{table([Seen(name=name, tried=3) for name in ATTACKS])}\n\nthe third command")
    assert "the third command" in whole and "the first command" not in whole
