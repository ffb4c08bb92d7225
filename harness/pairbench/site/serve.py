"""Serves the site's folder to this machine's own browser, and to nobody else.

While runs write to the store, the site is built again after each case, and pages show what is being measured now.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pairbench.config import Config
from pairbench.errors import PairbenchError, UsageError
from pairbench.site.build import SiteOptions, build_site
from pairbench.store.location import fingerprint
from pairbench.workflow.progress import LiveRun, live_runs
from pairbench.workflow.setup import store_of

_ADDRESS = "127.0.0.1"
_HOSTS = (_ADDRESS, "localhost")


def serve(
    folder: Path, port: int, notify: Callable[[str], None], *, handler: "Callable[..., SiteHandler] | None" = None
) -> None:
    """Serve a folder until Ctrl-C, and nothing outside it; port 0 takes a free one, and `notify` gets the address."""
    with make_server(folder, port, handler=handler) as server:
        notify(f"serving {folder} at http://{_ADDRESS}:{server.server_address[1]}/ (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


def make_server(folder: Path, port: int, *, handler: "Callable[..., SiteHandler] | None" = None) -> ThreadingHTTPServer:
    """Return a server that is bound and does not answer yet; raise UsageError where folder or port cannot be had."""
    if not folder.is_dir():
        raise UsageError(f"folder {str(folder)!r} does not exist, expected the one that the site was written to")
    try:
        return _Server((_ADDRESS, port), partial(handler or SiteHandler, directory=str(folder.resolve())))
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        advice = "name another, or 0 for one that is free"
        raise UsageError(f"--port {port} cannot be had on {_ADDRESS}: {why}; {advice}") from error


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        # No news: a browser hangs up in the middle when its page is closed, and Ctrl-C closes a connection that no thread answers yet.
        if not isinstance(sys.exception(), ConnectionError) and request.fileno() >= 0:
            super().handle_error(request, client_address)


class SiteHandler(SimpleHTTPRequestHandler):
    # Given here because the machine's own table may say otherwise, and a browser refuses a script of another type.
    extensions_map = {  # noqa: RUF012 (so declared by the base)
        "": "application/octet-stream",
        ".css": "text/css; charset=utf-8",
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".json": "application/json",
        ".png": "image/png",
        ".svg": "image/svg+xml",
        ".xml": "application/xml",
    }

    def send_head(self) -> Any:
        # A page of another site can point a name of its own at 127.0.0.1 and then read what is served there; its
        # requests still bear that name. The port is not looked at: `ssh -L` changes it.
        if not self.is_from_here():
            self.send_error(HTTPStatus.FORBIDDEN, explain="This server answers to 127.0.0.1 and localhost only")
            return None
        if not self.is_served(self.translate_path(self.path)):
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        return super().send_head()

    def is_from_here(self) -> bool:
        with contextlib.suppress(ValueError):
            return urlsplit(f"//{self.headers.get('Host', '')}").hostname in _HOSTS
        return False

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")  # a browser would show the site as it was before
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base's name)
        """Print nothing: the address stays in sight."""

    def is_served(self, path: str) -> bool:
        """Return whether a path is a file of the folder, or the folder itself with an index: folders are never listed."""
        root = Path(self.directory)
        try:
            target = Path(path).resolve()
            target = (root / "index.html").resolve() if target == root else target
            return target.is_file() and target.is_relative_to(root)  # a link may lead outside
        except (OSError, ValueError):  # a name that no file can have
            return False


EVENTS = "/live/events"  # address of the stream of events; no file of a site has such a name
# The page says how new it is when it listens, for a build may end between the two.
_SCRIPT = '<script src="/assets/live.js" data-seen="{seen}"></script>\n'
_EVERY_S, _FAR_S = 0.3, 5.0  # seconds between two looks at a store: at a folder, and at one that is elsewhere
_REST = 4.0  # seconds of rest after a second of a core's time: a run on this machine needs its cores more
_PING_S = 10.0
_KEPT = 50  # number of builds whose files are remembered for a page that was away
_NICE = 19


@dataclass(kw_only=True)
class Board:
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _version: int = 0
    _runs: str = "[]"
    _builds: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)

    def tell_runs(self, runs: tuple[LiveRun, ...]) -> None:
        shown = []
        for run in runs:
            left = None if run.left_s is None else round(run.left_s)
            shown.append({"run": run.run_id, "left": left, "devices": [vars(one) for one in run.devices]})
        with self._changed:
            if (text := json.dumps(shown)) != self._runs:
                self._runs = text
                self._version += 1
                self._changed.notify_all()

    def tell_build(self, written: tuple[str, ...]) -> None:
        with self._changed:
            self._version += 1
            self._builds = [*self._builds, (self._version, written)][-_KEPT:]
            self._changed.notify_all()

    @property
    def version(self) -> int:
        with self._changed:
            return self._version

    def after(self, seen: int, timeout: float) -> tuple[int, str, tuple[str, ...]]:
        """Wait for news after a number, `timeout` seconds at most; return their number, the runs as JSON, and the files written since."""
        with self._changed:
            self._changed.wait_for(lambda: self._version > seen, timeout)
            files = {name: None for version, written in self._builds if version > seen for name in written}
            return self._version, self._runs, tuple(files)


def serve_live(config: Config, options: SiteOptions, port: int, notify: Callable[[str], None], seen: object) -> None:
    """Serve the site of a store until Ctrl-C, built again whenever the store has changed."""
    board, stop, store = Board(), threading.Event(), store_of(config)
    os.nice(_NICE)  # whatever is measured on this machine goes first

    def watch() -> None:
        built, rested, failed = seen, 0.0, ""
        while not stop.wait(_EVERY_S):
            board.tell_runs(live_runs(store.address))
            if time.monotonic() < rested:
                continue
            busy = time.process_time()
            try:
                present = fingerprint(store)
                if present != built:
                    board.tell_build(build_site(config, options).written)
                built, failed = present, ""
            except PairbenchError as error:  # a file that has just been replaced is there the next time
                if str(error) != failed:
                    failed = str(error)
                    notify(failed)
            every = _EVERY_S if store.is_local else _FAR_S
            rested = time.monotonic() + max(every, _REST * (time.process_time() - busy))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        serve(options.folder, port, notify, handler=partial(LiveHandler, board=board))
    finally:
        stop.set()
        watcher.join()


class LiveHandler(SiteHandler):
    """Answers with the files of the site, its pages with a script that listens, and with the stream of events."""

    def __init__(self, *args: Any, board: Board, **more: Any) -> None:
        self._board = board
        super().__init__(*args, **more)

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path != EVENTS:
            super().do_GET()
        elif not self.is_from_here():
            self.send_error(HTTPStatus.FORBIDDEN)
        else:
            self._stream(parse_qs(query).get("seen", [""])[0])

    def send_head(self) -> Any:
        """Answer with a file of the folder; a page gets the script, which no page on disk has."""
        seen = self._board.version  # before the page is read: a build may replace it meanwhile
        path = Path(self.translate_path(self.path))
        path = path / "index.html" if path.is_dir() else path
        if path.suffix != ".html" or not self.is_from_here() or not self.is_served(str(path)):
            return super().send_head()
        try:
            content = path.read_bytes() + _SCRIPT.format(seen=seen).encode()
        except OSError:  # it went while the site was built again
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return BytesIO(content)

    def _stream(self, of_page: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.end_headers()
        seen, told = self._board.version, ""
        with contextlib.suppress(ValueError):  # a page that does not say what it has seen is taken for new
            seen = min(int(of_page), seen)  # as is one of a server that ran here before
        while True:
            version, runs, files = self._board.after(seen, _PING_S if told else 0.0)
            news = [f"event: runs\ndata: {runs}\n\n"] if runs != told else []
            news += [f"event: built\ndata: {json.dumps(files)}\n\n"] if files else []
            try:
                self.wfile.write("".join(news or [": still here\n\n"]).encode())
                self.wfile.flush()
            except OSError:  # the page was closed
                return
            seen, told = version, runs
