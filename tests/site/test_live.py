"""`dashboard --live` while a real run goes on: what is measured now, results as they come, and a clean end by Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

ROOT = Path(__file__).parents[2]
SUITE = """
from pairbench import Operator, grid

silu = Operator(
    "silu",
    baseline=lambda x: x * x.sigmoid(),
    variants={"fused": lambda x: x.sigmoid().mul_(x)},
    inputs=lambda make, n: {"x": make.normal(n)},
    cases=grid(n=[1024, 2048, 4096, 8192]),
)
"""

pytestmark = pytest.mark.browser


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_ops.py").write_text(SUITE)
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Return what starts the real command in a folder; a test that fails leaves none of them behind."""
    paths = os.pathsep.join([str(ROOT / "harness"), *filter(None, [os.environ.get("PYTHONPATH")])])
    with ExitStack() as stack:

        def started(*arguments: str) -> "subprocess.Popen[str]":
            one = subprocess.Popen(
                [sys.executable, "-m", "pairbench", *arguments],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": paths, "NO_COLOR": "1"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(one)
            stack.callback(one.kill)
            return one

        yield started


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_page() as one:
        yield one


def test_a_run_is_seen_while_it_goes_on(page: Page, start: Start) -> None:
    server = start("dashboard", "--live", "--port", "0", "--store", "store", "--output", "site")
    assert server.stderr is not None
    said: list[str] = []
    while not (found := re.search(r"http://127\.0\.0\.1:\d+/", said[-1] if said else "")):
        line = server.stderr.readline()
        assert line, "".join(said)
        said.append(line)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(found[0])
    now = page.get_by_role("region", name="What is measured now")
    expect(now).to_be_hidden()
    expect(page.get_by_text("The store holds no run.")).to_be_visible()

    measure = ("run", "my_ops.py", "--device", "cpu", "--store", "store", "--rounds")
    run = start(*measure, "6")
    expect(now).to_contain_text(re.compile(r"\d+ of 32 steps"), timeout=60_000)
    expect(now.locator("code")).to_contain_text("silu[n=")
    expect(now.get_by_role("progressbar")).to_be_visible()
    # The page comes again by itself, but not while somebody types. The server gives way to whatever else runs, so this may take until the run's end.
    expect(page.get_by_role("rowheader", name="silu")).to_be_visible(timeout=120_000)
    page.get_by_role("searchbox").fill("silu")
    run.communicate(timeout=120)
    again = start(*measure, "1")
    again.communicate(timeout=120)
    assert (run.returncode, again.returncode) == (0, 0)
    expect(page.get_by_text("There are new results.")).to_be_visible(timeout=60_000)
    expect(page.get_by_role("searchbox")).to_have_value("silu")
    expect(now).to_be_hidden()
    page.get_by_role("button", name="Show them").click()
    expect(page.get_by_role("searchbox")).to_have_value("silu")
    assert not errors
    page.close()

    server.send_signal(signal.SIGINT)
    _, rest = server.communicate(timeout=30)
    assert (server.returncode, rest) == (130, ""), "as whatever is interrupted ends"
