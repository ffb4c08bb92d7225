"""A browser, and sites made by the real command for it to open.

These tests run by themselves, `pytest -m browser`, and fail where there is no browser; every other run leaves them out.
PAIRBENCH_CHROMIUM names the browser; else one on the PATH, or Playwright's own, is taken. PAIRBENCH_SCREENSHOTS names a folder
to keep pictures in.
"""

import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from filelock import FileLock

from tests.in_process import call_main
from tests.site import stores
from tests.site.chromium import ARGUMENTS, find_chromium
from tests.site.watch import Opener, watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pass over files that import what is not installed, unless they were asked for: then they fail, and say so."""
    there = importlib.util.find_spec("playwright") and importlib.util.find_spec("axe_playwright_python")
    return True if not there and not _wants_browser(config) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _wants_browser(config):
        return
    apart = [item for item in items if item.get_closest_marker("browser")]
    items[:] = [item for item in items if item not in apart]
    config.hook.pytest_deselected(items=apart)


def _wants_browser(config: pytest.Config) -> bool:
    words: list[str] = config.option.markexpr.replace("(", " ").replace(")", " ").split()
    return any(word == "browser" and words[place - 1 : place] != ["not"] for place, word in enumerate(words))


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """Start the browser; without one the test fails."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=15_000)  # machines of CI are slow and shared
    with sync_playwright() as playwright:
        try:
            path = find_chromium(playwright.chromium.executable_path)
        except FileNotFoundError as error:
            pytest.fail(str(error))
        one = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield one
        one.close()


@dataclass(frozen=True)
class Site:
    folder: Path
    store: Path
    stdout: str
    stderr: str


Build = Callable[..., Site]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Make a site with the real command, from a store that a function writes."""

    def make(write: Callable[[Path], None], *options: str, inside: str = "") -> Site:
        around = tmp_path_factory.mktemp(write.__name__)
        store, folder = around / "store", around / "site"
        store.mkdir()
        write(store)
        command = ("dashboard", "--store", str(store / inside), "--output", str(folder))
        said = call_main(store if inside else around, *command, *options)
        assert said.code == 0, said.err
        return Site(folder, store, said.out, said.err)

    return make


Shared = Callable[[Callable[[], Site], str], Site]


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """Make a site that tests of several files read: once for all processes of pytest, which then all have the same."""
    place = tmp_path_factory.getbasetemp()
    place = place.parent if "PYTEST_XDIST_WORKER" in os.environ else place

    def once(make: Callable[[], Site], name: str) -> Site:
        file = place / f"{name}.site.json"
        with FileLock(f"{file}.lock"):
            if not file.exists():
                made = make()
                file.write_text(json.dumps([str(made.folder), str(made.store), made.stdout, made.stderr]))
            folder, store, *said = json.loads(file.read_text())
        return Site(Path(folder), Path(store), *said)

    return once


@pytest.fixture(scope="session")
def eventful(build: Build, shared: Shared) -> Site:
    """Return the site of a store in which much has happened."""

    def eventful(store: Path) -> None:
        stores.eventful(store)
        stores.accept_step(store)

    return shared(lambda: build(eventful, "--repository", stores.REPOSITORY), "eventful")


@pytest.fixture(scope="session")
def hostile(build: Build, shared: Shared) -> Site:
    repository = f"https://example.org/{stores.HOSTILE[1]}"
    return shared(lambda: build(stores.hostile, "--repository", repository), "hostile")


@pytest.fixture(scope="session")
def single(build: Build, shared: Shared) -> Site:
    return shared(lambda: build(stores.single), "single")


@pytest.fixture(scope="session")
def failures(build: Build, shared: Shared) -> Site:
    return shared(lambda: build(stores.failures), "failures")


@pytest.fixture(scope="session")
def empty(build: Build, shared: Shared) -> Site:
    def nothing(store: Path) -> None:
        """Leave the store empty."""

    return shared(lambda: build(nothing), "empty")


Browse = Callable[..., Opener]


@pytest.fixture
def browse(browser: "Browser") -> Iterator[Browse]:
    """Return a function that gives a site's opener of pages; at the end nothing forbidden may have happened on them."""
    with ExitStack() as stack:

        def of(site: Site, **options: Any) -> Opener:
            return stack.enter_context(watched(browser, site.folder, **options))

        yield of


@pytest.fixture
def see(browse: Browse, made: Site) -> Opener:
    """Return what opens the pages of the site that a file of tests makes for itself, as its fixture `made`."""
    return browse(made)


@pytest.fixture
def look(browse: Browse, eventful: Site) -> Opener:
    """Return what opens the pages of the eventful site, with all charts drawn as they are for a printer."""
    opener = browse(eventful)

    def whole(*path: str) -> "Page":
        page = opener(*path)
        page.evaluate("() => window.dispatchEvent(new Event('beforeprint'))")
        return page

    return whole


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wanted = os.environ.get("PAIRBENCH_SCREENSHOTS")
    folder = Path(wanted) if wanted else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
