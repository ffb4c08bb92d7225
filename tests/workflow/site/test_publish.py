from collections.abc import Iterator
from pathlib import Path

import pytest

from pairbench.errors import StoreFailedError, UsageError
from pairbench.site.build import MANIFEST, publish
from pairbench.site.paths import File
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
