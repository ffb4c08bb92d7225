"""Tables of an experiment: printed as they are measured, and put between their markers in the page beside it."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from scipy import stats

Rows = list[list[str]]
Tables = Iterable[tuple[str, Rows]]


def make(page: Path, measured: Callable[[int, int], Tables], *, what: str, number: int, seed: int) -> int:
    """Be the command of an experiment that draws random numbers: `measured` takes how many of `what`, and the seed of what the page shows."""
    parser = argparse.ArgumentParser(description=f"Make the tables of {page}.")
    parser.add_argument("--write", action="store_true", help="put the tables into README.md")
    parser.add_argument(f"--{what}", dest="number", type=int, default=number, help="in each setting")
    parser.add_argument("--seed", type=int, default=seed, help="of the random numbers")
    options = parser.parse_args()
    if options.number < 8:
        parser.error(f"--{what}: {options.number} is too few to tell a rate, expected 8 or more")
    if options.write and options.seed != seed:
        parser.error("--write: the page shows another seed; leave out --seed or leave out --write")
    tables = show(measured(options.number, options.seed))
    if options.write:
        write(page, tables)
    return 0


def show(tables: Tables) -> dict[str, str]:
    """Print each table as soon as it is there, and return all as Markdown, by name."""
    shown = {}
    for name, rows in tables:
        shown[name] = markdown(rows)
        sys.stdout.write(f"## {name}\n\n{shown[name]}\n\n")
        sys.stdout.flush()
    return shown


def write(page: Path, tables: dict[str, str]) -> None:
    page.write_text(filled(page.read_text(encoding="utf-8"), tables), encoding="utf-8")


def filled(page: str, tables: dict[str, str]) -> str:
    """Return a page with each table between its markers; a marker without a new table keeps the old one."""
    for name, table in tables.items():
        begin, end = f"<!-- table: {name} -->", "<!-- end -->"
        if page.count(begin) != 1:
            raise ValueError(f"the page has {page.count(begin)} markers {begin}, expected one")
        before, _, after = page.partition(begin)
        page = f"{before}{begin}\n{table}\n{end}{after.partition(end)[2]}"
    return page


def tables_in(page: str) -> dict[str, str]:
    return dict(re.findall(r"<!-- table: (.+?) -->\n(.*?)<!-- end -->", page, re.DOTALL))


def markdown(rows: Rows) -> str:
    head, *body = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *body])


def rate(seen: int, tries: int) -> str:
    """Return a share in percent with its 95 % interval (Clopper and Pearson 1934)."""
    low, high = stats.binomtest(seen, tries).proportion_ci(method="exact")
    return f"{100 * seen / tries:.2f} ({100 * low:.2f} to {100 * high:.2f})"
