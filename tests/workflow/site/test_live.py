import http.client
import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pairbench.site import serve
from pairbench.site.serve import EVENTS, Board, LiveHandler, make_server
from pairbench.workflow.progress import DeviceNow, LiveRun

RUN = LiveRun(
    run_id="run", store="/store", began=0.0, devices=(DeviceNow(device="cpu", stage="time", case="silu[n=1]", total=4),)
)


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture
def port(tmp_path: Path, board: Board, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(serve, "_PING_S", 0.05)  # a stream notices so soon that it was closed
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "index.html").write_text("<p>page</p>")
    (folder / "a.js").write_text("1")
    with make_server(folder, 0, handler=partial(LiveHandler, board=board)) as one:
        one.daemon_threads = False  # waited for at the end: another test may look for threads that are left
        thread = threading.Thread(target=one.serve_forever, args=(0.01,))
        thread.start()
        yield one.server_address[1]
        one.shutdown()
        thread.join()


def ask(port: int, path: str, host: str = "127.0.0.1", method: str = "GET") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={"Host": host})
    return connection.getresponse()


@pytest.mark.parametrize("path", ["/", "/index.html"])
def test_a_page_listens_and_its_file_does_not(port: int, path: str, tmp_path: Path) -> None:
    answer = ask(port, path)
    text = answer.read().decode()
    assert text.startswith("<p>page</p>") and "/assets/live.js" in text
    assert answer.getheader("Content-Length") == str(len(text)) and answer.getheader("Cache-Control") == "no-store"
    assert (tmp_path / "site" / "index.html").read_text() == "<p>page</p>"
    assert ask(port, "/a.js").read() == b"1"
    assert ask(port, path, method="HEAD").getheader("Content-Length") == str(len(text))


@pytest.mark.parametrize(
    ("path", "host"),
    [("/", "evil.example"), (EVENTS, "evil.example"), ("/none.html", "localhost"), ("//[", "localhost")],
)
def test_what_is_refused(port: int, path: str, host: str) -> None:
    answer = ask(port, path, host)
    assert answer.status == (404 if host == "localhost" else 403)
    assert len(answer.read()) == int(answer.getheader("Content-Length") or -1)


def event(stream: http.client.HTTPResponse) -> tuple[str, object]:
    """Return the next event of a stream, and what it says."""
    lines = []
    while line := stream.readline().decode().strip():
        lines.append(line)
    if lines[0].startswith(":"):
        return event(stream)
    name, data = (line.partition(": ")[2] for line in lines)
    return name, json.loads(data)


def test_the_stream_tells_runs_and_builds(port: int, board: Board) -> None:
    board.tell_runs((RUN,))
    stream = ask(port, EVENTS)
    assert stream.getheader("Content-Type") == "text/event-stream; charset=utf-8"
    name, runs = event(stream)
    assert name == "runs" and isinstance(runs, list)
    assert (runs[0]["run"], runs[0]["devices"][0]["case"], runs[0]["left"]) == ("run", "silu[n=1]", None)
    board.tell_build(("index.html",))
    assert event(stream) == ("built", ["index.html"])
    board.tell_runs(())
    assert event(stream) == ("runs", [])
    stream.close()


def test_a_page_that_was_away_hears_of_all_builds_since() -> None:
    board = Board()
    for name in ("a", "b", "a"):
        board.tell_build((name,))
    assert board.after(1, 0.0)[2] == ("b", "a")
    assert board.after(board.version, 0.0)[2] == ()


def test_what_was_built_before_a_page_listens_is_told(port: int, board: Board) -> None:
    board.tell_build(("a.js",))
    page = ask(port, "/").read().decode()
    board.tell_build(("index.html",))
    found = re.search(r'data-seen="(\d+)"', page)
    assert found
    stream = ask(port, f"{EVENTS}?seen={found[1]}")
    assert [event(stream), event(stream)] == [("runs", []), ("built", ["index.html"])]
    stream.close()


@pytest.mark.parametrize("seen", ["", "?seen=", "?seen=two", "?seen=99", f"?seen={'9' * 5000}"])
def test_a_page_that_says_nothing_sensible_is_told_what_comes(port: int, board: Board, seen: str) -> None:
    board.tell_build(("a.js",))
    stream = ask(port, EVENTS + seen)
    assert event(stream) == ("runs", [])
    board.tell_build(("index.html",))
    assert event(stream) == ("built", ["index.html"])
    stream.close()
