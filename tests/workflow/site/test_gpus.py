from collections.abc import Sequence
from pathlib import Path

from pairbench.config import Config
from pairbench.model.record import Record
from pairbench.site.build import SiteOptions, build_site
from tests.builders import make_run, write_runs


def build(folder: Path, *runs: Sequence[Record]) -> Path:
    write_runs(folder / "store", *runs)
    build_site(Config(root=folder, store=str(folder / "store")), SiteOptions(folder=folder / "site"))
    return folder / "site"


def test_a_page_where_a_model_has_several_gpus(tmp_path: Path) -> None:
    site = build(tmp_path, make_run(0, device_uuid="GPU-A"), make_run(1, device_uuid="GPU-B", slower={"fused": 1.04}))
    page = (site / "gpus.html").read_text()
    assert page.index("GPU-B") < page.index("GPU-A")
    for each in site.rglob("*.html"):  # those of operators are written before GPUs have been compared
        assert "gpus.html" in each.read_text(), each


def test_one_without_a_table_where_they_share_no_series(tmp_path: Path) -> None:
    runs = [make_run(number, device_uuid=f"GPU-{number}", cases=[f"op[n={number}]"]) for number in range(2)]
    page = (build(tmp_path, *runs) / "gpus.html").read_text()
    assert "No series was measured by more than one of them" in page and "<table" not in page


def test_none_where_each_has_one(tmp_path: Path) -> None:
    site = build(tmp_path, make_run(0), make_run(1))
    assert not (site / "gpus.html").exists()
    assert "gpus.html" not in (site / "index.html").read_text()
