"""GPUs of one model have a page where there are several."""

from pathlib import Path

from pairbench.config import Config
from pairbench.site.build import SiteOptions, build_site
from tests.builders import make_run, write_runs


def build(folder: Path, *gpus: str) -> Path:
    for number, gpu in enumerate(gpus):
        write_runs(
            folder / "store", make_run(number, device_uuid=gpu, slower={"fused": 1.04} if gpu == "GPU-B" else {})
        )
    build_site(Config(root=folder, store=str(folder / "store")), SiteOptions(folder=folder / "site"))
    return folder / "site"


def test_a_page_where_a_model_has_several_gpus(tmp_path: Path) -> None:
    site = build(tmp_path, "GPU-A", "GPU-B")
    page = (site / "gpus.html").read_text()
    assert page.index("GPU-B") < page.index("GPU-A")
    for each in site.rglob("*.html"):  # those of operators are written before GPUs have been compared
        assert "gpus.html" in each.read_text(), each


def test_one_without_a_table_where_they_share_no_series(tmp_path: Path) -> None:
    for number, gpu in enumerate(("GPU-A", "GPU-B")):
        write_runs(tmp_path / "store", make_run(number, device_uuid=gpu, cases=[f"op[n={number}]"]))
    build_site(Config(root=tmp_path, store=str(tmp_path / "store")), SiteOptions(folder=tmp_path / "site"))
    page = (tmp_path / "site/gpus.html").read_text()
    assert "No series was measured by more than one of them" in page and "<table" not in page


def test_none_where_each_has_one(tmp_path: Path) -> None:
    site = build(tmp_path, "GPU-A", "GPU-A")
    assert not (site / "gpus.html").exists()
    assert "gpus.html" not in (site / "index.html").read_text()
