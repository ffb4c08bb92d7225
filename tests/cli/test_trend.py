"""`pairbench trend` and `pairbench plot` on stores of made-up runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from pairbench.errors import SelectionError
from pairbench.model.record import Record
from pairbench.plan import Wanted
from pairbench.workflow.lookup import find_series, read_history
from tests.builders import CASES, SUITE, ended, make_run, only, write_runs
from tests.cli.conftest import Cli

NAME = f"{SUITE}::{CASES[0]}-fused-eager"


def days(number: int, slower_from: int = 1000) -> list[tuple[Record, ...]]:
    return [make_run(24 * day, slower={"fused": 1.05} if day >= slower_from else {}) for day in range(number)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a store of 24 runs; the variant is slower in the last five."""
    folder = tmp_path_factory.mktemp("store")
    write_runs(folder, *days(24, 19))
    return str(folder)


def test_a_regression_is_exit_code_1(cli: Cli, store: str) -> None:
    said = cli("trend", NAME, "--store", store, "--output", "trend.svg")
    assert said.code == 1, said.err
    assert said.out.splitlines()[1].count("regression +5") == 1
    assert "Moved (1)" in said.out and "code" in said.out
    assert NAME in Path("trend.svg").read_text() and "drew" in said.err


def test_an_unmoved_series_is_exit_code_0(cli: Cli, store: str) -> None:
    said = cli("trend", NAME.replace("fused", "baseline"), "--store", store, "-f", "json", "-o", "trend.PNG")
    assert said.code == 0, said.err
    assert len(said.document["points"]) == 24 and said.document["control"] == "fused"
    assert Path("trend.PNG").read_bytes().startswith(b"\x89PNG")


def test_the_newest_runs_only(cli: Cli, store: str) -> None:
    newest = ("trend", NAME, "--store", store, "--last", "3")
    said = cli(*newest, "-f", "json")
    assert said.code == 0 and len(said.document["points"]) == 3
    strict = cli(*newest, "--strict")
    assert strict.code == 3 and "undecided" in strict.out


@pytest.mark.parametrize("text", [NAME, f"*{CASES[0]}-fused-*", f"{CASES[0]}-fused", "1024*fused"])
def test_a_glob_or_a_part_that_fits_one_will_do(store: str, text: str) -> None:
    assert find_series(store, text).value.name == NAME


@pytest.mark.parametrize(
    ("text", "device", "words"),
    [
        ("rms_norm", None, "series 'rms_norm' fits 4, expected one; name one of\n  suites/norm.py::rms_norm["),
        (NAME.replace("fused", "fussed"), None, f"did you mean {NAME}"),
        ("q", "h200", "series 'q' is not in store 'STORE'; one of its 4 is suites/norm.py::"),
        (NAME, "A100", "--device 'A100' has no series in store 'STORE'; device models are: NVIDIA H200"),
    ],
)
def test_a_name_that_fits_none_or_several_is_answered(store: str, text: str, device: str | None, words: str) -> None:
    with pytest.raises(SelectionError) as caught:
        find_series(store, text, Wanted(device=device))
    assert words.replace("STORE", store) in str(caught.value)


def test_a_store_that_cannot_be_read_is_to_blame_and_no_option(tmp_path: Path) -> None:
    file = tmp_path / "records" / "device=nvidia-h200" / "month=2026-11" / "20261101T000000-000aaaaaa.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"garbage")
    with pytest.raises(SelectionError, match=f"has no series that can be read: .*{file.name}"):
        find_series(str(tmp_path), NAME)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trend", NAME, "--timer", "sundial"], "--timer 'sundial' timed no run of this series, expected one of cuda"),
        (["trend", NAME, "--output", "trend.pdf"], "--output 'trend.pdf' ends in '.pdf', expected .svg or .png"),
        (["trend", NAME, "--output", "no/such/trend.svg"], "there is no folder 'no/such'"),
        (["trend", NAME, "--output", "folder.svg"], "--output 'folder.svg' cannot be written: Is a directory"),
        (["plot", "nothing"], "'nothing' selects nothing that was measured in store"),
        (["plot", "rms_norm", "--x", "m"], "x='m' is no axis of these cases, expected one of "),
        (["plot", "rms_norm", "--output", "a.gif"], "ends in '.gif', expected .png, .svg, .pdf or .html"),
        (["plot", "rms_norm", "--style", "paper"], "--style paper draws a file and no --output names one"),
        (["plot", "rms_norm", "--style", "paper", "--output", "a.png"], "ends in '.png', expected .svg or .pdf"),
        (["plot", "rms_norm", "--output", "nowhere/a.svg"], "cannot be written"),
    ],
)
def test_wrong_arguments_have_a_sentence_and_exit_code_2(
    cli: Cli, store: str, arguments: list[str], words: str
) -> None:
    Path("folder.svg").mkdir()
    said = cli(*arguments, "--store", store)
    assert said.code == 2 and words in said.err, said.err


def test_devices_timers_and_damage(cli: Cli, tmp_path: Path) -> None:
    runs = [*days(12), make_run(24 * 12, device_name="NVIDIA H100"), make_run(24 * 13, timer="do_bench")]
    runs += [tuple(ended(record, "timeout", "took more than 300 s") for record in make_run(24 * 14))]
    write_runs(tmp_path / "results", *runs)
    (some, *_) = (tmp_path / "results" / "records").rglob("*.parquet")
    (some.parent / "20200101T000000-bad.parquet").write_bytes(b"PAR1 and no more")
    several = cli("trend", NAME)
    assert several.code == 2
    assert "on several device models; choose one with --device: NVIDIA H100, NVIDIA H200" in several.err
    said = cli("trend", NAME, "--device-name", "h200", "--timer", "cuda_event")
    assert said.code == 1, said.err
    assert "failed: timeout: took more than 300 s" in said.out
    assert "1 run timed by do_bench left out: another timer is another series" in said.out
    assert "20200101T000000-bad.parquet: cannot be read, left out" in said.err


def test_a_changed_environment_is_named(cli: Cli, tmp_path: Path) -> None:
    environments: list[dict[str, Any]] = [
        {"environment": json.dumps({"flags": {"matmul.allow_tf32": allowed}}), "environment_hash": str(allowed)}
        for allowed in (False, True)
    ]
    old, new = environments
    runs = [make_run(24 * day, slower={CASES[0]: 1.2}, **new) for day in range(8, 16)]
    write_runs(tmp_path / "results", *(make_run(24 * day, **old) for day in range(8)), *runs)
    said = cli("trend", NAME, "-f", "json")
    (era,), (move,) = said.document["eras"], said.document["moves"]
    assert era["changes"] == [{"field": "flags.matmul.allow_tf32", "reference": "false", "current": "true"}]
    assert era["index"] == move["index"] == 8 and move["attribution"] == "environment"
    assert said.code == 0


def test_a_series_that_is_only_in_old_runs_is_found(tmp_path: Path) -> None:
    runs = [only(run, case=CASES[0]) if day < 2 else only(run, case=CASES[1]) for day, run in enumerate(days(55))]
    write_runs(tmp_path, *runs)
    found = find_series(str(tmp_path), f"{CASES[0]}-fused")
    assert found.value.name == NAME
    assert len(read_history(str(tmp_path), found.value)[0].value) == 4


def sizes(number: int, operator: str, *values: int, factor: float = 1.0) -> list[Record]:
    """Return a run of some sizes; the variant overtakes the baseline as n grows."""
    found: list[Record] = []
    for n in values:
        slower = {"baseline": factor * n / 2000, "fused": factor * (0.5 + n / 2000)}
        found += make_run(number, cases=[f"{operator}[n={n}]"], slower=slower, cv=1e-6, axes=json.dumps({"n": n}))
    return found


@pytest.fixture(scope="module")
def plotted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a store with an earlier run of all sizes and a newer one of some, twice as slow there."""
    folder = tmp_path_factory.mktemp("plotted")
    earlier = sizes(1, "norm", 256, 512, 2048, 4096) + sizes(1, "other", 1, 2)
    write_runs(folder, earlier, sizes(5, "norm", 4096, factor=2))
    return str(folder)


def test_a_plot_is_a_table_and_a_picture(cli: Cli, plotted: str) -> None:
    for name, *style in (("a.svg",), ("a.HTML",), ("a.pdf", "--style", "paper")):
        said = cli("plot", "norm", "--x", "n", "--store", plotted, "--output", name, *style)
        assert said.code == 0, said.err
        assert "drew" in said.err and Path(name).stat().st_size > 1000
    assert "fused overtakes the baseline at n of about" in said.out
    assert "4096" in said.out and "fused" in Path("a.svg").read_text()


def test_a_plot_takes_the_newest_run_of_each_series(cli: Cli, plotted: str) -> None:
    (panel,) = cli("plot", "norm", "--store", plotted, "-f", "json").document["chart"]["panels"]
    values = {point["x"]: point["y"] for point in panel["lines"][0]["points"]}
    assert values[2048] == pytest.approx(204.8, rel=1e-3) and values[4096] == pytest.approx(2 * 409.6, rel=1e-3)
    (panel,) = cli("plot", "--run", "latest", "--store", plotted, "-f", "json").document["chart"]["panels"]
    assert [point["x"] for point in panel["lines"][0]["points"]] == [4096]
