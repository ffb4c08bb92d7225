import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbench.report.render import Terminal, clean, markdown_text, render_rows, to_json

ROWS = [
    {"operator": "conv[red]", "n_cases": 12, "modes": ["eager", "graph"], "capturable": True, "p50": 1.5},
    {"operator": "a|b", "n_cases": 3, "modes": (), "capturable": None, "p50": None, "statuses": {"failed": 2}},
]


def test_a_table() -> None:
    lines = render_rows("operators", ROWS, "table", terminal=Terminal()).splitlines()
    assert lines[0] == "operators"
    assert lines[2].split() == ["operator", "n", "cases", "modes", "capturable", "p50", "statuses"]
    assert lines[4].split() == ["conv[red]", "12", "eager,", "graph", "yes", "1.5"]
    assert lines[5].split() == ["a|b", "3", "2", "failed"]


def test_a_narrow_table_wraps_and_loses_nothing() -> None:
    text = render_rows("facts", [{"what": "x" * 50, "value": "y" * 50}], "table", terminal=Terminal(width=40))
    assert text.count("x") == text.count("y") == 50
    assert max(map(len, text.splitlines())) <= 40


def test_markdown() -> None:
    lines = render_rows("operators", ROWS, "markdown").splitlines()
    assert [lines[0], *lines[2:4], lines[5]] == [
        "### operators",
        "| operator | n cases | modes | capturable | p50 | statuses |",
        "| --- | ---: | --- | ---: | ---: | --- |",
        r"| a\|b | 3 |  |  |  | 2 failed |",
    ]


def test_json() -> None:
    first, second = json.loads(render_rows("operators", ROWS, "json"))["operators"]
    assert first == {**ROWS[0]} and second["modes"] == []


def test_no_rows_and_an_unknown_format() -> None:
    assert json.loads(render_rows("runs", [], "json")) == {"runs": []}
    assert "runs" in render_rows("runs", [], "table", terminal=Terminal())
    assert "runs" in render_rows("runs", [], "markdown")
    with pytest.raises(ValueError, match="'csv' is unknown"):
        render_rows("x", [], "csv")


def test_to_json_takes_what_programs_hold() -> None:
    @dataclass
    class Fact:
        path: Path
        value: object

    value = {"a": [Fact(Path("x"), math.inf), np.float64("nan"), np.int64(3), np.float32(0.5)], 1: {2}, "n": None}
    assert json.loads(to_json(value)) == {"a": [{"path": "x", "value": None}, None, 3, 0.5], "1": [2], "n": None}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_to_json_is_always_strict_json(value: object) -> None:
    json.loads(to_json(value), parse_constant=pytest.fail)


@given(st.text())
def test_clean_text_stays_on_its_line(text: str) -> None:
    assert clean(text).isprintable()
    assert clean(clean(text)) == clean(text)


@given(st.text())
def test_markdown_text_cannot_end_a_cell(text: str) -> None:
    escaped = markdown_text(text)
    assert "\n" not in escaped
    assert "|" not in escaped.replace("\\\\", "").replace("\\|", "")
    assert "<" not in escaped


def test_stdout_that_is_no_terminal_has_no_limits_and_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    assert Terminal.of_stdout() == Terminal(width=None, color=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "91")
    assert Terminal.of_stdout() == Terminal(width=91, color=False)
    monkeypatch.delenv("NO_COLOR")
    assert Terminal.of_stdout().color
