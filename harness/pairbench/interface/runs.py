"""The functions that measure, `run`, `measure`, `verify` and `try_`, with the settings, stages, locks and workers of the command line.

Their results have a frame, print as on the command line, and are shown in notebooks.
"""

import contextlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairbench.errors import IncompleteRunError, InterruptedRunError, SelectionError, SuiteError, UsageError
from pairbench.interface.opened import Arguments, Cases, Opened, Targets, open_functions, open_targets, refuse_in_worker
from pairbench.model.case import Tolerance
from pairbench.model.outcome import Status
from pairbench.model.record import Record, Samples, columns, p50_of, speedup_of
from pairbench.own_folders import held_folder
from pairbench.workflow.setup import ask, configure, open_context, open_request, store_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from pairbench.features.attempt.attempts import Attempt
    from pairbench.stats import Interval

_BEST = ("operator", "case", "mode", "device_name", "implementation")  # columns of `Result.best`
Words = str | Iterable[str] | None
"""A word, or several."""


def as_frame(rows: Iterable[Mapping[str, Any]], names: Iterable[str] | None = None) -> "pd.DataFrame":
    """Return rows as a frame with these columns, or those of the rows."""
    import pandas as pd

    return pd.DataFrame(list(rows), columns=None if names is None else list(names))


def frame_of(records: Sequence[Record]) -> "pd.DataFrame":
    """Return records as a frame with the store's columns, and one for each axis of the cases but those that have the name of another column."""
    found = as_frame(map(vars, records), columns(Record))
    cases = [json.loads(record.axes or "{}") for record in records]
    names = dict.fromkeys(name for case in cases for name in case if name not in found.columns)
    values = {name: [case.get(name) for case in cases] for name in names}
    axes = {name: [tuple(one) if isinstance(one, list) else one for one in axis] for name, axis in values.items()}
    return found.assign(**axes)


def with_ends(name: str, interval: "Interval | None") -> dict[str, float | None]:
    """Return an estimate and the ends of its interval as values of columns."""
    return dict(zip((name, f"{name}_low", f"{name}_high"), interval or (None, None, None), strict=True))


def samples_frame(samples: Sequence[Samples]) -> "pd.DataFrame":
    """Return a row for each sample: its series, its round and its latencies in ns."""
    from pairbench.store.schema import PER_SAMPLE

    rows = as_frame(map(vars, samples), columns(Samples))
    for name in ("host_ns", "device_ns", "stream_ns"):  # None where no sample of the round has that latency
        pairs = zip(rows[name], rows["call_ns"], strict=True)
        rows[name] = [list(values) if values is not None else [None] * len(calls) for values, calls in pairs]
    return rows.explode(list(PER_SAMPLE), ignore_index=True).infer_objects() if len(rows) else rows


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
        """The records as a pandas DataFrame: the columns that `results/README.md` describes, then a column for each axis of the cases."""
        return frame_of(self.records)

    @property
    def samples(self) -> "pd.DataFrame":
        """A row for each sample: latencies in ns, with its block and its position in the block."""
        return samples_frame(self.raw_samples)

    def best(self) -> "pd.DataFrame":
        """Return the fastest implementation of each case in each mode, the baseline included, with its median in us and its speedup."""
        medians: defaultdict[tuple[str, ...], list[tuple[float, Record]]] = defaultdict(list)
        for record in self.records:
            if record.status == Status.MEASURED and (p50 := p50_of(record)):
                key = (record.device_name, record.suite, str(record.case), str(record.mode))
                medians[key].append((p50.estimate, record))
        rows = []
        for of_case in medians.values():
            fastest, record = min(of_case, key=itemgetter(0))
            row = {name: getattr(record, name) for name in _BEST} | {"p50_us": fastest / 1e3}
            rows.append(row | with_ends("speedup", speedup_of(record)))
        return as_frame(rows, [*_BEST, "p50_us", *with_ends("speedup", None)])

    def plot(self, x: str | None = None, y: str | None = None, *, log: bool | None = None) -> "Figure":
        """Draw a line for each implementation along an axis of the cases, with 95 % intervals, and mark where it crosses the baseline's.

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
        from pairbench.store.writer import write_runs

        if not self.records:
            raise UsageError("this run has no records, so there is nothing to save")
        write_runs(store_of(configure(store=store)), self.records, self.raw_samples)

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
        from pairbench.report.figures import svg_element
        from pairbench.report.render import html_text
        from pairbench.report.rows import html_table

        table = html_table(self.records, ["interrupted: this is what was finished"] if self.interrupted else [])
        picture = ""
        with contextlib.suppress(SelectionError):  # no axis, or several: .plot(x=...) says which there are
            chart = axis_chart(self.records)
            if any(len(line.points) > 1 for panel in chart.panels for line in panel.lines):
                sentences = "".join(f"<p>{sentence}.</p>" for sentence in map(escape, crossover_sentences(chart)))
                picture = svg_element(chart) + sentences
        return f"{table}{picture}{html_text(chr(10).join(self.lines)) if self.lines else ''}"


class Shown:
    """Base class of results whose text is what the verb of the command line prints."""

    def _repr_html_(self) -> str:
        from pairbench.report.render import html_text

        return html_text(str(self))


@dataclass(frozen=True, kw_only=True, repr=False)
class Verifications(Shown):
    """The result of `verify`."""

    rows: tuple[dict[str, Any], ...]
    """A row for each implementation of each case, as in `pairbench verify --format json`."""
    impostors: tuple[dict[str, Any], ...]
    """A row for each impostor that was tried; empty without `impostors=True`."""
    ok: bool
    """Whether every implementation is right and every impostor was rejected, so that the command line would exit with 0."""
    lines: tuple[str, ...]
    """The number of implementations by status, and the suites that could not be loaded."""

    @property
    def frame(self) -> "pd.DataFrame":
        """The rows as a frame."""
        return as_frame(self.rows)

    def __str__(self) -> str:
        from pairbench.report.render import render_rows
        from pairbench.workflow.devices import SHOWN

        table = render_rows("verifications", [{name: row[name] for name in SHOWN} for row in self.rows], "table")
        passed = [row for row in self.impostors if not row["rejected"]]
        more = [render_rows("impostors that passed", passed, "table")] if passed else []
        return "\n".join([table.rstrip(), *more, *self.lines])


@dataclass(frozen=True, kw_only=True, repr=False)
class Tries(Shown):
    """The result of `try_`: no verdict, and not stored."""

    attempt: "Attempt"
    """The cases that were tried, each with the last try and the newest stored record."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong, so that the command line would exit with 0."""
        return self.attempt.exit_code == 0

    @property
    def frame(self) -> "pd.DataFrame":
        """The records as a frame, with a column for each axis."""
        return frame_of([one.record for one in self.attempt.tried])

    def __str__(self) -> str:
        from pairbench.features.attempt.words import case_lines, closing_lines

        lines = [line for case in self.attempt.cases for line in case_lines(case)]
        return "\n".join([*lines, *closing_lines(self.attempt), *(suite.reason for suite in self.attempt.broken)])


def run(
    what: Targets = None,
    *,
    cases: Cases | None = None,
    device: str = "auto",
    implementations: Words = None,
    tier: Words = None,
    mode: Words = None,
    rounds: int | None = None,
    timeout: float | None = None,
    budget: str | None = None,
    store: str | Path | None = None,
    catalogue: bool = False,
    **settings: Any,
) -> Result:
    """Verify, time and profile pairs in processes of their own, and return the results. Ctrl-C ends it with the cases that were finished.

    Args:
        what: An operator, a suite file, a SELECT argument as on the command line, or several of these. An operator that was
            imported from a file is run from that file, as it is now; one of a notebook or script is sent as source.
        cases: Other cases for the operators, as `Operator(cases=)` takes them: `grid(n=[1024, 4096])`.
        device: `auto` (the first GPU, else the CPU), `cpu`, `cuda:N`, or `all`.
        implementations: Variants, or globs of variants, to take beside the baseline.
        tier: `smoke`, `real`, `headline`, `edge` or `all`.
        mode: `eager`, `compile`, `graph` or `all`.
        rounds: How many times every case is timed, each in a fresh process; 3 by default.
        timeout: Seconds for one implementation in one stage.
        budget: Wall time such as `10m`, as `pairbench run --budget`.
        store: A folder or URL to keep the run in; nothing is kept where not given, and `Result.save` is there for that.
        catalogue: Whether to take the pairs that come with pairbench where no file is named.
        settings: Further settings of `[tool.pairbench]`, such as `tf32`, `timer`, `target` or `case_seconds`.

    Raises:
        UsageError: an argument is wrong, or an operator cannot be sent to another process.
        IncompleteRunError: the run ended before its end; its `result` has what was measured.

    Example:
        >>> result = pairbench.run("my_ops.py", device="cpu", rounds=1)
        >>> result.frame[["case", "implementation", "call_p50_ns", "speedup"]]
        >>> result.plot(x="n", y="speedup")
    """
    refuse_in_worker("run")
    settings |= {"tier": tier, "mode": mode, "rounds": rounds, "timeout": timeout, "budget": budget}
    with _kept(store) as kept, open_targets(what, cases=cases, catalogue=catalogue, store=kept, **settings) as opened:
        return _run(opened, device, implementations, store=store)


def measure(
    functions: Mapping[str, Callable[..., Any]],
    args: Arguments = (),
    *,
    cases: Cases | None = None,
    name: str | None = None,
    tolerance: Tolerance | Mapping[str, Tolerance] | None = None,
    gradients: Sequence[str] = (),
    device: str | None = None,
    mode: Words = None,
    rounds: int | None = None,
    timeout: float | None = None,
    store: str | Path | None = None,
    **settings: Any,
) -> Result:
    """Measure bare functions side by side: verified against the first, timed interleaved, profiled.

    Args:
        functions: Functions by name: first the plain one, which becomes the baseline, then those that compute the same.
        args: Their arguments: a tensor, a list of arguments, or a dict by name. They are copied to the device, so no function
            sees another's. Or a function `inputs(make, ...)` of the axes of `cases`, as `Operator(inputs=)` takes it, which
            gives new values for each round; given values stay what they are.
        cases: The points that `inputs` is called with: `grid(n=[1024, 4096])`.
        name: The operator's name in tables; the first function's where not given.
        tolerance: How far outputs may differ; by the output's dtype where not given.
        gradients: Arguments, by name, of which the gradients are needed: forward, backward and both are then measured.
        device: As in `run`; where not given, the device that the tensors are on.
        mode, rounds, timeout, store, settings: As in `run`.

    Raises:
        UsageError: an argument is wrong, or it or a function cannot be sent to another process.
        IncompleteRunError: the run ended before its end; its `result` has what was measured.

    Example:
        >>> pairbench.measure({"plain": lambda x: x * torch.sigmoid(x), "mine": torch.nn.functional.silu}, torch.randn(4096))
    """
    refuse_in_worker("measure")
    settings |= {"mode": mode, "rounds": rounds, "timeout": timeout}
    declared: dict[str, Any] = {"cases": cases, "name": name, "tolerance": tolerance, "gradients": gradients}
    with _kept(store) as kept, open_functions(functions, args, store=kept, **declared, **settings) as opened:
        return _run(opened, device or opened.device, None, store=store)


def verify(
    what: Targets = None,
    *,
    cases: Cases | None = None,
    device: str = "auto",
    implementations: Words = None,
    tier: Words = None,
    mode: Words = None,
    impostors: bool = False,
    timeout: float | None = None,
    catalogue: bool = False,
    **settings: Any,
) -> Verifications:
    """Verify variants against their baselines and a float64 oracle, and time nothing. Edge cases are included.

    Args:
        what, cases, device, implementations, tier, mode, timeout, catalogue, settings: As in `run`.
        impostors: Whether to audit the tolerances, too: every deliberately wrong implementation must be rejected.

    Raises:
        UsageError: an argument is wrong.

    Example:
        >>> assert pairbench.verify("my_ops.py", impostors=True).ok
    """
    refuse_in_worker("verify")
    from pairbench.workflow.devices import verify_devices

    settings |= {"tier": tier, "mode": mode, "timeout": timeout}
    with (
        open_targets(what, cases=cases, catalogue=catalogue, **settings) as opened,
        open_request(opened.config, opened.select, device, words_of(implementations)) as request,
    ):
        survey = request.chosen.survey
        if survey.broken and not survey.operators:
            raise SuiteError("; ".join(suite.reason for suite in survey.broken))
        found = verify_devices(request, impostors=impostors)
    ok = not (found.bad or survey.broken or request.context.interrupted.is_set())
    lines = (found.statuses(), *(suite.reason for suite in survey.broken))
    return Verifications(rows=tuple(found.rows()), impostors=tuple(found.impostor_rows()), ok=ok, lines=lines)


def try_(
    what: Targets = None,
    *,
    cases: Cases | None = None,
    device: str = "auto",
    implementations: Words = None,
    tier: Words = None,
    mode: Words = None,
    all_cases: bool = False,
    timeout: float | None = None,
    store: str | Path | None = None,
    catalogue: bool = False,
    **settings: Any,
) -> Tries:
    """Take a quick look: right or wrong first, then one round of timing, beside the last try. Nothing is stored.

    Args:
        what, cases, implementations, tier, mode, timeout, catalogue, settings: As in `run`.
        device: As in `run`, but a single device.
        all_cases: Whether to take all selected cases; else one of each operator.
        store: The store whose newest run to compare with; that of `[tool.pairbench]` where not given.

    Raises:
        UsageError: an argument is wrong.
        KeyboardInterrupt: the user interrupted.

    Example:
        >>> print(pairbench.try_(my_operator, implementations="triton"))
    """
    refuse_in_worker("try_")
    settings |= {"tier": tier, "mode": mode, "timeout": timeout, "store": store}
    from pairbench.features.attempt.attempts import Attempts
    from pairbench.workflow.progress import StatusListener

    names = words_of(implementations)
    with (
        open_targets(what, cases=cases, catalogue=catalogue, **settings) as opened,
        open_context(opened.config, ask(opened.config, opened.select).files, quick=True) as context,
        contextlib.closing(StatusListener()) as status,
        contextlib.closing(
            Attempts(opened.config, context, status, opened.select, names, device, every_case=all_cases)
        ) as attempts,
    ):
        try:
            return Tries(attempt=attempts.once())
        except InterruptedRunError:
            raise KeyboardInterrupt from None


def _run(opened: Opened, device: str, implementations: Words, *, store: str | Path | None) -> Result:
    began = time.monotonic()
    with open_request(opened.config, opened.select, device, words_of(implementations)) as request:
        from pairbench.report.rows import ordered
        from pairbench.store.reader import read_samples
        from pairbench.workflow.record import record_run

        done = record_run(request, began=began)
    broken = [suite.reason for suite in request.chosen.survey.broken]
    result = Result(
        records=tuple(ordered(done.records)),
        raw_samples=read_samples(opened.config.store, done.run_id).value if done.records else (),
        store=None if store is None else str(store),
        interrupted=done.interrupted and done.error is None,
        lines=(*done.closing_lines(None if store is None else opened.config.shown_store), *broken),
        source=opened.text,
    )
    if done.error is not None:
        problem = f"{done.error}; what was measured until then is this error's `result`"
        raise IncompleteRunError(problem, result) from done.error
    if done.kept is not None:
        raise IncompleteRunError(f"{'; '.join(done.kept.lines())}; this error's `result` has all of it", result)
    return result


def _kept(store: str | Path | None) -> contextlib.AbstractContextManager[str | Path]:
    """Return the store of a run: the given one, or a folder that is removed at the end of the call."""
    return held_folder() if store is None else contextlib.nullcontext(store)


def words_of(words: Words) -> tuple[str, ...]:
    """Return one word or several as several."""
    return () if words is None else (words,) if isinstance(words, str) else tuple(words)
