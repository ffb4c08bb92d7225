import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from pairbench.errors import StoreFailedError, UsageError
from pairbench.site.build import MANIFEST, publish, upload
from pairbench.site.paths import File
from pairbench.store.location import StoreLocation
from pairbench.workflow.git import web_address

SITE = [File(path="index.html", content=b"one"), File(path="runs/a.html", content=b"two")]


def test_a_second_build_writes_only_what_changed_and_removes_what_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "site"
    assert publish(folder, SITE).written == ("index.html", "runs/a.html")
    before = (folder / "index.html").stat()
    done = publish(folder, [SITE[0], File(path="runs/b.html", content=b"three")])
    assert (done.written, done.removed, done.files) == (("runs/b.html",), ("runs/a.html",), 2)
    after = (folder / "index.html").stat()
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)
    assert sorted(path.name for path in folder.rglob("*")) == [MANIFEST, "b.html", "index.html", "runs"]
    assert publish(folder, [SITE[0], File(path="runs/b.html", content=b"three")]).written == ()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match=r"holds 'thesis.tex' and no site"):
        publish(tmp_path, SITE)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(UsageError, match="is a file"):
        publish(tmp_path / "thesis.tex", SITE)


@pytest.mark.parametrize("path", ["../out.html", "/tmp/out.html", "a/../../out.html", "", "a\0b"])
def test_nothing_is_written_outside_the_folder(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError, match="no file inside"):
        publish(tmp_path / "site", [File(path=path, content=b"x")])
    assert not (tmp_path / "out.html").exists()


def interrupted(error: BaseException) -> Iterator[File]:
    yield File(path="index.html", content=b"another")
    yield File(path="runs/b.html", content=b"new")
    raise error


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt("Input/output error")])
def test_a_build_that_does_not_come_to_its_end_leaves_the_site_as_it_was_and_can_be_done_again(
    tmp_path: Path, error: BaseException
) -> None:
    folder = tmp_path / "site"
    with pytest.raises((StoreFailedError, KeyboardInterrupt), match="Input/output error") as raised:
        publish(folder, interrupted(error))
    # A store that fails on the way is not blamed on the folder.
    assert isinstance(error, KeyboardInterrupt) or "the store cannot be read to its end" in str(raised.value)
    (folder / ".pairbench-new-x").mkdir()  # as a kill leaves it
    assert publish(folder, SITE).written == ("index.html", "runs/a.html")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises((StoreFailedError, KeyboardInterrupt)):
        publish(folder, interrupted(error))
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_manifest_that_names_files_elsewhere_removes_none_of_them(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    publish(tmp_path / "site", SITE)
    (tmp_path / "site" / MANIFEST).write_text('{"files": ["../precious"]}')
    with pytest.raises(UsageError, match="no file inside"):
        publish(tmp_path / "site", SITE)
    assert (tmp_path / "precious").exists()
    (tmp_path / "site" / MANIFEST).write_text("{")
    with pytest.raises(UsageError, match="is damaged"):
        publish(tmp_path / "site", SITE)


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("git@example.org:team/ops.git", "https://example.org/team/ops"),
        ("ssh://git@example.org:2222/team/ops.git", "https://example.org/team/ops"),
        ("https://user:secret@example.org/team/ops.git", "https://example.org/team/ops"),
        ("https://example.org:8443/team/deep/ops/", "https://example.org:8443/team/deep/ops"),
        ("/srv/git/ops.git", None),
        ("../ops", None),
        ("file:///srv/ops", None),
        ("javascript:alert(1)//x.y/z", None),
        ("", None),
    ],
)
def test_the_address_of_a_remote(remote: str, address: str | None) -> None:
    assert web_address(remote) == address


FILES = {
    "index.html": "first",
    "assets/site.js": "1",
    "operators/x.html": "page",
    "operators/x.js": "data",
    "index.json": "{}",
}


class Recording:
    """A bucket in memory that keeps the order of what is written to it, and may fail at a name."""

    def __init__(self) -> None:
        self._of: Any = fs._MockFileSystem()
        self.written: list[str] = []
        self.metadata: dict[str, Any] = {}
        self.fails_at = ""

    def open_output_stream(self, path: str, metadata: Any = None) -> Any:
        name = path.removeprefix("bucket/")
        if name == self.fails_at:
            raise OSError("the network is down")
        self._of.create_dir(path.rpartition("/")[0], recursive=True)
        self.written.append(name)
        self.metadata[name] = metadata
        return self._of.open_output_stream(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def text(self, name: str) -> str:
        with self._of.open_input_stream(f"bucket/{name}") as stream:
            return bytes(stream.read()).decode()


@pytest.fixture
def bucket() -> Recording:
    return Recording()


@pytest.fixture
def place(bucket: Recording) -> StoreLocation:
    return StoreLocation(filesystem=bucket, root="bucket", name="s3://bucket")


def site(folder: Path, files: dict[str, str]) -> Path:
    publish(folder, [File(path=name, content=text.encode()) for name, text in files.items()])
    return folder


def test_data_comes_first_and_the_first_page_last(tmp_path: Path, bucket: Recording, place: StoreLocation) -> None:
    done = upload(site(tmp_path / "site", FILES), place)
    assert set(bucket.written[:2]) == {"assets/site.js", "operators/x.js"} and bucket.written[2] == "operators/x.html"
    assert set(bucket.written[3:5]) == {"index.html", "index.json"} and bucket.written[5:] == [MANIFEST]
    assert (done.files, len(done.written), done.name) == (5, 5, "s3://bucket")
    kinds = [bucket.metadata[name]["Content-Type"] for name in ("index.html", "operators/x.js", "index.json")]
    assert kinds == ["text/html", "text/javascript", "application/json"]


def test_only_what_changed_is_written_and_only_what_was_ours_is_removed(
    tmp_path: Path, bucket: Recording, place: StoreLocation
) -> None:
    upload(site(tmp_path / "site", FILES), place)
    bucket._of.create_dir("bucket/pull")
    with bucket._of.open_output_stream("bucket/pull/index.html") as stream:
        stream.write(b"another's")
    bucket.written.clear()
    changed = {name: text for name, text in FILES.items() if not name.startswith("operators")} | {
        "index.html": "second"
    }
    done = upload(site(tmp_path / "site", changed), place)
    assert bucket.written == ["index.html", MANIFEST] and done.written == ("index.html",)
    assert done.removed == ("operators/x.html", "operators/x.js")
    assert bucket.text("pull/index.html") == "another's" and bucket.text("index.html") == "second"
    assert bucket._of.get_file_info("bucket/operators/x.js").type == fs.FileType.NotFound


def test_what_was_interrupted_goes_on(tmp_path: Path, bucket: Recording, place: StoreLocation) -> None:
    folder = site(tmp_path / "site", FILES)
    upload(folder, place)
    site(folder, {**FILES, "operators/x.js": "new", "operators/x.html": "new", "index.html": "new"})
    bucket.fails_at = "operators/x.html"
    with pytest.raises(StoreFailedError, match=r"the network is down; the site in .* is whole"):
        upload(folder, place)
    assert bucket.text("index.html") == "first", "the first page is the earlier one until all others are there"
    bucket.fails_at = ""
    assert set(upload(folder, place).written) == {"operators/x.js", "operators/x.html", "index.html"}
    assert bucket.text("index.html") == "new"


def test_a_file_of_somebody_else_is_not_written_over_and_a_damaged_list_is_named(tmp_path: Path) -> None:
    target = tmp_path / "there"
    target.mkdir()
    (target / "index.html").write_text("mine")
    with pytest.raises(UsageError, match=r"holds 'index\.html', which no earlier site of pairbench has left there"):
        upload(site(tmp_path / "site", FILES), str(target))
    assert (target / "index.html").read_text() == "mine" and not (target / MANIFEST).exists()
    (target / MANIFEST).write_text('{"files": 1}')
    with pytest.raises(UsageError, match="is damaged"):
        upload(tmp_path / "site", str(target))


def test_a_folder_is_published_to_and_beside_others(tmp_path: Path) -> None:
    target = tmp_path / "pages"
    (target / "pull").mkdir(parents=True)
    (target / "pull" / "index.html").write_text("another's")
    done = upload(site(tmp_path / "site", FILES), str(target))
    assert {name: (target / name).read_text() for name in FILES} == FILES
    assert json.loads((target / MANIFEST).read_text())["files"] == sorted(FILES)
    assert (target / "pull" / "index.html").read_text() == "another's" and done.files == 5
    assert upload(tmp_path / "site", str(target)).written == ()


@pytest.mark.parametrize(
    ("target", "words"),
    [("site", "is the folder that the site is written to"), ("nothing://x", "cannot be opened")],
)
def test_where_nothing_can_be_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=words):
        upload(site(tmp_path / "site", FILES), target)
