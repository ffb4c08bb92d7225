"""One benchmark of asv with all values of its parameters, as it stands in a result file; and what that is to us."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pairbench.integrations.foreign.names import literal, word
from pairbench.integrations.foreign.reading import count, latencies_ns, latency_ns, number, optional
from pairbench.integrations.foreign.values import Axes, ImportFailedError, Result, Timing

TIMER = "asv"

_TIME, _PEAK = "time", "peakmemory"
_PREFIXES = {"time": _TIME, "timeraw": _TIME, "peakmem": _PEAK}


@dataclass(frozen=True, kw_only=True)
class AsvTable:
    """One benchmark with all values of its parameters."""

    name: str
    kind: str
    version: str | None
    started_at: object
    points: tuple[tuple[Axes, str], ...]
    """Axes and label of each value."""
    values: tuple[object, ...]
    samples: tuple[object, ...]
    calls: tuple[object, ...]
    repeats: tuple[object, ...]

    @classmethod
    def of(cls, name: str, row: object, columns: list[Any], benchmarks: Mapping[str, Any], where: str) -> "AsvTable":
        """Return a row of the file's table.

        Args:
            name: The benchmark's.
            row: Its cells.
            columns: Their names.
            benchmarks: What is known of each benchmark, by name.
            where: The file, for messages.

        Raises:
            ImportFailedError: it is not as asv writes it.
        """
        if not isinstance(row, list):
            raise ImportFailedError(f"{where} has {row!r:.60} for {name!r}, expected a list")
        cells = dict(zip(columns, row, strict=False))  # asv leaves nulls at the end out
        known = benchmarks.get(name)
        known = known if isinstance(known, dict) else {}
        params = cells.get("params") or []
        if not isinstance(params, list) or not all(isinstance(values, list) for values in params):
            raise ImportFailedError(f"{where} has the params {params!r:.60} for {name!r}, expected lists of values")
        points = tuple(itertools.product(*([str(value) for value in values] for values in params)))
        names = optional(known, "param_names", list) or []
        names = [names[place] if place < len(names) else f"param{place + 1}" for place in range(len(params))]
        kind = known.get("type") or _PREFIXES.get(name.rpartition(".")[2].partition("_")[0], "another kind")

        def each(column: str) -> tuple[object, ...]:
            values = cells.get(column)
            values = values if isinstance(values, list) else [None] * len(points)
            if len(values) != len(points):
                raise ImportFailedError(
                    f"{where} has {len(values)} of {column!r} for {name!r}, expected {len(points)}: one for each value of "
                    "its parameters"
                )
            return tuple(values)

        return cls(
            name=name,
            kind=str(kind),
            version=optional(cells, "version", str),
            started_at=cells.get("started_at"),
            points=tuple((_axes(names, point), ", ".join(point)) for point in points),
            values=each("result"),
            samples=each("samples"),
            calls=each("stats_number"),
            repeats=each("stats_repeat"),
        )

    @property
    def place(self) -> tuple[str, str]:
        """The module as a file, and what is in it: classes are what begins with a capital, as everywhere in Python."""
        *parts, function = self.name.split(".")
        modules = list(itertools.takewhile(lambda part: not part[:1].isupper(), parts))
        return "/".join(modules or ["__init__"]) + ".py", ".".join([*parts[len(modules) :], function])

    def results(self) -> Iterator[Result]:
        """Yield a result for each value of the parameters."""
        suite, operator = self.place
        for index, (axes, label) in enumerate(self.points):
            value = self.values[index]
            status, reason = _status(value, self.kind)
            timed = status == "measured" and self.kind == _TIME
            yield Result(
                suite=suite,
                operator=operator,
                axes=axes,
                label=label,
                status=status,
                reason=reason,
                timing=self._timing(index) if timed else None,
                peak_bytes=count(int(number(value))) if self.kind == _PEAK and status == "measured" else None,
                definition_hash=self.version,
            )

    def _timing(self, index: int) -> Timing:
        samples = latencies_ns(self.samples[index])
        return Timing(
            timer=TIMER,
            p50_ns=latency_ns(self.values[index]) or 0.0,
            n_samples=len(samples) or count(self.repeats[index]),
            samples_ns=samples,
            calls_per_sample=count(self.calls[index]) or 1,
        )


def _axes(names: list[Any], point: tuple[str, ...]) -> Axes:
    return tuple(sorted(((word(str(name)), literal(text)) for name, text in zip(names, point, strict=True)), key=str))


def _status(value: object, kind: str) -> tuple[str, str | None]:
    if value is None:
        return "failed", "asv has no result for it: it failed, or took too long"
    result = number(value)
    if math.isnan(result) and isinstance(value, float):
        return "skipped", "asv skipped it: its setup raised NotImplementedError"
    if not 0 < result < math.inf or (kind == _TIME and not latency_ns(value)):
        return "failed", f"asv has the result {value!r:.40}, expected a positive number"
    return "measured", None


def joined(tables: Iterable[AsvTable]) -> Iterator[Result]:
    """Yield the results, the peak memory of `peakmem_x` with the latency of `time_x` where both are there."""
    tables = list(tables)
    peaks = {
        (result.suite, _stem(result.operator), result.axes): result
        for table in tables
        if table.kind == _PEAK
        for result in table.results()
    }
    for table in tables:
        if table.kind == _TIME:
            for result in table.results():
                peak = peaks.pop((result.suite, _stem(result.operator), result.axes), None)
                yield replace(result, peak_bytes=peak.peak_bytes) if peak else result
    for peak in peaks.values():
        measured = peak.status == "measured"
        reason = "asv measured its peak memory, and there is no time_* of the same name" if measured else peak.reason
        yield replace(peak, status="skipped" if measured else peak.status, reason=reason)


def _stem(operator: str) -> str:
    """Return what `Norm.time_rms` and `Norm.peakmem_rms` have in common."""
    owner, dot, function = operator.rpartition(".")
    prefix, _, rest = function.partition("_")
    return f"{owner}{dot}{rest}" if prefix in _PREFIXES else operator


def foreign(tables: Iterable[AsvTable]) -> Iterator[str]:
    """Yield the benchmark's name for each value that is neither a latency nor a peak of memory."""
    for table in tables:
        if table.kind not in (_TIME, _PEAK):
            yield from [table.name] * len(table.points)
