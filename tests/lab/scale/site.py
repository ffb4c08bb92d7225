"""Makes a store of 200 runs of 2,000 series, builds its site, adds one run and builds again, and opens the overview.

    python -m tests.lab.scale.site [--runs 200] [--series 2000] [--output FOLDER]

`nox -s scale` runs it. Time and memory are of the whole process of `pairbench dashboard`. The overview is opened from disk in an
installed Chromium; it counts as interactive when a filter that is typed as soon as the page is there has been applied. Exits with 1
where a limit is passed.
"""

import argparse
import contextlib
import resource
import sys
import tempfile
import time
from pathlib import Path

from tests.lab.scale.bench import best, judge, notify, run
from tests.lab.scale.big_store import write_store

BUILD_S = 60.0
NIGHT_S = 30.0  # two cores; hosts differ by a factor of two
UNCHANGED_S = 4.0
MEMORY_GB = 2.0
PAGE_MB = 3.0  # an operator's page with its data, without the scripts that all pages share
INTERACTIVE_S = 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--series", type=int, default=2000)
    parser.add_argument("--output", type=Path, help="where the store and the site stay")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = given.output or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        return measure(folder, runs=given.runs, series=given.series)


def measure(folder: Path, *, runs: int, series: int) -> int:
    store, site = folder / "store", folder / "site"
    files = write_store(store, runs=runs + 1, series=series, slower={runs // 4: 1.03})
    for _ in range(runs):
        next(files)
    first = build(store, site)
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*") if path.is_file()}
    for _ in files:
        pass
    second, unchanged = build(store, site), build(store, site)
    kept = sum(path.exists() and path.stat().st_mtime_ns == moment for path, moment in before.items())
    pages = sorted(
        sum(file.stat().st_size for file in (page, page.with_suffix(".js"))) for page in site.glob("operators/*.html")
    )
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    rows = [
        ("first build", first, "s", BUILD_S),
        ("build after one more run", second, "s", NIGHT_S),
        ("build after no change", unchanged, "s", UNCHANGED_S),
        ("peak memory", memory, "GB", MEMORY_GB),
        ("largest operator page", pages[-1] / 1e6, "MB", PAGE_MB),
        ("overview interactive", interactive(site / "index.html"), "s", INTERACTIVE_S),
    ]
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    notify(f"{runs:,} runs of {series:,} series; {len(before):,} files, {size / 1e6:.0f} MB")
    notify(f"one more run left {kept:,} of {len(before):,} files as they were")
    return judge(rows)


def build(store: Path, site: Path) -> float:
    return best(lambda: run("-m", "pairbench", "dashboard", "--store", str(store), "--output", str(site)), 1)


def interactive(page: Path) -> float:
    """Return the seconds from asking for the page until its table has been filtered; the best of three."""
    from playwright.sync_api import sync_playwright

    from tests.site.chromium import ARGUMENTS, WHOLE, find_chromium

    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(names=WHOLE), args=ARGUMENTS)
        for _ in range(3):
            tab = browser.new_page()
            began = time.perf_counter()
            tab.goto(page.as_uri())
            tab.get_by_role("searchbox").first.fill("operator_7 ")
            tab.wait_for_function("document.querySelectorAll('tbody[data-item]:not([hidden])').length < 40")
            found.append(time.perf_counter() - began)
            tab.close()
        browser.close()
    return min(found)


if __name__ == "__main__":
    sys.exit(main())
