"""Search made-up histories for their culprits, beside `git bisect run`'s way, and write the tables of README.md beside this file.

python -m tests.lab.bisect.bench [--write] [--histories 1000] [--seed 2000]
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.lab.bisect.simulate import DOUBLED, LONGER, SHORT, Planted, Search, plain, shipped, told
from tests.lab.page import Rows, rate, show, write

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="put the tables into README.md")
    parser.add_argument("--histories", type=int, default=1000, help="searched in each setting")
    parser.add_argument("--seed", type=int, default=2000, help="of the random numbers")
    options = parser.parse_args()
    tables = show(measured(options.histories, options.seed))
    if options.write:
        write(PAGE, tables)
    return 0


def measured(histories: int, seed: int) -> Iterator[tuple[str, Rows]]:
    for name, planted in (("short", SHORT), ("longer", LONGER)):
        yield (
            name,
            [["way", *_HEAD], *([way, *row(planted, search, histories, seed)] for way, search in SEARCHES.items())],
        )
    harder = [
        [
            f"{planted.latency_us:g} us, {100 * planted.step:+.0f} %, {words}",
            *row(replace(planted, **more), shipped, histories // 2, seed + 1),
        ]
        for planted in (SHORT, LONGER)
        for words, more in HARDER.items()
    ]
    yield "harder", [["history", *_HEAD], *harder]
    outliers = [
        [
            f"{planted.latency_us:g} us, {100 * planted.step:+.0f} %, one in {1 / part:.0f}",
            *row(replace(planted, outliers=part), shipped, histories // 2, seed + 2),
        ]
        for planted in (SHORT, LONGER, DOUBLED)
        for part in OUTLIERS
    ]
    yield "outliers", [["history", *_HEAD], *outliers]


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
    sys.exit(main())
