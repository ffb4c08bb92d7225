import http.client
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from pairbench.errors import UsageError
from pairbench.site.serve import make_server, serve

Ask = Callable[..., http.client.HTTPResponse]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    site = tmp_path / "site"
    (site / "operators").mkdir(parents=True)
    (site / "empty").mkdir()
    for name in ("index.html", "a.js", "a.css", "a.svg", "a.json", "feed.xml", "a.png", "operators/x.html"):
        (site / name).write_text(f"content of {name}")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "site-of-another").mkdir()
    (tmp_path / "site-of-another" / "secret.txt").write_text("secret")
    (site / "link.txt").symlink_to(tmp_path / "secret.txt")
    (site / "linked").symlink_to(tmp_path / "site-of-another")
    os.mkfifo(site / "pipe")
    return site


@pytest.fixture
def server(folder: Path) -> Iterator[ThreadingHTTPServer]:
    with make_server(folder, 0) as one:
        thread = threading.Thread(target=one.serve_forever, args=(0.01,))
        thread.start()
        yield one
        one.shutdown()
        thread.join()


@pytest.fixture
def ask(server: ThreadingHTTPServer) -> Iterator[Ask]:
    connections = []

    def ask(path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
        connections.append(connection)
        connection.putrequest(method, path, skip_host=True)
        for name, value in {"Host": f"127.0.0.1:{server.server_address[1]}", **headers}.items():
            if value:
                connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse()

    yield ask
    for connection in connections:
        connection.close()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/index.html?q=a&sort=-speedup", "text/html; charset=utf-8"),
        ("/operators/x.html", "text/html; charset=utf-8"),
        ("/a.js", "text/javascript; charset=utf-8"),
        ("/a.css", "text/css; charset=utf-8"),
        ("/a.svg", "image/svg+xml"),
        ("/a.json", "application/json"),
        ("/feed.xml", "application/xml"),
        ("/a.png", "image/png"),
    ],
)
def test_files_come_with_their_type_and_are_not_kept(ask: Ask, path: str, kind: str) -> None:
    answer = ask(path)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == kind
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    name = path.partition("?")[0].lstrip("/") or "index.html"
    assert answer.read().decode() == f"content of {name}"


@pytest.mark.parametrize(
    "path",
    [
        *("/missing", "/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/operators/../../secret.txt"),
        *("/../site-of-another/secret.txt", "//etc/passwd", "/..\\secret.txt", "/link.txt", "/linked/secret.txt"),
        *("/operators", "/operators/", "/empty/", "/linked/", "/pipe", "/index.html/", "/%00", f"/{'x' * 5_000}"),
    ],
)
def test_nothing_else_is_served(ask: Ask, path: str) -> None:
    answer = ask(path)
    body = answer.read()
    assert answer.status == 404
    assert b"secret</" not in body and body != b"secret" and b"x.html" not in body
    assert answer.headers["Cache-Control"] == "no-store"


def test_head_and_no_other_method_and_no_list_of_files(ask: Ask, folder: Path) -> None:
    head = ask("/a.js", "HEAD")
    assert head.status == 200 and head.read() == b""
    assert ask("/a.js", "PUT").status == 501
    (folder / "index.html").unlink()
    assert ask("/").status == 404


OURS = ("localhost", "localhost:9", "127.0.0.1", "LocalHost:80")  # `ssh -L 9000:localhost:8000` asks for localhost:9000
FOREIGN = ("", "evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", "[::1", "0")


@pytest.mark.parametrize("host", [*OURS, *FOREIGN])
def test_this_machine_by_any_port_and_no_foreign_name_is_served(ask: Ask, host: str) -> None:
    answer = ask("/", Host=host)
    assert answer.status == (200 if host in OURS else 403)
    assert (b"content of" in answer.read()) is (host in OURS)


def test_a_page_of_another_site_gets_no_permission(ask: Ask) -> None:
    headers = ask("/index.html", Origin="https://evil.example").headers
    assert not [name for name in headers if name.lower().startswith("access-control")]


def test_only_the_loopback_is_bound(server: ThreadingHTTPServer) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"


def test_a_browser_that_hangs_up_is_no_news(
    server: ThreadingHTTPServer, folder: Path, ask: Ask, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "large.js").write_bytes(b" " * 2**24)
    with socket.create_connection(server.server_address) as one:  # type: ignore[arg-type]
        one.sendall(b"GET /large.js HTTP/1.0\r\nHost: localhost\r\n\r\n")
        one.recv(1)
        # Closed with unread data, it resets the connection.
    assert ask("/").status == 200
    assert capfd.readouterr().err == ""


def test_a_connection_that_is_just_being_taken_when_the_server_ends_is_no_news(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What ends the server closes it, while the thread that is to answer has only begun."""
    with make_server(folder, 0) as server, socket.create_connection(server.server_address):  # type: ignore[arg-type]
        request, address = server.get_request()
        server.shutdown_request(request)
        server.process_request_thread(request, address)
    assert capfd.readouterr().err == ""


def test_a_port_in_use_or_out_of_range_and_a_missing_folder_are_sentences(
    server: ThreadingHTTPServer, folder: Path
) -> None:
    port = server.server_address[1]
    with pytest.raises(UsageError, match=f"--port {port} cannot be had on 127.0.0.1: .*in use; name another, or 0"):
        serve(folder, port, pytest.fail)
    with pytest.raises(UsageError, match="--port 70000 cannot be had"):
        serve(folder, 70_000, pytest.fail)
    with pytest.raises(UsageError, match="does not exist"):
        serve(folder / "missing", 0, pytest.fail)


def test_it_says_where_and_ends_on_ctrl_c(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    answers: list[bytes] = []

    def ask_and_interrupt(address: str) -> None:
        connection = http.client.HTTPConnection(address, timeout=10)
        connection.request("GET", "/a.js")
        answers.append(connection.getresponse().read())
        connection.close()
        os.kill(os.getpid(), signal.SIGINT)

    def notify(line: str) -> None:
        asking.append(
            threading.Thread(target=ask_and_interrupt, args=[line.split(" at http://")[1].split("/", maxsplit=1)[0]])
        )
        asking[0].start()

    asking: list[threading.Thread] = []
    try:
        serve(folder, 0, notify)
    except KeyboardInterrupt:
        pytest.fail("Ctrl-C is no end but an error")
    asking[0].join()
    assert answers == [b"content of a.js"] and capfd.readouterr().err == ""
