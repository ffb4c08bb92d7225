"""Results other than a run's: each has a frame, prints as on the command line, and shows itself in a notebook."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pairbench.interface.frames import frame_of, with_axes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from pairbench.analyze.history.trend import Trend
    from pairbench.model.attempt import Attempt
    from pairbench.model.comparison import Comparison


class Shown:
    """A result that prints as its verb does."""

    def _repr_html_(self) -> str:
        """Return what is printed, for a notebook."""
        from pairbench.report.notebook import html_text

        return html_text(str(self))

    __repr__ = object.__repr__


@dataclass(frozen=True, kw_only=True, repr=False)
class Verifications(Shown):
    """What verification found."""

    rows: tuple[dict[str, Any], ...]
    """A row for each implementation of each case, as `pairbench verify --format json` has them."""
    impostors: tuple[dict[str, Any], ...]
    """A row for each impostor that was tried; empty where that was not asked for."""
    ok: bool
    """Whether everything is right, and every impostor was rejected: where the command line exits with 0."""
    lines: tuple[str, ...]
    """How many came out how, and the suites that could not be loaded."""

    @property
    def frame(self) -> "pd.DataFrame":
        """The rows as a frame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    def __str__(self) -> str:
        from pairbench.report.render import render_rows

        shown = ("case", "implementation", "mode", "status", "max_abs_error", "oracle_ratio", "margin", "reason")
        table = render_rows("verifications", [{name: row[name] for name in shown} for row in self.rows], "table")
        passed = [row for row in self.impostors if not row["rejected"]]
        more = [render_rows("impostors that passed", passed, "table")] if passed else []
        return "\n".join([table.rstrip(), *more, *self.lines])


@dataclass(frozen=True, kw_only=True, repr=False)
class Tries(Shown):
    """What a quick look has shown; no verdict, and nothing that is stored."""

    attempt: "Attempt"
    """The cases that were tried, with what each is compared with."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong: where the command line exits with 0."""
        return self.attempt.exit_code == 0

    @property
    def frame(self) -> "pd.DataFrame":
        """The records as a frame, with a column for each axis."""
        return with_axes(frame_of([one.record for one in self.attempt.tried]))

    def __str__(self) -> str:
        from pairbench.report.attempt import case_lines, closing_lines

        lines = [line for case in self.attempt.cases for line in case_lines(case)]
        return "\n".join([*lines, *closing_lines(self.attempt), *(suite.reason for suite in self.attempt.broken)])


@dataclass(frozen=True, kw_only=True, repr=False)
class Verdicts(Shown):
    """Two sides compared: a verdict for every series, and its likely cause."""

    comparison: "Comparison"
    """All verdicts with what they rest on."""
    notes: tuple[str, ...] = ()
    """What could not be read, or why there was nothing to compare with."""

    @property
    def ok(self) -> bool:
        """Whether there is no regression and no failure."""
        return self.comparison.exit_code() == 0

    @property
    def frame(self) -> "pd.DataFrame":
        """One row a metric of a series: outcome, verdict, change (1.02 for 2 % slower) with its interval, and attribution."""
        import pandas as pd

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
                "change": one.change.estimate if one and one.change else None,
                "change_low": one.change.low if one and one.change else None,
                "change_high": one.change.high if one and one.change else None,
                "reason": one.reason if one else change.reason,
            }
            for change in self.comparison.changes
            for one in change.judgements or (None,)
        ]
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        from pairbench.report.comparison.render import render_comparison

        return "\n".join([render_comparison(self.comparison, "table").rstrip(), *self.notes])


@dataclass(frozen=True, kw_only=True, repr=False)
class SeriesTrend(Shown):
    """The history of one series, with the runs at which it moved."""

    trend: "Trend"
    """Points, levels, moves and the latest verdict."""
    notes: tuple[str, ...] = ()
    """What could not be read."""

    @property
    def frame(self) -> "pd.DataFrame":
        """One row a run, oldest first: its commit, median with its interval in ns, and the speedup over the baseline."""
        import pandas as pd

        rows = [
            {
                **{
                    name: getattr(point.record, name) for name in ("run_id", "started_at", "commit", "branch", "status")
                },
                "p50_ns": point.p50.estimate if point.p50 else None,
                "p50_ns_low": point.p50.low if point.p50 else None,
                "p50_ns_high": point.p50.high if point.p50 else None,
                "p95_ns": point.p95_ns,
                "speedup": point.speedup,
            }
            for point in self.trend.points
        ]
        return pd.DataFrame(rows)

    def plot(self) -> "Figure":
        """Draw latency and speedup over the runs, with levels and moves, as `pairbench trend --output` does."""
        from pairbench.report.charts.series_figure import trend_figure

        return trend_figure(self.trend)

    def __str__(self) -> str:
        from pairbench.report.trend import render_trend

        return "\n".join([render_trend(self.trend, "table").rstrip(), *self.notes])
