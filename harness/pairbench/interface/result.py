"""The result of a run: its records and samples as frames, its table and chart, and how it gets into a store."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from pairbench.errors import SelectionError, UsageError
from pairbench.model.latency import p50_of, speedup_of
from pairbench.model.outcome import Status
from pairbench.model.record import Record, Samples, columns
from pairbench.workflow.setup import configure, store_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_LISTS = ("block", "position", "at_ns", "call_ns", "host_ns", "device_ns", "stream_ns", "throttled", "outlier")
"""The columns of samples that hold a list."""


def frame_of(records: Sequence[Record]) -> "pd.DataFrame":
    """Return records as a frame with the store's columns, in its order."""
    import pandas as pd

    return pd.DataFrame([vars(record) for record in records], columns=list(columns(Record)))


def with_axes(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return a frame with a column for each axis of its cases; an axis that has the name of another column is left out."""
    axes = [json.loads(text) if isinstance(text, str) else {} for text in frame["axes"]]
    names = dict.fromkeys(name for case in axes for name in case if name not in frame.columns)
    for case in axes:
        case.update({name: tuple(value) for name, value in case.items() if isinstance(value, list)})
    return frame.assign(**{name: [case.get(name) for case in axes] for name in names})


def samples_frame(samples: Sequence[Samples]) -> "pd.DataFrame":
    """Return a row for each sample: its series, its round and its latencies in ns."""
    import pandas as pd

    names = list(columns(Samples))
    rows = pd.DataFrame([vars(one) for one in samples], columns=names)
    for name in ("host_ns", "device_ns", "stream_ns"):  # None where no sample of the round has that latency
        rows[name] = [
            list(values) if values is not None else [None] * len(calls)
            for values, calls in zip(rows[name], rows["call_ns"], strict=True)
        ]
    return rows.explode(list(_LISTS), ignore_index=True).infer_objects() if len(rows) else rows


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """The records of a run with their raw samples. A notebook shows it as a table and a chart."""

    records: tuple[Record, ...]
    """One for each case, implementation and mode on each device, in the order of the table."""
    raw_samples: tuple[Samples, ...] = field(default=())
    """The raw samples of each record, one value for each round; empty where they have been pruned."""
    store: str | None = None
    """The store that has the run; None where no store has it: `save` keeps it."""
    interrupted: bool = False
    """Whether Ctrl-C ended the run; then the records are those that were finished."""
    lines: tuple[str, ...] = ()
    """The closing lines of `pairbench run`: the run's id, how long it took, why measuring ended."""
    source: str = ""
    """The text of the suite that was written for operators and functions without a file; empty where they had one. Saved as a
    file, it runs the same on the command line."""

    @property
    def run_id(self) -> str:
        """The run's id, by which `pairbench.compare` and the command line know it; empty for a run without records."""
        return self.records[0].run_id if self.records else ""

    @property
    def ok(self) -> bool:
        """Whether the run was completed with nothing mismatched, failed or broken, so that the command line would exit with 0."""
        broken = any(record.operator is None or Status(record.status).bad for record in self.records)
        return not (broken or self.interrupted)

    @cached_property
    def frame(self) -> "pd.DataFrame":
        """The records as a frame: the columns of `results/README.md`, then a column for each axis of the cases."""
        return with_axes(frame_of(self.records))

    @property
    def samples(self) -> "pd.DataFrame":
        """A row for each sample: latencies in ns, with its block and its position in the block."""
        return samples_frame(self.raw_samples)

    def best(self) -> "pd.DataFrame":
        """Return the fastest implementation of each case in each mode, the baseline included, with its median in us and its speedup."""
        import pandas as pd

        fastest: dict[tuple[str, ...], Record] = {}
        for record in self.records:
            key = (record.device_name, record.suite, str(record.case), str(record.mode))
            now, before = p50_of(record), fastest.get(key)
            known = p50_of(before) if before is not None else None
            if record.status == Status.MEASURED and now and (known is None or now.estimate < known.estimate):
                fastest[key] = record
        rows = []
        for record in fastest.values():
            p50, speedup = p50_of(record), speedup_of(record) or (None, None, None)
            row = {name: getattr(record, name) for name in _BEST} | {"p50_us": p50.estimate / 1e3 if p50 else None}
            rows.append(row | dict(zip(_SPEEDUP, speedup, strict=True)))
        return pd.DataFrame(rows, columns=[*_BEST, "p50_us", *_SPEEDUP])

    def plot(self, x: str | None = None, y: str | None = None, *, log: bool | None = None) -> "Figure":
        """Draw one line an implementation along an axis of the cases, with 95 % intervals, and mark where lines cross the baseline's.

        Cases that differ in other axes have panels of their own.

        Args:
            x: The axis of the cases; where not given, the only one that varies.
            y: `device_p50_us`, `call_p50_us`, `host_p50_us`, `speedup`, `gbps` or `tflops`; where not given, the latency that
                is the result, the device's on a GPU and the call's on a CPU.
            log: Whether both axes are logarithmic; where not given, they are where values spread widely.

        Raises:
            SelectionError: there is no such axis, or no value to draw.

        Returns:
            A figure of matplotlib, which notebooks show; `.savefig("file.png")` keeps it.
        """
        from pairbench.report.axis_chart import axis_chart
        from pairbench.report.figures import draw_axis

        return draw_axis(axis_chart(self.records, x, y, log=log))

    def save(self, store: str | Path | None = None) -> None:
        """Put the run into a store, where `compare`, `trend` and the command line find it. Done again, nothing is doubled.

        Args:
            store: A folder or URL; where not given, that of `[tool.pairbench]`, else `results`.

        Raises:
            UsageError: there is nothing to save.
            StoreError: the store cannot be written.
        """
        from pairbench.model.environment import device_slug
        from pairbench.store.writer import write_run

        if not self.records:
            raise UsageError("this run has no records, so there is nothing to save")
        place, month = store_of(configure(store=None if store is None else str(store))), self.records[0].started_at[:7]
        for name, kind in {(one.device_name, one.device_kind) for one in self.records}:
            names = {"run_id": self.run_id, "device_slug": device_slug(name, kind), "month": month}
            records = [one for one in self.records if one.device_name == name]
            samples = [one for one in self.raw_samples if one.device_name == name]
            write_run(place, **names, records=records, samples=samples)

    def __str__(self) -> str:
        from pairbench.report.rows import render

        table = render(self.records, "table") if self.records else "nothing was measured\n"
        return "\n".join([table.rstrip(), *self.lines])

    def __repr__(self) -> str:
        counts = Counter(record.status for record in self.records)
        shown = ", ".join(f"{number} {status}" for status, number in counts.items()) or "nothing"
        return f"<pairbench.Result {self.run_id or 'without records'}: {shown}>"

    def _repr_html_(self) -> str:
        """Return the table, and the chart where there is an axis to draw along."""
        from pairbench.report.axis_chart import axis_chart, crossover_sentences
        from pairbench.report.blocks import html_text
        from pairbench.report.figures import svg_element
        from pairbench.report.rows import html_table

        table = html_table(self.records, ["interrupted: this is what was finished"] if self.interrupted else [])
        picture = ""
        try:
            chart = axis_chart(self.records)
            if any(len(line.points) > 1 for panel in chart.panels for line in panel.lines):
                sentences = "".join(f"<p>{sentence}.</p>" for sentence in map(escape, crossover_sentences(chart)))
                picture = svg_element(chart) + sentences
        except SelectionError:  # no axis, or several: .plot(x=...) says which there are
            pass
        return f"{table}{picture}{html_text(chr(10).join(self.lines)) if self.lines else ''}"


_BEST = ("operator", "case", "mode", "device_name", "implementation")
_SPEEDUP = ("speedup", "speedup_low", "speedup_high")
