"""What a user can name is documented: every verb, option and column; and nothing names one machine or one person."""

import ast
import functools
import importlib
import itertools
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pairbench.model.record import Record, Samples, columns

ROOT = Path(__file__).parents[1]


@functools.cache
def verbs() -> dict[str, Any]:
    import typer

    command: Any = typer.main.get_command(importlib.import_module("pairbench.cli.app").app)
    return dict(command.commands)


@pytest.mark.parametrize("name", verbs())
def test_every_verb_and_option_has_help_and_each_verb_an_example(name: str) -> None:
    verb = verbs()[name]
    assert f"pairbench {name}" in (verb.help or "") + (verb.epilog or "")
    assert [one.name for one in verb.params if not one.help and one.name != "help"] == []


def test_verbs_come_in_the_order_of_use() -> None:
    order = (
        "doctor list verify try run judge show compare ab bisect trend backfill plot accept triage dashboard results"
    )
    order += " calibrate capture breakdown diverge import export recipe store fleet"
    assert list(verbs()) == order.split()


def test_a_page_that_everybody_reads_is_short() -> None:
    most = {ROOT / "README.md": 8192, ROOT / "ARCHITECTURE.md": 12_288, ROOT / "CHANGELOG.md": 15_360}
    decisions = ROOT / "docs" / "decisions"
    most |= {**dict.fromkeys(decisions.glob("*.md"), 2499), decisions / "index.md": 5999}
    assert [page for page, size in most.items() if len(page.read_bytes()) > size] == [], "half a screen for a decision"


def test_every_session_is_described() -> None:
    """`nox -l` is the menu; CONTRIBUTING.md shows it."""
    sessions = re.findall(r"@nox\.session\ndef (\w+)\(", (ROOT / "noxfile.py").read_text(encoding="utf-8"))
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert sessions
    assert [name for name in sessions if f"nox -s {name}" not in text] == []


@pytest.mark.parametrize("row", [Record, Samples])
def test_every_column_is_documented(row: type[Record] | type[Samples]) -> None:
    text = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    assert [name for name in columns(row) if f"`{name}`" not in text] == []
    assert all(columns(row).values())
    schema: Any = importlib.import_module("pairbench.store.schema")
    assert [name for name in schema.PARTITIONS.names if f"{name}=" not in text] == []


def test_every_schema_version_has_its_history() -> None:
    schema: Any = importlib.import_module("pairbench.store.schema")
    told = re.findall(r"^# {2,3}(\d+)  \w", Path(schema.__file__).read_text(encoding="utf-8"), re.MULTILINE)
    assert told == [str(version + 1) for version in range(schema.SCHEMA_VERSION)]


def test_changelog_knows_the_version() -> None:
    from pairbench import __version__

    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


# Paths of one machine; a note to oneself. Spelt so that this file does not match itself.
PRIVATE = re.compile(
    rb"(?<![\w.])/(?:work|opt/pb|root|home/[a-z]+|Users)/|work" rb"place|shared/(?:DESIGN|research|seeds)"
)


def test_nothing_names_one_machine() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so there is no telling what belongs to it")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    files = [ROOT / name for name in listed.decode().split("\0") if name]
    found = [
        f"{file.relative_to(ROOT)}: {match[0].decode()}"
        for file in files
        if file.is_file() and file.suffix != ".parquet"
        for match in [PRIVATE.search(file.read_bytes())]
        if match
    ]
    assert found == []


def test_no_reference_run_names_one_machine() -> None:
    import pyarrow.parquet

    for file in (ROOT / "results" / "reference").rglob("*.parquet"):
        schema = pyarrow.parquet.read_schema(file)
        texts = [column.name for column in schema if "string" in str(column.type)]  # numbers name no machine
        columns_of_text = pyarrow.parquet.read_table(file, columns=texts).columns
        different = [text.unique() if str(text.type) == "string" else text for text in columns_of_text]
        text = f"{schema.metadata} {[text.to_pylist() for text in different]}"
        assert len(texts) > 5 and PRIVATE.search(text.encode()) is None, file


# What a tooltip shows is read without the name and the lines around it, so none of these can begin it.
LEAD_INS = (
    *("That", "Those", "Of", "Whose", "By", "For", "From", "In", "On", "At", "Per", "With", "Without", "Out", "To"),
    *("Under", "Until", "Beyond", "Behind", "Beside", "Between", "Among", "Likewise", "Such", "And", "Or", "Else"),
    *("It", "Its", "They", "Their", "Than", "As", "None", "Empty", "False", "True", "Where it", "Where that"),
    *("Where there", "The same", "Return the same", "Yield the same"),
)
BEGINS = re.compile(r"""[A-Z0-9`'"]""")


def fault_of(docstring: str) -> str | None:
    """Return why a docstring's first paragraph cannot be read alone, or None."""
    first = " ".join(docstring.strip().partition("\n\n")[0].split())
    lead_in = next((words for words in LEAD_INS if re.match(rf"{words}\b", first)), None)
    if not BEGINS.match(first):
        return "begins with a small letter"
    if not first.endswith("."):
        return "does not end with a full stop"
    if lead_in:
        return f"begins with {lead_in!r}, which needs the name in front of it"
    return "has fewer than three words" if len(first.split()) < 3 else None


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every attribute docstring, and of the docstrings of modules, classes and functions.

    Functions whose name begins with an underscore are left out: nobody sees theirs from outside.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef):
            for field, text in itertools.pairwise(node.body):
                match field, text:
                    case (ast.Assign() | ast.AnnAssign(), ast.Expr(value=ast.Constant(value=str(words)))):
                        yield text.lineno, words
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            hidden = isinstance(node, ast.FunctionDef) and node.name.startswith("_")
            if (docstring := ast.get_docstring(node)) and not hidden:
                yield node.body[0].lineno, docstring


def fragments() -> list[str]:
    package = ROOT / "harness" / "pairbench"
    return [
        f"{file.relative_to(package).as_posix()}:{line}: {text.split(chr(10))[0]!r} {fault}"
        for file in sorted(package.rglob("*.py"))
        for line, text in docstrings(ast.parse(file.read_text(encoding="utf-8")))
        if (fault := fault_of(text))
    ]


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("That were recorded; the quickest is the one that is told of.", False),
        ("cpu or cuda.", False),
        ("Bytes.", False),
        ("Number of calls", False),
        ("Number of calls that were recorded.", True),
        ("`cpu` or `cuda:N`.", True),
        ("Latency of a call in ns.\n\nof which more.", True),
    ],
)
def test_a_fragment_is_told_from_a_sentence(text: str, whole: bool) -> None:
    assert (fault_of(text) is None) is whole
    assert [found for _, found in docstrings(ast.parse(f'calls: int\n"""{text}"""'))] == [text]


def test_docstrings_can_be_read_alone() -> None:
    assert fragments() == [], "write whole sentences: what it is, its unit, and what None or empty means"


def architecture() -> str:
    return (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_every_file_that_the_architecture_names_is_there() -> None:
    package = ROOT / "harness" / "pairbench"
    named = {name for name in re.findall(r"`([a-z_/]+\.(?:py|toml))`", architecture()) if "/" in name}
    assert len(named) > 15
    places = (ROOT, package, package / "execute", package / "integrations")
    assert not [name for name in named if not any((place / name).is_file() for place in places)]


def test_the_architecture_has_every_room() -> None:
    package = ROOT / "harness" / "pairbench"
    table = architecture().partition("## The rooms")[2].partition("\n## ")[0]
    rooms = {place.stem for place in package.iterdir() if place.suffix in ("", ".py")}
    rooms -= {"__init__", "__main__", "__pycache__", "py"}
    features = {place.name for place in package.glob("features/*") if place.is_dir()} - {"__pycache__"}
    assert len(rooms) > 12
    assert [room for room in sorted(rooms | features) if not re.search(rf"`{room}[/`]", table)] == []


def test_the_architecture_names_a_test_for_each_invariant() -> None:
    section = architecture().partition("## Ten invariants")[2].partition("\n## ")[0]
    named = re.findall(r"\| `(test_\w+)` \|$", section, re.MULTILINE)
    tests = {
        name for file in ROOT.glob("tests/**/test_*.py") for name in re.findall(r"def (test_\w+)\(", file.read_text())
    }
    assert len(named) == 10 and {*named} <= tests


def test_the_site_has_a_page_for_each_decision_and_measurement() -> None:
    for folder in ("decisions", "measurements"):
        index = (ROOT / "docs" / folder / "index.md").read_text(encoding="utf-8")
        pages = {page.name for page in (ROOT / "docs" / folder).glob("*.md")} - {"index.md"}
        assert {*re.findall(r"\]\(([\w-]+\.md)\)", index)} == pages


def test_declaring_says_what_may_stand_beside_what() -> None:
    """Every cell of the table in docs/declare.md, tried."""
    from pairbench.errors import DeclarationError
    from pairbench.model.operator import Operator

    section = (ROOT / "docs" / "declare.md").read_text(encoding="utf-8").partition("## What may stand beside what")[2]
    header, _, *rows = re.findall(r"^\|.*\|$", section.partition("\n## ")[0], re.MULTILINE)
    kinds = re.findall(r"`(\w+)`", header)
    assert len(rows) == len(kinds) == 4
    for row in rows:
        first, *cells = [cell.strip(" `") for cell in row.strip("|").split("|")]
        for second, cell in zip(kinds, cells, strict=True):
            declared = {first: ["x"], second: ["x"]}
            try:
                Operator(
                    "add",
                    baseline=lambda x: x + x,
                    variants={"twice": lambda x: 2 * x},
                    inputs=lambda make, n: {"x": make.normal(n)},
                    cases=[{"n": 4}],
                    **declared,  # type: ignore[arg-type]
                )
            except DeclarationError:
                assert cell == "no", (first, second)
            else:
                assert cell == ("" if first == second else "yes"), (first, second)


def test_the_glob_of_the_documentation_finds_what_the_plugin_writes() -> None:
    from pairbench.integrations.plugin.options import of_device
    from pairbench.model.environment import Device

    page = (ROOT / "docs" / "pytest-and-ci.md").read_text(encoding="utf-8")
    (glob,) = re.findall(r"pairbench import pytest-benchmark (\S+\.json)`", page)
    folder = Path(of_device(".benchmarks", Device(selector="cpu", kind="cpu", name="a CPU")))
    # The folder of a machine and the name of a file are pytest-benchmark's.
    written = folder / "Linux-CPython-3.12-64bit" / "0001_first.json"
    assert written.match(glob) and len(written.parts) == len(Path(glob).parts)


def walks() -> dict[str, list[str]]:
    """Return the files that each walk of ARCHITECTURE.md stops at, as it names them: the first of each stop."""
    section = architecture().partition("## Two walks")[2].partition("\n[The other verbs]")[0]
    parts = re.split(r"^### (.+)$", section, flags=re.MULTILINE)[1:]
    return {
        title: re.findall(r"^\d+\. `([^`]+)`", body, re.MULTILINE)
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    }


def test_a_walk_is_short_and_never_goes_back() -> None:
    assert len(walks()) == 2
    for title, stops in walks().items():
        assert len(stops) == 8, title
        assert len(set(stops)) == len(stops), title
