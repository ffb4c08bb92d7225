"""What a comparison may not do to GitHub: comments that are too long, annotations that are commands of somebody else."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbench.model.comparison import Change, Comparison, EraChange, GateOutcome, Judgement
from pairbench.report.comparison import LIMIT, annotations, render_comparison, to_markdown
from pairbench.stats import Interval

MakeChange = Callable[..., Change]
MakeComparison = Callable[..., Comparison]
GITHUB = 65_536

COMMAND = re.compile(r"::(error|warning|notice) ((?:\w+=[^,:]*,?)*)::(.*)")


@pytest.mark.parametrize("number", [1, 100, 5000])
def test_markdown_fits_a_comment_and_says_what_does_not(
    change: MakeChange, comparison: MakeComparison, number: int
) -> None:
    changes = [change(f"bad{place}", reason="a reason of some length " * 10) for place in range(number)]
    changes += [change(f"new{place}", None, GateOutcome.NEW) for place in range(number)]
    text = render_comparison(comparison(*changes), "markdown")
    assert len(text.encode()) <= LIMIT < GITHUB
    assert text.count("<details>") == text.count("</details>")
    shown = text.count("-bad") + text.count("-new")
    left_out = re.search(r"([\d,]+) of ([\d,]+) series are left out", text)
    if number < 5000:
        assert left_out is None and shown == 2 * number
    else:
        assert left_out is not None
        assert int(left_out[1].replace(",", "")) == len(changes) - shown
        assert "--format json" in text.splitlines()[-1]


@given(limit=st.integers(2000, 20_000), bad=st.integers(0, 40), new=st.integers(0, 40), problems=st.integers(0, 60))
def test_a_limit_holds(
    change: MakeChange, comparison: MakeComparison, limit: int, bad: int, new: int, problems: int
) -> None:
    changes = [change(f"bad{place}") for place in range(bad)]
    changes += [change(f"new{place}", None, GateOutcome.NEW) for place in range(new)]
    whole = comparison(*changes, problems=tuple(f"file {place} is broken" for place in range(problems)))
    text = to_markdown(whole, limit=limit)
    assert len(text.encode()) <= limit
    assert text.startswith("### pairbench: ")
    assert text.count("<details>") == text.count("</details>")
    shown = text.count("-bad") + text.count("-new")
    assert ("series are left out" in text) == (shown < bad + new)


def test_bad_news_are_in_sight_and_the_rest_is_folded(change: MakeChange, comparison: MakeComparison) -> None:
    text = render_comparison(comparison(change("bad"), change("u", 1.0, GateOutcome.UNDECIDED)), "markdown")
    assert text.index("-bad-") < text.index("<details><summary>Undecided (1)</summary>") < text.index("-u-")


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Read workflow commands as a runner does."""
    found = []
    for line in text.splitlines():
        match = COMMAND.fullmatch(line)
        assert match, line
        given_ = dict(part.split("=", 1) for part in match[2].split(",") if part)
        found.append((match[1], {key: unescape(value, ":,") for key, value in given_.items()}, unescape(match[3])))
    return found


def unescape(text: str, more: str = "") -> str:
    for letter in f"{more}\r\n%":
        text = text.replace(f"%{ord(letter):02X}", letter)
    return text


def test_annotations_say_what_fails_and_what_nobody_can_tell(change: MakeChange, comparison: MakeComparison) -> None:
    changes = [
        change("slow", 1.03, era=(EraChange(field="driver", reference="1", current="2"),)),
        change("broken", None, GateOutcome.FAILED, reason="timeout: more than 300 s"),
        change("gone", None, GateOutcome.MISSING, reason="the current run has none"),
        change("other", None, GateOutcome.INCOMPARABLE, reason="timers differ"),
        change("suspect", 1.05, GateOutcome.UNDECIDED),
        change("vague", 1.01, GateOutcome.UNDECIDED),
        change("faster", 0.9, GateOutcome.UNDECIDED),
        change("fine", 1.0, GateOutcome.UNCHANGED),
        change("good", 0.9, GateOutcome.IMPROVEMENT),
        change("new", None, GateOutcome.NEW),
    ]
    found = commands(annotations(comparison(*changes)))
    assert [(level, given_["title"]) for level, given_, _ in found] == [
        ("error", "failed: rms_norm broken"),
        ("error", "regression: rms_norm slow"),
        ("warning", "undecided: rms_norm suspect"),
        ("warning", "missing: rms_norm gone"),
        ("warning", "incomparable: rms_norm other"),
        ("notice", "pairbench"),
    ]
    assert found[1][1]["file"] == "suites/norm.py"
    assert found[1][2].splitlines() == [
        "suites/norm.py::rms_norm[dtype=bfloat16,tokens=4096]-slow-eager (NVIDIA H200)",
        "P50 41.00 us -> 42.23 us (+3.00%)",
        "environment changed: driver 1 -> 2",
        "P50 moved",
        "not measured a second time",
    ]
    assert found[-1][2].startswith("1 failed, 1 regression")


@pytest.mark.parametrize(("number", "lines"), [(10, 10), (11, 10), (500, 10)])
def test_annotations_stop_where_github_would(
    change: MakeChange, comparison: MakeComparison, number: int, lines: int
) -> None:
    found = commands(annotations(comparison(*(change(f"v{place}") for place in range(number)))))
    errors = [message for level, _, message in found if level == "error"]
    assert len(errors) == lines
    assert errors[-1].startswith(f"and {number - 9} more") == (number > 10)


@given(st.text() | st.text("%:,\r\n=;\x1b\u2028 a", max_size=20))
def test_no_name_can_be_another_command(change: MakeChange, comparison: MakeComparison, name: str) -> None:
    one = Judgement(
        metric=name, outcome=GateOutcome.FAILED, reference=name, current=name, change=Interval(2, 1, 3), reason=name
    )
    whole = comparison(
        change(name, outcome=GateOutcome.FAILED, suite=name, case=name, reason=name, judgements=(one,)),
        change(name, None, GateOutcome.MISSING, suite=f"{name}.py", device_name=name, accepted=name),
    )
    text = annotations(whole)
    assert [level for level, _, _ in commands(text)] == ["error", "warning", "notice"]
    assert text.isascii() or not re.search(r"[\x00-\x09\x0b-\x1f\x85\u2028\u2029]", text)


@pytest.mark.parametrize("suite", ["/etc/ops.py", "../ops.py", "ops", "x" * 400 + ".py"])
def test_only_files_of_the_checkout_are_marked(change: MakeChange, comparison: MakeComparison, suite: str) -> None:
    (error, _) = commands(annotations(comparison(change(suite=suite))))
    assert set(error[1]) == {"title"}
