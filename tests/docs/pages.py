"""The pages of the documentation: their code blocks, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in (
        *ROOT.glob("docs/**/*.md"),
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
        *(ROOT / name for name in ("dashboards/README.md", "results/README.md", "results/reference/README.md")),
        *(ROOT / name for name in ("suites/README.md", "suites/RESULTS.md")),
        *ROOT.glob("tests/*/README.md"),
    )
)

_BLOCK = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`(pairbench [^`]+)`(?!`)")
_PROGRAMS = ("pairbench", "pytest", "nox", "pip", "python")


@dataclass(frozen=True)
class Block:
    """A block of code."""

    language: str
    title: str
    """The file that it is; empty for a script, or for what is typed."""
    text: str

    @property
    def commands(self) -> list[list[str]]:
        """The commands in it, as words: lines that begin with `$`, or in a block without a language with a program."""
        if self.language == "console":
            lines = [line[2:] for line in self.text.splitlines() if line.startswith("$ ")]
        elif self.language:
            return []
        else:
            lines = [line for line in self.text.splitlines() if line.split(" ")[0] in _PROGRAMS]
        return [shlex.split(part, comments=True) for line in lines for part in line.split("&&")]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(page: str) -> list[Block]:
    return [Block(language, title, text) for language, title, text in _BLOCK.findall(text_of(page))]


def named_in(page: str) -> Iterator[list[str]]:
    """Yield the commands that sentences and tables of a page name."""
    for command in _INLINE.findall(_BLOCK.sub("", text_of(page))):
        yield shlex.split(command.replace("\\|", "|").partition(" && ")[0])
