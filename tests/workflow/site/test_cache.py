"""The cache of a site: whatever changes, a site that is built again is the one that a new folder would get."""

import hashlib
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pairbench.config import Config
from pairbench.model.comparison import Acceptance
from pairbench.model.record import Series
from pairbench.model.site import Triage
from pairbench.site import build as site_build
from pairbench.site import paths
from pairbench.site.build import SiteOptions, Written, build_site
from pairbench.site.gather import SiteReading, one_by_one
from pairbench.site.operator import operator
from pairbench.site.overview import run
from pairbench.site.paths import CACHE
from pairbench.store import upkeep
from pairbench.store.documents import write_document
from pairbench.store.location import StoreLocation
from pairbench.store.upkeep import compact
from pairbench.store.writer import write_run
from tests.builders import CASES, DEVICE, SUITE, ended, git, make_run, make_samples, run_id_of, write_runs

OTHERS = ("softmax[dtype=bfloat16,tokens=64]", "silu[dtype=bfloat16,tokens=64]")
SERIES = Series(device_name=DEVICE, suite=SUITE, case=CASES[0], implementation="fused", mode="eager")


def build(folder: Path, site: str = "site", **options: int) -> Written:
    config = Config(root=folder, store=str(folder / "store"))
    return build_site(config, SiteOptions(folder=folder / site, **options))  # type: ignore[arg-type]


def content(site: Path) -> dict[str, bytes]:
    return {str(path.relative_to(site)): path.read_bytes() for path in site.rglob("*.*") if path.name != CACHE}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store of three operators on one device model and one on another, and its site."""
    folder = tmp_path_factory.mktemp("built")
    slower = [{"fused": 1.3} if day >= 4 else {} for day in range(7)]
    write_runs(folder / "store", *(make_run(day, cases=(*CASES, *OTHERS), slower=slower[day]) for day in range(7)))
    write_runs(folder / "store", make_run(2, device_name="NVIDIA H100", cases=CASES[:1]))
    (folder / SUITE).parent.mkdir(parents=True, exist_ok=True)
    (folder / SUITE).write_text('from pairbench import Operator\nOperator("rms_norm", baseline=None)\n')
    build(folder)
    return folder


@pytest.fixture
def folder(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(upkeep, "AT_LEAST", 2)
    # The cache knows the store by its files' times, and the pages name the folder.
    shutil.rmtree(tmp_path)
    shutil.copytree(built, tmp_path)
    build(tmp_path)
    return tmp_path


def of_one_operator(folder: Path) -> None:
    write_runs(folder / "store", make_run(12, cases=OTHERS[:1], slower={"fused": 1.3}))


def one_more_run(folder: Path) -> None:
    write_runs(folder / "store", make_run(16, cases=(*CASES, *OTHERS), slower={"fused": 1.3}))


def a_failure(folder: Path) -> None:
    first, *others = make_run(13, cases=CASES)
    write_runs(folder / "store", (ended(first, "failed"), *others))


def another_driver(folder: Path) -> None:
    write_runs(folder / "store", *(make_run(day, driver="600", environment_hash="f" * 16) for day in (14, 15)))


def a_state(folder: Path) -> None:
    (event, *_) = _events(folder)
    write_document(
        str(folder / "store"),
        Triage(event=event, state="investigating", url=None, until=None, note="", at="2024-01-09"),
    )


def _events(folder: Path) -> list[str]:
    reading = SiteReading(Config(root=folder, store=str(folder / "store")))
    assert list(reading.operators())
    return [event.key for event in reading.facts.events]


def an_acceptance(folder: Path) -> None:
    accepted = Acceptance(
        series=SERIES, definition_hash="d" * 16, p50_ns=131_000.0, p95_ns=None, run_id=run_id_of(5), at="2024-01-01T09:00:00+00:00",
        reason="exact",
    )  # fmt: skip
    write_document(str(folder / "store"), accepted)


def raw_samples(folder: Path) -> None:
    record = next(record for record in make_run(6, cases=CASES) if Series.of(record) == SERIES)
    device = {"device_slug": "nvidia-h200", "month": "2024-01"}
    write_run(folder / "store", run_id=record.run_id, records=(), samples=[make_samples(record)], **device)


def a_run_is_gone(folder: Path) -> None:
    sorted((folder / "store").rglob("*.parquet"))[3].unlink()


def a_damaged_file(folder: Path) -> None:
    sorted((folder / "store").rglob("*.parquet"))[3].write_bytes(b"PAR1")


def the_suite(folder: Path) -> None:
    (folder / SUITE).write_text(
        'from pairbench import Operator\n\nOperator("rms_norm", baseline=None, source="paper")\n'
    )


def merged(folder: Path) -> None:
    assert [one.runs for one in compact(StoreLocation.of(folder / "store"), keep=0)]


def the_branch(folder: Path) -> None:
    """Make the folder a checkout whose default branch has none of the runs' commits: nothing can be compared."""
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")


def a_page(folder: Path) -> None:
    next((folder / "site" / "operators").glob("*.html")).write_text("edited")
    next((folder / "site" / "runs").glob("*.js")).unlink()


def no_cache(folder: Path) -> None:
    (folder / "site" / CACHE).unlink()


def a_damaged_cache(folder: Path) -> None:
    (folder / "site" / CACHE).write_bytes((folder / "site" / CACHE).read_bytes()[:-9])


CHANGES: tuple[Callable[[Path], None], ...] = (
    *(raw_samples, of_one_operator, one_more_run, a_failure, another_driver, a_state, an_acceptance),
    *(the_suite, the_branch, a_page, a_damaged_file, a_run_is_gone, merged, no_cache, a_damaged_cache),
)
OF_THE_SITE = (a_page, no_cache, a_damaged_cache)  # what a new folder gets is as before
NOT_SEEN = (*OF_THE_SITE, merged)


@pytest.mark.slow
def test_after_any_change_it_is_the_site_that_a_new_folder_gets(folder: Path) -> None:
    before = content(folder / "site")
    for change in CHANGES:
        change(folder)
        told = build(folder)
        if change not in OF_THE_SITE:
            shutil.rmtree(folder / "new", ignore_errors=True)
            new = build(folder, "new").problems
        assert new == told.problems, change
        after = content(folder / "site")
        assert after == content(folder / "new"), change
        assert (after == before) == (change in NOT_SEEN), change
        before = after


def test_nothing_is_read_or_made_where_nothing_changed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_build, "SiteReading", None)
    told = build(folder)
    assert told.files == len(content(folder / "site")) - 1 and told.written == told.removed == ()
    with pytest.raises(TypeError, match="NoneType"):
        build(folder, last=1)


def test_pages_of_operators_and_runs_that_did_not_change_are_not_made(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def noted(make: Callable[..., object]) -> Callable[..., object]:
        def called(site: object, facts: object, **options: object) -> object:
            made.append(getattr(facts, "operator", "") or facts.head.run_id)  # type: ignore[attr-defined]
            return make(site, facts, **options)

        return called

    monkeypatch.setattr(site_build, "_in_processes", one_by_one)  # what another process notes is not seen here
    monkeypatch.setattr(site_build, "operator", noted(operator))
    monkeypatch.setattr(site_build, "run", noted(run))
    of_one_operator(folder)
    build(folder)
    assert sorted(made) == [run_id_of(4), run_id_of(12), "softmax"], "an event began with the former"


def test_the_site_of_a_checkout_of_pairbench_is_no_part_of_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "catalogue_folder", lambda name: tmp_path / name)
    found = []
    for file in ("templates/a.j2", "site/index.html", "assets/a.css"):
        (tmp_path / "dashboards" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dashboards" / file).write_text("text")
        found.append(paths.code_digest.__wrapped__())
    assert found[0] == found[1] != found[2]


def test_a_site_without_room_for_its_cache_is_written(folder: Path) -> None:
    (folder / "site" / CACHE).unlink()
    (folder / "site" / CACHE).mkdir()
    of_one_operator(folder)
    assert build(folder).written


def test_a_cache_calls_no_function(folder: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(folder / "trapped"),)

    kept, before = folder / "site" / CACHE, content(folder / "site")
    content_of = pickle.dumps(("", {"site": Trap()}))
    kept.write_bytes(hashlib.sha256(content_of).digest() + content_of)
    assert build(folder).written == () and content(folder / "site") == before
    assert not (folder / "trapped").exists()
