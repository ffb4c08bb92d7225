"""The watch itself: each thing that must never happen is seen when it does."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.site.watch import watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

FORBIDDEN = {
    "another site's script": (
        "<script src='https://example.org/x.js'></script>",
        "request for https://example.org/x.js",
    ),
    "another site's picture": ("<img src='http://127.0.0.1:9/x.png' alt=''>", "request for http://127.0.0.1:9/x.png"),
    "a file outside": ("<img src='../outside.svg' alt=''>", "request for file://.*/outside.svg"),
    "another site in a frame": ("<iframe src='https://example.org/'></iframe>", "request for https://example.org/"),
    "fetch": ("<script>fetch('https://example.org/').catch(() => 0)</script>", "request for https://example.org/"),
    "a file that is not there": ("<script src='missing.js'></script>", "ERR_FILE_NOT_FOUND"),
    "an error": ("<script>nothing.here</script>", "nothing is not defined"),
    "a promise that fails": ("<script>Promise.reject(new Error('broken'))</script>", "broken"),
    "an error that is only said": ("<script>console.error('said')</script>", "console error: said"),
    "a dialog": ("<script>alert('boo')</script>", "dialog: boo"),
}
"""What a page does -> its markup, and what is seen of it."""


def visit(browser: "Browser", folder: Path, body: str) -> None:
    (folder / "site").mkdir()
    (folder / "outside.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (folder / "site" / "own.js").write_text("document.title = 'ran'")
    (folder / "site" / "index.html").write_text(f"<!doctype html><title>x</title><script src='own.js'></script>{body}")
    with watched(browser, folder / "site") as look:
        page = look()
        page.wait_for_load_state("networkidle")
        assert page.title() == "ran"


def test_a_page_that_keeps_to_itself_passes(browser: "Browser", tmp_path: Path) -> None:
    visit(browser, tmp_path, "<img alt='' src='data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAAC'>")


@pytest.mark.parametrize(("body", "seen"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_what_is_forbidden_is_seen(browser: "Browser", tmp_path: Path, body: str, seen: str) -> None:
    with pytest.raises(AssertionError, match=seen):
        visit(browser, tmp_path, body)
