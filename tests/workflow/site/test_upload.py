import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from pairbench.errors import StoreFailedError, UsageError
from pairbench.site.build import MANIFEST, publish, upload
from pairbench.site.paths import File
from pairbench.store.location import StoreLocation

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
