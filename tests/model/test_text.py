"""What leaves the process commands no terminal and no CI runner, and holds no credentials."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbench.model.plain import printable, redacted, safe


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with ümlauts and 漢字\n\tand lines", "plain, with ümlauts and 漢字\n\tand lines"),
        ("\x1b]0;title\x07", "\\u001b]0;title\\u0007"),
        ("a\rb\x9b31m", "a\\u000db\\u009b31m"),
        ("\u202etxt.exe\u2066\u2028", "\\u202etxt.exe\\u2066\\u2028"),
        ("::error::x", "\\::error::x"),
        ("first\n  ::add-mask::x", "first\n  \\::add-mask::x"),
        ("suites/norm.py::rms_norm", "suites/norm.py::rms_norm"),
        ("x ##[command]y", "x #\\u0023[command]y"),
        ("half a \udcff", "half a \\udcff"),
    ],
)
def test_what_commands_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_colors_stay_where_they_are_wanted() -> None:
    assert printable("\x1b[1;31mred\x1b[0m\x1b[2J", colored=True) == "\x1b[1;31mred\x1b[0m\\u001b[2J"
    assert printable("\x1b[1mx\x1b[0m::y", colored=True) == "\x1b[1mx\x1b[0m::y"


@given(st.text())
def test_nothing_that_commands_is_left(text: str) -> None:
    shown = printable(text)
    assert all(letter.isprintable() or letter in "\n\t" for letter in shown)
    assert not any(line.strip().startswith("::") for line in shown.split("\n")) and "##[" not in shown
    assert printable(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://KEY:SECRET@bucket/a", "s3://***@bucket/a"),
        ("s3://KEY:SEC/RET+x@bucket/a@b", "s3://***@b"),
        ("s3://KEY@bucket/a", "s3://***@bucket/a"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("s3://bucket/a?region=eu-1", "s3://bucket/a?region=eu-1"),
        ("gs://anonymous@bucket/a", "gs://anonymous@bucket/a"),
        ("abfs://container@account.example.org/a", "abfs://container@account.example.org/a"),
        ("abfss://x:PASS@account/a", "abfss://***@account/a"),
        ("https://user:SECRET@example.org:8443/x", "https://***@example.org:8443/x"),
        ("https://example.org:8443/x@y", "https://example.org:8443/x@y"),
        ("s3://b/a?secret_key=SECRET&region=x&session_token=T", "s3://b/a?secret_key=***&region=x&session_token=***"),
        ("store 's3://K:S@b' and 's3://L:T@c'", "store 's3://***@b' and 's3://***@c'"),
    ],
)
def test_credentials_are_hidden(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert redacted(shown) == shown and safe(shown) == shown
