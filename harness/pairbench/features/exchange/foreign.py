"""The measurements of another tool as values, read from JSON that anybody may have written.

Values of parameters become words that a case key can hold, the same in every run: a digest keeps apart texts that look equal once other
characters are replaced, and addresses in memory are left out.
"""

import ast
import datetime as dt
import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pairbench.errors import UsageError
from pairbench.model.case import AxisValue
from pairbench.model.environment import Device, Environment
from pairbench.model.plain import Kind, Value
from pairbench.model.record import Record

_LONGEST, _SHOWN = 60, 40
_LETTERS = re.compile(r"[^A-Za-z0-9_.+-]+")
_UNSERIALIZABLE = re.compile(r"UNSERIALIZABLE\[(.*)\]", re.DOTALL)

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_OBJECTS = (
    r"<(?:cyfunction|function|built-in function|built-in method|bound method|class|module) '?([\w.]+)'?(?: .*)?>",
    r"<([A-Za-z_][\w.]*): .*>",  # a member of an enumeration
    r"torch\.(\w+)",  # a dtype, named as in our own cases
)
Axes = tuple[tuple[str, AxisValue], ...]
UNKNOWN = ""  # value of a required column that another tool does not record, such as the version of torch
LONGEST_NS = 1e18  # some thirty years: a longer time is no latency, and many of them exceed a column


def axis_value(value: object) -> AxisValue:
    """Return a parameter's JSON value as it can be in a case key: numbers and tuples of integers unchanged."""
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, tuple | list) and value and all(type(item) is int for item in value):
        return tuple(value)
    return word(value if isinstance(value, str) else repr(value))


def literal(text: str) -> AxisValue:
    try:
        return axis_value(ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return word(text)


def word(text: str) -> str:
    if wrapped := _UNSERIALIZABLE.fullmatch(text):
        text = wrapped[1]
    text = _ADDRESS.sub("", text)
    if match := next(filter(None, (re.fullmatch(pattern, text) for pattern in _OBJECTS)), None):
        text = match[1]
    plain = _LETTERS.sub("_", text).strip("_")
    if plain == text and 0 < len(text) <= _LONGEST:
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:6]
    return f"{plain[:_SHOWN] or 'text'}-{digest}"


class ImportFailedError(UsageError):
    """A file cannot be imported; the message names it, the problem, and what was expected."""


def timing(timer: str, p50_ns: float, data: object, rounds: object, iterations: object) -> "Timing":
    samples_ns = latencies_ns(data)
    return Timing(timer, p50_ns, len(samples_ns) or count(rounds), samples_ns, count(iterations) or 1)


class Timing(NamedTuple):
    timer: str
    p50_ns: float
    n_samples: int | None
    samples_ns: tuple[float, ...] = ()  # latencies of single samples in order; empty where the file does not keep them
    calls_per_sample: int = 1  # beyond one, a sample is the mean of so many calls, and its tail is another


class Result(Value):
    """One benchmark with one value of each of its parameters."""

    suite: str
    operator: str
    axes: Axes
    label: str  # the tool's own name of the parameters, which tells apart results with equal `axes`
    status: str = "measured"
    reason: str | None = None
    timing: Timing | None = None
    peak_bytes: int | None = None
    definition_hash: str | None = None


class Origin(Value):
    """The columns of a run; null where the other tool does not have them."""

    run_id: str
    confirms: str | None = None
    started_at: str
    commit: str | None = None
    commit_at: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    commit_subject: str | None = None
    commit_author: str | None = None
    commit_number: int | None = None
    pull_request: int | None = None


class ForeignRun(NamedTuple):
    source: str
    origin: Origin
    environment: Environment
    results: tuple[Result, ...]
    # Records that pairbench wrote into the file, each with its call latencies in ns by round, where the file has them.
    restored: tuple[tuple[Record, tuple[tuple[float, ...], ...]], ...] = ()
    left_out: tuple[str, ...] = ()  # the benchmark's name for each value that was left out


def cpu_environment(cpu: str, **columns: Any) -> Environment:
    device = Device(selector="cpu", kind="cpu", name=cpu)
    return Environment(device=device, cpu=cpu, driver=None, cuda=None, cudnn=None, triton=None, **columns)


def run_id_of(started: dt.datetime, content: bytes) -> str:
    """Return the id of a run: its time, by which runs sort, and a hash of the file's content, so that a second import gives the same id."""
    return f"{started.astimezone(dt.UTC):%Y%m%dT%H%M%S}-{hashlib.sha256(content).hexdigest()[:16]}"


def moment_of(started: dt.datetime) -> str:
    return started.astimezone(dt.UTC).isoformat(timespec="milliseconds")


def inversions(runs: Iterable[Origin]) -> int:
    """Return how many runs of one machine and environment were measured right before a run of an earlier commit."""
    known = sorted((run.started_at, run.commit_at) for run in runs if run.commit_at)
    return sum(before > now for (_, before), (_, now) in itertools.pairwise(known))


def told_apart(results: Sequence[Result]) -> tuple[tuple[Result, ...], tuple[str, ...]]:
    """Return results with different cases, two that look equal told apart by their tool's own label, and the names of duplicates."""
    counts = Counter(case for case, _ in {(_case(result), result.label) for result in results})
    kept: dict[tuple[str, str, Axes], Result] = {}
    twice = []
    for result in results:
        one = result if counts[_case(result)] == 1 else replace(result, axes=(("id", word(result.label)),))
        if kept.setdefault(_case(one), one) is not one:
            twice.append(f"{result.suite}::{result.operator}[{result.label}]")
    return tuple(kept.values()), tuple(twice)


def _case(result: Result) -> tuple[str, str, Axes]:
    return result.suite, result.operator, result.axes


def read_document(path: str | Path, expected: str) -> tuple[dict[str, Any], bytes]:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ImportFailedError(f"{path}: cannot be read: {error.strerror}; expected {expected}") from error
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        what = "is empty" if not content.strip() else f"is no JSON, or only a part of one: {error}"
        raise ImportFailedError(f"{path}: {what}; expected {expected}") from error
    if b"\\ud" in content.lower():
        try:
            json.dumps(document, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = f"half a character, \\u{ord(error.object[error.start]):x}"
            raise ImportFailedError(f"{path}: holds {half}; expected {expected}") from error
    if not isinstance(document, dict):
        raise ImportFailedError(f"{path}: holds a {type(document).__name__}, expected {expected}")
    return document, content


def optional(holder: Mapping[str, Any], name: str, kind: type[Kind]) -> Kind | None:
    value = holder.get(name)
    return value if isinstance(value, kind) else None


def latency_ns(value: object) -> float | None:
    taken = number(value) * 1e9
    return taken if 0 <= taken < LONGEST_NS else None


def latencies_ns(values: object) -> tuple[float, ...]:
    """Return a list of seconds as latencies in ns; empty where one is invalid or their sum exceeds a column."""
    found = [latency_ns(value) for value in values] if isinstance(values, list) else []
    kept = tuple(taken for taken in found if taken is not None)
    return kept if len(kept) == len(found) and sum(kept) < LONGEST_NS else ()


def number(value: object) -> float:
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan


def count(value: object) -> int | None:
    return value if type(value) is int and 0 < value < 2**63 else None
