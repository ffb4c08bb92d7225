"""Watches pages for what must never happen: an error, a dialog, or a request for anything outside the site's folder."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, ConsoleMessage, Dialog, Page, Request, Route


class Watch:
    """What was seen on the pages of one context."""

    def __init__(self, context: "BrowserContext", folder: Path) -> None:
        """Watch all pages that the context opens from now on; what leaves the folder is noted and aborted."""
        self.folder = folder.resolve()
        self.seen: list[str] = []
        context.route("**/*", self._route)
        context.on("request", self._request)
        context.on("page", self._page)

    def inside(self, url: str) -> bool:
        parts = urlsplit(url)
        if parts.scheme in ("data", "blob", "about"):
            return True
        path = Path(unquote(parts.path))
        return parts.scheme == "file" and not parts.netloc and path.resolve().is_relative_to(self.folder)

    def _page(self, page: "Page") -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.seen.append(f"error on {page.url}: {error}"))
        page.on("dialog", self._dialog)

    def _console(self, message: "ConsoleMessage") -> None:
        if message.type in ("error", "warning"):
            self.seen.append(f"console {message.type}: {message.text} ({message.location})")

    def _dialog(self, dialog: "Dialog") -> None:
        self.seen.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: "Request") -> None:
        if not self.inside(request.url):
            self.seen.append(f"request for {request.url[:500]}")

    def _route(self, route: "Route") -> None:
        if self.inside(route.request.url):
            route.continue_()
        else:
            route.abort()


Opener = Callable[..., "Page"]


@contextmanager
def watched(browser: Any, folder: Path, **options: Any) -> Iterator[Opener]:
    """Yield a function that opens a page of a site by its path; at the end nothing forbidden may have been seen."""
    context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce", **options})
    context.set_default_timeout(15_000)
    watch = Watch(context, folder)

    def open_page(path: str = "index.html") -> "Page":
        page: Page = context.new_page()
        page.goto(address(folder, path))
        return page

    try:
        yield open_page
        assert not watch.seen, "\n".join(watch.seen)
    finally:
        context.close()


def address(folder: Path, path: str) -> str:
    """Return the file:// address of a page; what follows # or ? in its path stays so."""
    name, mark, rest = path.partition("?") if "?" in path else path.partition("#")
    return f"{(folder / name).resolve().as_uri()}{mark}{rest}"
