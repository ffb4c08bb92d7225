"""Search made-up histories for their culprits, beside `git bisect run`'s way, and write the tables of README.md beside this file.

python -m tests.lab.bisect.bench [--write] [--histories 1000] [--seed 2000]
"""

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.lab.bisect.simulate import DOUBLED, LONGER, SHORT, Planted, Search, plain, shipped, told
from tests.lab.page import Rows, make, rate

PAGE = Path(__file__).with_name("README.md")
SEARCHES: dict[str, Search] = {
    "`git bisect run`, 5 rounds a step": plain(5),
    "`git bisect run`, 15 rounds a step": plain(15),
    "pairbench, if it knew step and spread": told,
    "pairbench": shipped,
}
HARDER: dict[str, dict[str, Any]] = {
    "as above": {},
    "one commit in ten cannot be measured": {"unmeasurable": 0.1},
    "one in ten changes the hash, the culprit too": {"changing": 0.1},
    "one in ten changes the hash, the culprit does not": {"changing": 0.1, "culprit_changes": False},
    "heavy tails (t with 4 df)": {"freedom": 4.0},
    "16 commits": {"commits": 16},
}
OUTLIERS = (0.01, 0.02, 0.05)
_HEAD = [
    "named a commit, %",
    "and that was right, %",
    "rounds of commits: median",
    "mean",
    "90 % below",
    "rounds of the ends: mean",
]


def measured(histories: int, seed: int) -> Iterator[tuple[str, Rows]]:
    for name, planted in (("short", SHORT), ("longer", LONGER)):
        ways = [[way, *row(planted, search, histories, seed)] for way, search in SEARCHES.items()]
        yield name, [["way", *_HEAD], *ways]
    outliers = {f"one in {1 / part:.0f}": {"outliers": part} for part in OUTLIERS}
    for number, (name, several, changes) in enumerate(
        (("harder", (SHORT, LONGER), HARDER), ("outliers", (SHORT, LONGER, DOUBLED), outliers)), start=1
    ):
        rows = [["history", *_HEAD]]
        for planted, (words, more) in itertools.product(several, changes.items()):
            history = f"{planted.latency_us:g} us, {100 * planted.step:+.0f} %, {words}"
            rows.append([history, *row(replace(planted, **more), shipped, histories // 2, seed + number)])
        yield name, rows


def row(planted: Planted, search: Search, histories: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    found = [search(planted, rng) for _ in range(histories)]
    named = [one for one in found if one.sure]
    begun = np.array([one.rounds for one in found if one.confirmed])
    return [
        f"{100 * len(named) / histories:.1f}",
        rate(sum(one.right for one in named), len(named)),
        f"{np.median(begun):.0f}",
        f"{begun.mean():.1f}",
        f"{np.percentile(begun, 90):.0f}",
        f"{np.mean([one.confirming for one in found]):.0f}",
    ]


if __name__ == "__main__":
    sys.exit(make(PAGE, measured, what="histories", number=1000, seed=2000))
