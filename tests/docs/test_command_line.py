"""docs/command-line.md says of every verb and option what the commands say."""

import re
from pathlib import Path

import pytest

from pairbench.config import load_config
from pairbench.errors import ConfigError
from tests.docs.command_line import BLOCK, PAGE, SAME, commands, generated, verbs_with


def test_the_page_is_what_the_commands_say() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [block[2] for block in BLOCK.finditer(text)] == ["verbs", "options", "each"]
    assert generated(text) == text, "run: python -m tests.docs.command_line"
    assert len(commands()) > 20


def test_every_setting_is_on_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.pairbench]\nzzzzzz = 1\n")
    with pytest.raises(ConfigError, match="expected one of") as refused:
        load_config(tmp_path)
    known = re.findall(r"\w+", str(refused.value).partition("expected one of ")[2])
    section = PAGE.read_text(encoding="utf-8").partition("## Settings")[2].partition("Options go before")[0]
    assert sorted(set(re.findall(r"`(\w+)`", section))) == sorted(known)


MEASURE = ("verify", "try", "run", "judge", "ab", "bisect", "backfill", "calibrate")
READ = ("show", "compare", "trend", "plot", "accept")
WHEREVER = {
    "--device": {"doctor", *MEASURE, *READ, "capture", "breakdown", "diverge"},
    "--tier": {"list", *MEASURE, *READ, "results"},
    "--mode": {*MEASURE, *READ, "breakdown"},
    "--implementation": {"list", *MEASURE, *READ, "breakdown", "diverge"} - {"judge"},
    "--tf32": {*MEASURE, "breakdown", "diverge"},
    "--timeout": {*MEASURE, "breakdown", "diverge"},
    # What is verified or judged, or where two modules part, is not stored.
    "--store": {"doctor", *MEASURE, *READ, "triage", "dashboard", "results", "capture", "breakdown", "import", "export"}
    - {"verify", "judge"},
    # These two write files of other forms.
    "--format": {*commands()} - {"dashboard", "export"} - {name for name in commands() if " " in name},
}
"""The verbs in which each option has a meaning. No mode is chosen where one call is looked into twice, and no tier where a case is named."""


@pytest.mark.parametrize("option", SAME)
def test_an_option_stands_wherever_it_has_a_meaning(option: str) -> None:
    assert set(verbs_with(option)) == WHEREVER[option] and len(WHEREVER[option]) > 3
    short = {"--device": "-d", "--implementation": "-i", "--format": "-f"}.get(option, option)
    for name in verbs_with(option):
        assert any({option, short} <= {*one.opts} for one in commands()[name].params), name
