"""A machine may be busy: outside tests/timing no test asserts that anything takes less than ten seconds."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LEAST_S = 10
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "time"}


def _reads_clock(node: ast.AST) -> bool:
    calls = (part.func for part in ast.walk(node) if isinstance(part, ast.Call))
    return any(
        isinstance(call, ast.Attribute)
        and call.attr.removesuffix("_ns") in CLOCKS
        and ast.unparse(call.value) == "time"
        for call in calls
    )


def _names(node: ast.AST) -> set[str]:
    """Return the variables, attributes and keys that an expression names."""
    parts = list(ast.walk(node))
    keys = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    attributes = {part.attr for part in parts if isinstance(part, ast.Attribute)}
    return keys | attributes | {part.id for part in parts if isinstance(part, ast.Name)}


def _durations(tree: ast.AST) -> set[str]:
    """Return the variables that hold a difference of two readings of a clock, or a list of such."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                names = [name for target in targets for name in ast.walk(target)]
            case ast.Call(func=ast.Attribute(attr="append", value=of), args=[value]):
                names = [of]
            case _:
                continue
        subtracts = any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub) for part in ast.walk(value))
        if subtracts and _reads_clock(value):
            found |= {name.id for name in names if isinstance(name, ast.Name)}
    return found


def short_limits(text: str) -> Iterator[int]:
    """Yield the line of each assertion that a time is below a number of seconds that is less than ten."""
    if not re.search(r"\b(monotonic|perf_counter|process_time|thread_time|time\.time)\b|_s\b.*[<>]|[<>].*_s\b", text):
        return
    tree = ast.parse(text)
    durations = _durations(tree)
    compared = (part for node in ast.walk(tree) if isinstance(node, ast.Assert) for part in ast.walk(node.test))
    for compare in (part for part in compared if isinstance(part, ast.Compare)):
        sides = [compare.left, *compare.comparators]
        for less, operator, more in zip(sides, compare.ops, sides[1:], strict=False):
            small, large = (more, less) if isinstance(operator, ast.Gt | ast.GtE) else (less, more)
            if not (isinstance(large, ast.Constant) and isinstance(large.value, int | float)):
                continue
            if isinstance(operator, ast.Eq | ast.NotEq | ast.In | ast.Is) or not 0 < large.value < LEAST_S:
                continue
            names = _names(small)
            if _reads_clock(small) or names & durations or any(name.endswith("_s") for name in names):
                yield compare.lineno


def test_no_test_asserts_that_something_takes_less_than_ten_seconds() -> None:
    found = [
        f"{file.relative_to(TESTS.parent)}:{line}"
        for file in sorted(TESTS.rglob("*.py"))
        if file.relative_to(TESTS).parts[0] not in ("suites", "timing")
        for line in short_limits(file.read_text(encoding="utf-8"))
    ]
    assert not found, "count calls or operations instead, or compare with the same machine's own time in tests/timing"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("assert time.monotonic() - began < 5", [1]),
        ("took = []\ntook.append(time.perf_counter() - began)\nassert min(took) < 0.1", [3]),
        ("seconds = (time.process_time() - began) / 200\nassert 2 >= seconds", [2]),
        ("assert found.spent_s < 1 and summary['wall_s'] <= 9.5", [1, 1]),
        ("assert time.monotonic() - began < 60\nassert found.spent_s > 0.0\nassert 0 < found.left_s", []),
        ("until = time.monotonic() + 5\nassert count < 5 and retries_s == 5", []),
    ],
)
def test_what_is_found(text: str, lines: list[int]) -> None:
    assert list(short_limits(text)) == lines
