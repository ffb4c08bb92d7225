"""What `pairbench backfill` prints: a row for each commit that it came to."""

from collections.abc import Sequence

from pairbench.analyze.history.commits import Filled, Skipped
from pairbench.model.plain import plain
from pairbench.report.render import render_rows, to_json


def render_backfilled(filled: Sequence[Filled], skipped: Sequence[Skipped], output: str) -> str:
    """Return what became of the commits in one of the formats."""
    if output == "json":
        return to_json({"filled": [plain(one) for one in filled], "skipped": [plain(one) for one in skipped]})
    every: list[Filled | Skipped] = [*filled, *skipped]
    rows = [
        {
            "commit": one.commit.sha[:10],
            "date": one.commit.committed_at[:10],
            "subject": one.commit.subject,
            "records": one.records if isinstance(one, Filled) else None,
            "run": _run(one),
        }
        for one in sorted(every, key=lambda one: one.commit.committed_at)
    ]
    return render_rows("commits", rows, output)


def _run(one: Filled | Skipped) -> str:
    if isinstance(one, Skipped):
        return f"skipped: {one.reason}{f' (log: {one.log})' if one.log else ''}"
    return one.run_id or "was there"
