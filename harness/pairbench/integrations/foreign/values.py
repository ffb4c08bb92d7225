"""What another tool measured, as values: a run of results, before anybody says which of them are a pair."""

import datetime as dt
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pairbench.errors import UsageError
from pairbench.integrations.foreign.names import word
from pairbench.model.case import AxisValue
from pairbench.model.environment import Device, Environment
from pairbench.model.record import Record

Axes = tuple[tuple[str, AxisValue], ...]

UNKNOWN = ""
"""Value of what every record has and another tool does not say, such as the version of torch."""


class ImportFailedError(UsageError):
    """A file cannot be imported; the message names it, says what is wrong with it and what was expected."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The latencies of one benchmark."""

    timer: str
    p50_ns: float
    n_samples: int | None
    samples_ns: tuple[float, ...] = ()
    """Latencies of single samples in ns, in the order they were taken; empty where the file does not keep them."""
    calls_per_sample: int = 1
    """More than one: a sample is the mean of so many calls, and its tail says nothing of a single call's."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One benchmark with one value of each of its parameters."""

    suite: str
    operator: str
    axes: Axes
    """Parameter and value, sorted by parameter."""
    label: str
    """How its own tool tells it apart: what `axes` are made of where they are the same for two."""
    status: str = "measured"
    reason: str | None = None
    timing: Timing | None = None
    peak_bytes: int | None = None
    definition_hash: str | None = None


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The columns of a run; those that other tools do not tell are null."""

    run_id: str
    started_at: str
    commit: str | None = None
    commit_at: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    confirms: str | None = None
    commit_subject: str | None = None
    commit_author: str | None = None
    commit_number: int | None = None
    pull_request: int | None = None


@dataclass(frozen=True, kw_only=True)
class ForeignRun:
    """One file of another tool: what it measured, and what of it has no place here."""

    source: str
    """The file, as it was named."""
    origin: Origin
    environment: Environment
    results: tuple[Result, ...]
    restored: tuple[tuple[Record, tuple[tuple[float, ...], ...]], ...] = ()
    """Records that pairbench wrote into the file, each with its call latencies in ns by round where they are there."""
    left_out: tuple[str, ...] = ()
    """A benchmark's name for each of its values that was left out."""

    def on_gpu(self, name: str) -> "ForeignRun":
        """Return the run as one on a GPU of that model; what was restored knows its own device."""
        device = Device(selector="cuda", kind="cuda", name=name)
        return replace(self, environment=replace(self.environment, device=device))


def run_id_of(started: dt.datetime, content: bytes) -> str:
    """Return the id of a run, the same whenever the file is read: runs sort by time, and the file's content tells it."""
    return f"{started.astimezone(dt.UTC):%Y%m%dT%H%M%S}-{hashlib.sha256(content).hexdigest()[:16]}"


def moment_of(started: dt.datetime) -> str:
    """Return a time as records have it."""
    return started.astimezone(dt.UTC).isoformat(timespec="milliseconds")


def inversions(runs: Iterable[Origin]) -> int:
    """Return how many runs of one machine and environment were measured right before one of an earlier commit."""
    known = sorted((run.started_at, run.commit_at) for run in runs if run.commit_at)
    return sum(before > now for (_, before), (_, now) in itertools.pairwise(known))


def told_apart(results: Sequence[Result]) -> tuple[tuple[Result, ...], tuple[str, ...]]:
    """Return results with different cases, and the names of those that are there twice and so are left out.

    Two whose parameters look the same here, such as two lambdas, are told apart by what their own tool calls them.
    """
    counts = Counter(_case(result) for result in results)
    kept: dict[tuple[str, str, Axes], Result] = {}
    twice = []
    for result in results:
        alone = counts[_case(result)] == 1
        one = result if alone else replace(result, axes=(("id", word(result.label)),))
        if _case(one) in kept:
            twice.append(f"{result.suite}::{result.operator}[{result.label}]")
        kept.setdefault(_case(one), one)
    return tuple(kept.values()), tuple(twice)


def _case(result: Result) -> tuple[str, str, Axes]:
    return result.suite, result.operator, result.axes
