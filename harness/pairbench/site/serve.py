"""Serves the site's folder to this machine's own browser, and to nobody else."""

import sys
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pairbench.errors import UsageError

_ADDRESS = "127.0.0.1"
_HOSTS = (_ADDRESS, "localhost")


def serve(
    folder: Path, port: int, notify: Callable[[str], None], *, handler: "Callable[..., SiteHandler] | None" = None
) -> None:
    """Serve a folder until Ctrl-C.

    Args:
        folder: What is served; nothing outside it is, whatever is asked for.
        port: 0 takes one that is free.
        notify: Is told the address.
        handler: Makes what answers a request; what serves files alone where not given.

    Raises:
        UsageError: there is no such folder, or the port cannot be had.
    """
    with make_server(folder, port, handler=handler) as server:
        notify(f"serving {folder} at http://{_ADDRESS}:{server.server_address[1]}/ (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


def make_server(folder: Path, port: int, *, handler: "Callable[..., SiteHandler] | None" = None) -> ThreadingHTTPServer:
    """Return a server that is bound and does not answer yet.

    Raises:
        UsageError: as `serve` does.
    """
    if not folder.is_dir():
        raise UsageError(f"folder {str(folder)!r} does not exist, expected the one that the site was written to")
    try:
        return _Server((_ADDRESS, port), partial(handler or SiteHandler, directory=str(folder.resolve())))
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"--port {port} cannot be had on {_ADDRESS}: {why}; name another, or 0 for one that is free"
        ) from error


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        # No news: a browser hangs up in the middle when its page is closed, and Ctrl-C closes a connection that no thread answers yet.
        if not isinstance(sys.exception(), ConnectionError) and request.fileno() >= 0:
            super().handle_error(request, client_address)


class SiteHandler(SimpleHTTPRequestHandler):
    """Answers with the files of one folder, to browsers of this machine."""

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
        """Answer with a file of the folder, or refuse."""
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
        """Tell whether the request was made to this machine by one of its own names."""
        return _is_local(self.headers.get("Host", ""))

    def end_headers(self) -> None:
        """Add what keeps a browser from showing the site as it was before."""
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base's name)
        """Say nothing: the address stays in sight."""

    def is_served(self, path: str) -> bool:
        """Tell whether it is a file of the folder, or the folder itself with an index: no folder is ever listed."""
        root = Path(self.directory)
        try:
            target = Path(path).resolve()
            target = (root / "index.html").resolve() if target == root else target
            return target.is_file() and target.is_relative_to(root)  # a link may lead outside
        except (OSError, ValueError):  # a name that no file can have
            return False


def _is_local(host: str) -> bool:
    try:
        return urlsplit(f"//{host}").hostname in _HOSTS
    except ValueError:
        return False
