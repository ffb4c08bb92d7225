"""What works on from a store that was compacted: acceptances and the site."""

from pathlib import Path

import pytest

from pairbench.store.location import StoreLocation
from pairbench.store.upkeep import compact as compacting
from tests.builders import CASES, SUITE, make_run, write_runs
from tests.in_process import call_main

SLOWER = {f"{CASES[0]}-fused": 1.2}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a few runs be enough to be merged."""
    monkeypatch.setattr(compacting, "AT_LEAST", 2)


def compact(folder: Path) -> None:
    """Merge all runs of a store."""
    assert sum(one.files for one in compacting.compact(StoreLocation.of(folder), keep=0)) > 1
    assert any(file.is_compacted for file in StoreLocation.of(folder).files("records"))


def make(folder: Path) -> tuple[Path, Path]:
    """Return the same store twice, as it was written and compacted."""
    runs = [make_run(number) for number in range(7)] + [make_run(7, slower=SLOWER)]
    plain, merged = folder / "plain", folder / "merged"
    for store in (plain, merged):
        write_runs(store, *runs)
    compact(merged)
    return plain, merged


def test_what_is_accepted_there_is_no_regression_any_more(tmp_path: Path) -> None:
    changes = []
    for store in make(tmp_path):
        assert call_main(tmp_path, "compare", "--store", str(store)).code == 1
        name = f"{SUITE}::{CASES[0]}-fused-eager"
        assert call_main(tmp_path, "accept", name, "--reason", "meant", "--store", str(store)).code == 0
        said = call_main(tmp_path, "compare", "--store", str(store), "--format", "json")
        assert said.code == 0
        changes.append(said.document["changes"])
    assert changes[0] == changes[1]
    assert [change["accepted"] for change in changes[1] if change["name"] == name] == ["meant"]


def test_the_site_is_the_same(tmp_path: Path) -> None:
    pages = []
    for store in make(tmp_path):
        (tmp_path / "store").unlink(missing_ok=True)
        (tmp_path / "store").symlink_to(store)  # pages name it
        site = tmp_path / f"site-{store.name}"
        assert call_main(tmp_path, "dashboard", "--store", "store", "--output", str(site)).code == 0
        pages.append({str(path.relative_to(site)): path.read_bytes() for path in site.rglob("*") if path.is_file()})
    assert pages[0].keys() == pages[1].keys() and len(pages[0]) > 10
    assert [name for name in pages[0] if pages[0][name] != pages[1][name]] == []
