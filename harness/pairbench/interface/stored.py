"""The functions that read stored runs or compare commits: `read`, `samples`, `compare`, `ab` and `trend`."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairbench.errors import IncompleteRunError, InterruptedRunError, SelectionError, StoreError, StoreFailedError
from pairbench.execute.garbage import collector_at_rest
from pairbench.interface.opened import refuse_in_worker
from pairbench.interface.runs import Shown, as_frame, samples_frame, with_ends, words_of
from pairbench.model.comparison import Comparison, policy_of
from pairbench.plan import Wanted
from pairbench.store.reader import read_frame, read_run, read_samples
from pairbench.workflow.setup import configure, store_of, stored_select

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from pairbench.analyze.history.trend import Trend

_RUN = ("run_id", "started_at", "commit", "branch", "status")  # columns of `SeriesTrend.frame`
Store = str | Path | None
"""A folder or URL; None for that of `[tool.pairbench]`, else `results`."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Verdicts(Shown):
    """Two sides compared: a verdict for every series, and its likely cause."""

    comparison: Comparison
    """All verdicts with their evidence."""
    notes: tuple[str, ...] = ()
    """Sentences on files that could not be read, and on why there was nothing to compare with."""

    @property
    def ok(self) -> bool:
        """Whether there is no regression and no failure."""
        return self.comparison.exit_code() == 0

    @property
    def frame(self) -> "pd.DataFrame":
        """One row a metric of a series: outcome, verdict, change (1.02 for 2 % slower) with its interval, and attribution."""
        rows = [
            {
                **vars(change.series),
                "outcome": change.outcome.value,
                "attribution": change.attribution.value if change.attribution else None,
                "metric": one.metric if one else None,
                "metric_outcome": one.outcome.value if one else None,
                "verdict": one.verdict.value if one and one.verdict else None,
                "reference": one.reference if one else None,
                "current": one.current if one else None,
                **with_ends("change", one.change if one else None),
                "reason": one.reason if one else change.reason,
            }
            for change in self.comparison.changes
            for one in change.judgements or (None,)
        ]
        return as_frame(rows)

    def __str__(self) -> str:
        from pairbench.report.comparison import render_comparison

        return "\n".join([render_comparison(self.comparison, "table").rstrip(), *self.notes])


@dataclass(frozen=True, kw_only=True, repr=False)
class SeriesTrend(Shown):
    """The history of one series, with the runs at which it moved."""

    trend: "Trend"
    """Points, levels, moves and the latest verdict."""
    notes: tuple[str, ...] = ()
    """Sentences on files that could not be read."""

    @property
    def frame(self) -> "pd.DataFrame":
        """One row a run, oldest first: its commit, median with its interval in ns, and the speedup over the baseline."""
        rows = []
        for point in self.trend.points:
            run = {name: getattr(point.record, name) for name in _RUN}
            rows.append({**run, **with_ends("p50_ns", point.p50), "p95_ns": point.p95_ns, "speedup": point.speedup})
        return as_frame(rows)

    def plot(self) -> "Figure":
        """Draw latency and speedup over the runs, with levels and moves, as `pairbench trend --output` does."""
        from pairbench.report.figures import trend_figure

        return trend_figure(self.trend)

    def __str__(self) -> str:
        from pairbench.report.trend import render_trend

        return "\n".join([render_trend(self.trend, "table").rstrip(), *self.notes])


def read(store: Store = None, *, run: str | None = None, columns: Iterable[str] | None = None) -> "pd.DataFrame":
    """Return the records of a store as a frame, oldest run first, with the columns of `results/README.md`.

    Args:
        store: A folder or URL; that of `[tool.pairbench]` where not given.
        run: The id of a run, the beginning of it, or `latest`; all runs where not given.
        columns: Which columns; all where not given.

    Raises:
        StoreError: there is no such store or run, or it is empty.

    Example:
        >>> frame = pairbench.read("results")
        >>> frame[frame.status == "measured"].groupby("operator").speedup.median()
    """
    place = store_of(configure(store=store))
    run_ids = None if run is None else [read_run(place, run).value[0].run_id]
    reading = read_frame(place, columns=None if columns is None else list(columns), run_ids=run_ids)
    for problem in reading.problems:
        warnings.warn(problem, stacklevel=2)
    return reading.value


def samples(store: Store = None, *, run: str = "latest", select: str | None = None) -> "pd.DataFrame":
    """Return every single sample of a run as a row, latencies in ns; none where they have been pruned.

    Args:
        store: As in `read`.
        run: The id of a run, the beginning of it, or `latest`.
        select: An operator, a glob, or a whole case key; everything where not given.

    Raises:
        StoreError: there is no such store or run.
        SelectionError: nothing of the run is selected.

    Example:
        >>> pairbench.samples("results", select="silu").groupby(["case", "implementation", "round"]).call_ns.median()
    """
    config = configure(store=store)
    place = store_of(config)
    run_id = read_run(place, run).value[0].run_id
    found = read_samples(place, run_id).value
    if select is not None:
        (wanted,) = stored_select(config, [select])
        taken = tuple(one for one in found if wanted.takes_name(one.suite, one.operator, one.case))
        if found and not taken:
            raise SelectionError(f"{select!r} selects nothing of run {run_id}")
        found = taken
    return samples_frame(found)


def compare(
    reference: str = "auto",
    current: str = "auto",
    *,
    select: str | Iterable[str] = (),
    min_effect: float | None = None,
    store: Store = None,
) -> Verdicts:
    """Compare a stored run with earlier ones, series by series, as `pairbench compare` does.

    Args:
        reference: What to compare with: auto, latest~N, last:N, a run id, a commit, branch or tag, a date, a parquet file, or another store.
        current: What to judge, named in the same way; the newest run where not given.
        select: Operators, globs, or case keys; everything where not given.
        min_effect: Smallest change of a latency that counts, in percent; 2 where not given.
        store: As in `read`.

    Raises:
        StoreError: a side names no run.
        SelectionError: nothing is selected.

    Example:
        >>> assert pairbench.compare("latest~1").ok
    """
    from pairbench.workflow.comparer import Comparer

    config = configure(store=store)
    with collector_at_rest():
        comparer = Comparer.open(config, policy=policy_of(min_effect, name="min_effect"))
        found = comparer.compare(reference, current, wanted=Wanted(select=stored_select(config, words_of(select))))
    return Verdicts(comparison=found.comparison, notes=found.remarks)


def ab(
    base: str,
    head: str | None = None,
    select: str | Iterable[str] = (),
    *,
    device: str = "auto",
    implementations: str | Iterable[str] = (),
    min_effect: float | None = None,
    rounds: int | None = None,
    store: Store = None,
    **settings: Any,
) -> Verdicts:
    """Compare two commits of suite files, measured in turns on one device, as `pairbench ab` does.

    Args:
        base: The commit, branch or tag to compare with.
        head: The one to judge; where not given the working tree, uncommitted changes included.
        select: Suite files, operators or case keys.
        device, implementations, settings: As in `run`.
        min_effect: As in `compare`.
        rounds: How many times every case is timed; 5 where not given.
        store: A folder or URL of a store of its own, to keep both sides' records and raw samples; none is kept where not given.

    Raises:
        UsageError: a commit is unknown, nothing is selected, or the store has runs or cannot be written.
        IncompleteRunError: everything was measured, but the store failed; its `result` has the verdicts.
        KeyboardInterrupt: the user interrupted; nothing is compared then.

    Example:
        >>> print(pairbench.ab("main", select="my_ops.py"))
    """
    refuse_in_worker("ab")
    from pairbench.features.ab import compare_commits, keep, open_store, read_arguments

    config = configure(rounds=rounds, store=store, **settings)
    rest = [*([head] if head else []), *words_of(select)]
    kept = None if store is None else open_store(config, configure())
    policy = policy_of(min_effect, name="min_effect")
    try:
        found = compare_commits(config, read_arguments(config, base, rest, words_of(implementations)), device, policy)
    except InterruptedRunError:
        raise KeyboardInterrupt from None
    verdicts = Verdicts(comparison=found.comparison, notes=found.broken)
    if kept is not None:
        try:
            keep(found, kept)
        except (StoreError, StoreFailedError) as error:
            raise IncompleteRunError(f"{error}; this error's `result` has the verdicts", verdicts) from error
    return verdicts


def trend(
    series: str,
    *,
    device_name: str | None = None,
    timer: str | None = None,
    last: int | None = None,
    store: Store = None,
) -> SeriesTrend:
    """Return the history of one series with its changepoints, as `pairbench trend` does.

    Args:
        series: Its name such as `my_ops.py::silu[n=1024]-builtin-eager`, or a glob or a part of it that fits one alone.
        device_name: Device model, or a part of its name, where several have the series.
        timer: Whose values to take; the newest run's where not given.
        last: How many of the newest runs to take; all where not given.
        store: As in `read`.

    Raises:
        StoreError: there is no such store, or it is empty.
        SelectionError: the text names no series, or several.

    Example:
        >>> pairbench.trend("silu*builtin*").plot()
    """
    from pairbench.workflow.lookup import read_trend

    place = store_of(configure(store=store))
    with collector_at_rest():
        found = read_trend(place, series, wanted=Wanted(device=device_name), timer=timer, last=last)
    return SeriesTrend(trend=found.value, notes=found.problems)
