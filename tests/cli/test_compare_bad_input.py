"""What bad input gets from `pairbench compare`: a sentence and an exit code, and nothing bad passes for good."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairbench.model.record import Record
from tests.builders import ended, make_run, run_id_of, write_runs
from tests.cli.compared import SLOWER, Cli, files, write

ROOT = Path(__file__).parents[2]


def test_the_first_run_has_nothing_to_compare_with(cli: Cli) -> None:
    write(make_run(0))
    said = cli("compare")
    assert said.code == 0 and "nothing to compare with" in said.err and "no earlier run at all" in said.err
    said = cli("compare", "--strict", "-f", "json")
    assert said.code == 3 and said.outcomes == {"new": 4}
    said = cli("compare", "last:5")
    assert (
        said.code == 0
        and "nothing to compare with: there is no run of 'last:5' earlier than the current one" in said.err
    )
    assert cli("compare", "last:5", "--strict").code == 3


def test_an_empty_store(cli: Cli) -> None:
    said = cli("compare")
    assert said.code == 2 and "has no records" in said.err and "pairbench run" in said.err
    Path("results/records").mkdir(parents=True)
    assert cli("compare", "--strict").code == 2


def test_no_such_side(cli: Cli) -> None:
    write(make_run(0), make_run(1))
    said = cli("compare", "nonsense")
    assert said.code == 2 and "'nonsense' names no run" in said.err and run_id_of(1) in said.err


@pytest.mark.parametrize("content", [b"", b"PAR1 and then nothing", "half", "foreign", "zeros"])
def test_a_bad_file_among_good_ones_is_named_and_skipped(cli: Cli, content: bytes | str) -> None:
    write(*(make_run(number) for number in range(4)))
    bad = files()[1]
    whole = bad.read_bytes()
    match content:
        case "half":
            bad.write_bytes(whole[: len(whole) // 2])
        case "foreign":
            pq.write_table(pa.table({"colour": ["red"]}), bad)
        case "zeros":
            bad.write_bytes(whole[:4] + b"\0" * (len(whole) - 20_000) + whole[4 + len(whole) - 20_000 :])
        case bytes():
            bad.write_bytes(content)
    said = cli("compare", "-f", "json")
    assert said.code == 0 and said.outcomes == {"unchanged": 4}
    assert str(bad) in said.err and any(str(bad) in problem for problem in said.document["problems"])
    assert str(bad) in cli("compare").out
    assert cli("compare", "--strict").code == 3


def test_when_the_newest_run_cannot_be_read_an_older_one_does_not_pass_for_it(cli: Cli) -> None:
    write(*(make_run(number) for number in range(3)))
    bad = files()[-1]
    bad.write_bytes(bad.read_bytes()[:500])
    said = cli("compare", "-f", "json")
    assert said.code == 4 and f"the newest run may be in a file that cannot be read: {bad.absolute()}" in said.err
    assert said.document["current"]["runs"] == [run_id_of(1)]
    assert cli("compare", "auto", run_id_of(1)).code == 0
    said = cli("compare", "auto", run_id_of(2))
    assert said.code == 2 and str(bad) in said.err


def test_a_store_of_nothing_but_bad_files(cli: Cli) -> None:
    write(make_run(0))
    files()[0].write_bytes(b"")
    said = cli("compare")
    assert said.code == 2 and "no run of it can be read" in said.err and "parquet: cannot be read" in said.err


def test_all_versions_of_the_schema_are_read(cli: Cli) -> None:
    """The files of both releases hold one run, so one of them is renamed, within."""
    data = ROOT / "tests/store/data"
    folder = Path("results/records/device=nvidia-h200/month=2026-01")
    folder.mkdir(parents=True)
    names = []
    for version in ("v1", "v2"):
        (source,) = (data / version / "records").rglob("*.parquet")
        table = pq.read_table(source, partitioning=None)
        run_id = f"2024010{version[1]}T000000-{version}"
        column = pa.array([run_id] * len(table))
        started = pa.array([f"2024-01-0{version[1]}T00:00:00+00:00"] * len(table))
        for name, values in (("run_id", column), ("started_at", started)):
            table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), values)
        if "confirms" in table.column_names:
            table = table.set_column(
                table.schema.get_field_index("confirms"), "confirms", pa.nulls(len(table), pa.string())
            )
        pq.write_table(table, folder / f"{run_id}.parquet")
        names.append(run_id)
    said = cli("compare", names[0], names[1], "-f", "json")
    assert said.code in (0, 1) and not said.document["problems"]
    assert said.document["reference"]["runs"] == names[:1] and sum(said.outcomes.values()) > 1
    said = cli("compare", "-f", "json")
    assert said.document["current"]["runs"] == names[1:]


def test_a_run_from_the_future_is_named_and_left_out(cli: Cli) -> None:
    write(make_run(0), make_run(1))
    write(
        [replace(record, run_id="29990101T000000-ffffff", started_at="2999-01-01T00:00:00Z") for record in make_run(2)]
    )
    said = cli("compare", "-f", "json")
    assert said.code == 0 and said.document["current"]["runs"] == [run_id_of(1)]
    assert "run 29990101T000000-ffffff says to have started in the future" in said.err
    assert cli("compare", "--strict").code == 3
    assert cli("compare", "latest", "29990101T000000-ffffff").code == 0


def test_a_start_that_does_not_fit_the_id_is_named(cli: Cli) -> None:
    write(make_run(0), [replace(record, started_at="2023-12-31T00:00:00+00:00") for record in make_run(1)])
    said = cli("compare", "-f", "json")
    assert said.document["reference"]["runs"] == [run_id_of(0)], "the order of the ids holds"
    assert (
        f"run {run_id_of(1)} started at 2023-12-31T00:00:00+00:00 by its records, which is not what its id says"
        in said.err
    )
    assert (
        f"run {run_id_of(0)} of the reference started at 2024-01-01T00:00:00.000+00:00, after the current run"
        in said.err
    )
    assert (said.code, cli("compare", "--strict").code) == (0, 3)


def test_a_run_that_was_copied_twice_counts_once(cli: Cli) -> None:
    write(*(make_run(number) for number in range(3)))
    for number, copied in enumerate(files()):
        shutil.copy(copied, copied.with_name(f"copy{number}-{copied.name}"))
        (copied.parents[1] / "month=2031-01").mkdir(exist_ok=True)
        shutil.copy(copied, copied.parents[1] / "month=2031-01" / copied.name)
    said = cli("compare", "-f", "json")
    assert said.code == 0 and said.outcomes == {"unchanged": 4}
    for number in range(3):
        assert (
            f"run {run_id_of(number)} is in the store more than once: 8 of its rows are there again, the same"
            in said.err
        )
    assert cli("compare", "--strict").code == 3


def test_two_machines_that_gave_the_same_id(cli: Cli) -> None:
    """The same model: one is taken, and it is said. Another model: they are two runs, and nothing is lost."""
    theirs = make_run(1, hostname="other", slower=SLOWER)
    write(make_run(0), make_run(1))
    write(theirs, store="theirs")
    (file,) = Path("theirs/records").rglob("*.parquet")
    other = Path("results/records/device=other/month=2024-01")
    other.mkdir(parents=True)
    shutil.copy(file, other)
    said = cli("compare", "-f", "json")
    assert (
        f"run {run_id_of(1)} is in the store more than once: 4 of its rows are there again, 4 of them with other values"
        in said.err
    )
    assert cli("compare", "--strict").code in (1, 3)
    (other / file.name).unlink()
    write_runs("theirs2", make_run(1, device_name="NVIDIA B200", hostname="other"))
    shutil.copytree("theirs2", "results", dirs_exist_ok=True)
    said = cli("compare", "-f", "json")
    assert not said.err and said.outcomes == {"unchanged": 4, "new": 4}


@pytest.mark.parametrize("status", ["failed", "mismatched", "timeout", "oom"])
def test_a_side_that_failed(cli: Cli, status: str) -> None:
    broken = [ended(record, status) if record.implementation == "fused" else record for record in make_run(1)]
    write(make_run(0), broken)
    said = cli("compare", "-f", "json")
    assert said.code == 1 and said.outcomes == {"failed": 2, "unchanged": 2} and "made up" in said.out
    write(make_run(2))
    said = cli("compare", run_id_of(1), run_id_of(2), "-f", "json")
    assert said.code == 0 and "regression" not in said.outcomes


def test_all_rounds_failed_on_the_reference_side_alone(cli: Cli) -> None:
    write([ended(record, "failed") for record in make_run(0)], make_run(1))
    assert cli("compare").code == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
@pytest.mark.parametrize("side", [0, 1])
def test_numbers_that_are_none_never_pass(cli: Cli, value: float, side: int) -> None:
    def spoilt(record: Record) -> Record:
        return replace(record, call_p50_ns=value, round_p50_ns=(value,) * 5, speedup=value, margin=value)

    runs = [make_run(0), make_run(1)]
    write(*([spoilt(record) for record in run] if number == side else run for number, run in enumerate(runs)))
    said = cli("compare", "--strict", "-f", "json")
    assert said.code in (1, 3) and "unchanged" not in said.outcomes


def test_a_run_without_rounds(cli: Cli) -> None:
    write(make_run(0), [replace(record, round_p50_ns=None, round_p95_ns=None) for record in make_run(1)])
    assert cli("compare", "--strict").code in (0, 3)


def test_a_suite_that_could_not_be_loaded(cli: Cli) -> None:
    blank: dict[str, Any] = dict.fromkeys(
        ("operator", "case", "implementation", "role", "mode", "tier", "definition_hash")
    )
    (first, *_) = make_run(1)
    write(make_run(0), [replace(ended(first, "failed", "suite norm.py, line 3: SyntaxError"), **blank)])
    said = cli("compare", "auto", run_id_of(1), "-f", "json")
    assert said.code == 1 and said.outcomes == {"failed": 4} and "SyntaxError" in said.out


def test_a_damaged_acceptance_is_named(cli: Cli) -> None:
    write(make_run(0), make_run(1))
    Path("results/accepted").mkdir()
    Path("results/accepted/1.json").write_text("{")
    said = cli("compare")
    assert said.code == 0 and "accepted/1.json: cannot be read" in said.err
    assert cli("compare", "--strict").code == 3
