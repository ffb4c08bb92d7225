"""The clocks side by side: what nvbench writes is read, goals are judged, and every entry's call is the one that pairbench times."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from pairbench.model.record import Record
from pairbench.store.schema import schema_of
from tests.lab.exam import clocks

GPU = "NVIDIA H100 80GB HBM3"
SINGLE, CHAIN = "gelu[dtype=float32,n=16384]-fused", "gelu[dtype=float32,n=16384]-baseline"


def nvbench(*states: tuple[str, float | str | None], gpu: str = GPU) -> str:
    """Return entries with their ns, none, or why they were skipped, as nvbench's json_printer.cu writes them: numbers as strings, seconds and Hz."""

    def state(entry: str, found: float | str | None) -> dict[str, Any]:
        values = {"nv/cold/sample_size": "0"}
        if isinstance(found, int | float):
            values |= {"nv/cold/time/gpu/mean": str(1.5 * found / 1e9), "nv/cold/time/gpu/stdev/relative": "inf"}
            values |= {"nv/cold/time/gpu/median": str(found / 1e9), "nv/cold/sm_clock_rate/mean": "1755e6"}
        data = [{"tag": tag, "data": [{"name": "value", "value": value}]} for tag, value in values.items()]
        skipped = isinstance(found, str)
        return {
            "axis_values": [{"name": "entry", "type": "string", "value": entry}],
            "summaries": None if skipped else [*data, {"tag": "a summary without data"}],
            "is_skipped": skipped,
            "skip_reason": found if skipped else "",
        }

    return json.dumps(
        {
            "meta": {"argv": ["cuda-bench 0.3.0", "--quiet"]},
            "devices": [{"id": 0, "name": gpu}],
            "benchmarks": [{"name": "clocked", "states": [state(*one) for one in states]}],
        }
    )


def record(entry: str, **changed: Any) -> dict[str, Any]:
    case, _, implementation = entry.rpartition("-")
    chain = implementation == "baseline"
    return {
        **dict.fromkeys((*clocks.IDENTITY, *clocks.VERSIONS)),
        "run_id": "20261127T185555-59113b234",
        "started_at": "2026-11-27T18:55:55.591+00:00",
        "commit": "f883378aa",
        "case": case,
        "implementation": implementation,
        "status": "measured",
        "sm_clock_mhz": 1980.0,
        **dict.fromkeys(clocks.OURS, 20e3 if chain else 4.5e3),
        **dict.fromkeys(clocks.INTERVALS, 4.4e3),
        **dict.fromkeys(clocks.COUNTS, 0),
        "kernels_per_call": 8 if chain else 1,
        "device_name": GPU,
        **changed,
    }


Write = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Write:
    """Return a function that writes the records and what the other clocks found, of nvbench in three processes."""

    def write(
        records: list[dict[str, Any]], ns: dict[str, float], *, gpu: str = GPU, triton: Any = None, spread: float = 0
    ) -> Path:
        stored = tmp_path / "results/records"
        stored.mkdir(parents=True)
        pd.DataFrame(records).to_parquet(stored / "run.parquet")
        (tmp_path / "theirs").mkdir()
        for process, factor in enumerate((1 - spread, 1, 1 + 2 * spread)):
            states = ((name, factor * value) for name, value in ns.items())
            (tmp_path / f"theirs/nvbench-{process}.json").write_text(nvbench(*states, gpu=gpu))
            each = {"do_bench": {**ns, **(triton or {})}, "do_bench_cudagraph": ns}
            (tmp_path / f"theirs/triton-{process}.json").write_text(json.dumps(each))
        return tmp_path

    return write


def test_there_are_chains_and_single_kernels_of_the_exam_and_every_column() -> None:
    names = list(clocks.entries())
    assert len(names) == 34 and SINGLE in names and CHAIN in names
    assert {name.partition("[")[0] for name in names} == set(clocks.OPERATORS)
    orders = [clocks._in_order_of(process) for process in range(clocks.PROCESSES)]
    assert all(sorted(order) == sorted(names) for order in orders)
    assert len({tuple(order) for order in orders}) == clocks.PROCESSES
    columns = {*clocks.IDENTITY, *clocks.VERSIONS, *clocks.OURS, *clocks.INTERVALS, *clocks.COUNTS}
    assert columns <= set(schema_of(Record).names)


@pytest.mark.parametrize("operator", [name for name in clocks.OPERATORS if name != "twice_a"])
def test_calls_have_the_same_inputs_and_compute_the_same(operator: str) -> None:
    chosen = {name: entry for name, entry in clocks.entries().items() if entry[0].name == operator}
    (_, case, _), *_ = chosen.values()
    calls = [clocks.call_of(*entry, torch.device("cpu")) for _, entry in sorted(chosen.items()) if entry[1] == case]
    given = [call.keywords for call in calls]  # type: ignore[attr-defined]
    assert len(calls) == 2 and given[0].keys() == given[1].keys()
    assert all(torch.equal(given[0][name], given[1][name]) for name in given[0])
    torch.testing.assert_close(calls[0](), calls[1](), rtol=2e-2, atol=2e-2)
    assert not torch.backends.cuda.matmul.allow_tf32


def test_nvbench_is_read_by_its_medians_not_by_its_means() -> None:
    text = nvbench((SINGLE, 4300.0), (CHAIN, None), ("x-fused", "no memory"))
    medians, mhz = clocks.read_nvbench(json.loads(text))
    wanted = {SINGLE: pytest.approx(4300), CHAIN: "it took no sample that it believed", "x-fused": "no memory"}
    assert medians == wanted and mhz == {SINGLE: pytest.approx(1755)}


def test_the_report_has_every_clock_and_compares_device_or_stream(folder: Write) -> None:
    single = record(SINGLE, device_p50_ns=4500.0, stream_p50_ns=9e3, call_p50_ns=11e3)
    chain = record(CHAIN, device_p50_ns=18.6e3, stream_p50_ns=24.3e3, call_p50_ns=60e3)
    earlier = record(SINGLE, run_id="20250101T000000-0", device_p50_ns=9000.0)
    place = folder([single, chain, earlier], {SINGLE: 4300, CHAIN: 23.7e3}, triton={SINGLE: 13.2e3})
    text, status = clocks.report(place)
    assert status == 0
    assert f"| {SINGLE} | 1 | 4.5 | 9 | 11 | 4.3 | 13.2 | 4.3 | device | +4.7 | +0.20 | yes |" in text
    assert f"| {CHAIN} | 8 | 18.6 | 24.3 | 60 | 23.7 | 23.7 | 23.7 | stream | +2.5 | +0.60 | yes |" in text
    assert all(word in text for word in (GPU, "cuda-bench 0.3.0", "2026-11-27", "f883378"))


@pytest.mark.parametrize(
    ("entry", "theirs", "ours", "holds", "counted"),
    [
        (SINGLE, 9.9e3, 10.19e3, True, "below 10 us: `device` within 0.3 us: 1 of 1"),
        (SINGLE, 9.9e3, 9.59e3, False, "below 10 us: `device` within 0.3 us: 0 of 1"),
        (SINGLE, 1402e3, 1376e3, True, "from 10 us up: `device` within 2 %: 1 of 1"),
        (SINGLE, 10e3, 10.21e3, False, "from 10 us up: `device` within 2 %: 0 of 1"),
        (CHAIN, 100e3, 102.9e3, True, "up to 100 us: `stream` within 3 %: 1 of 1"),
        (CHAIN, 100e3, 96.9e3, False, "up to 100 us: `stream` within 3 %: 0 of 1"),
        (CHAIN, 101e3, 101.9e3, True, "above 100 us: `stream` within 1 %: 1 of 1"),
        (CHAIN, 3e6, 2.96e6, False, "above 100 us: `stream` within 1 %: 0 of 1"),
    ],
)
def test_goals(folder: Write, entry: str, theirs: float, ours: float, holds: bool, counted: str) -> None:
    text, status = clocks.report(folder([record(entry, **dict.fromkeys(clocks.OURS, ours))], {entry: theirs}))
    assert (status == 0) == holds and counted in text
    assert (f"\n- {entry}: " not in text) == holds


def test_an_entry_that_misses_its_goal_says_how_far_each_spreads_and_how_fast_the_gpu_ran(folder: Write) -> None:
    long = record(SINGLE, device_p50_ns=1402e3, device_p50_ns_low=1400e3, device_p50_ns_high=1405e3)
    text, _ = clocks.report(folder([long], {SINGLE: 1440e3}, spread=0.01))
    assert (
        f"- {SINGLE}: -2.6 %, -38.00 us, where 29 us are allowed: device 1402 us (1400 to 1405) at 1980 MHz, "
        "nvbench 1426, 1440, 1469 us at 1755 MHz"
    ) in text


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"status": "mismatched", "reason": "it is wrong"}, f"- {SINGLE}: pairbench: mismatched, it is wrong"),
        ({"stream_p50_ns": None}, f"- {SINGLE}: pairbench has no stream_p50_ns"),
        ({"memcpys_per_call": 1, "stream_p50_ns": 9000.0}, "| stream | +100.0 |"),  # a copy beside it makes a chain
        ({}, "- more-fused: pairbench has no record of it"),
        ({}, f"- {CHAIN}: do_bench: RuntimeError: lost"),
    ],
)
def test_an_entry_that_a_clock_has_no_number_of_is_named(folder: Write, changed: dict[str, Any], words: str) -> None:
    records = [record(SINGLE, **changed), record(CHAIN)]
    ns = {SINGLE: 4500, CHAIN: 20e3, "more-fused": 4500}
    text, status = clocks.report(folder(records, ns, triton={CHAIN: "RuntimeError: lost"}))
    assert status == 1 and words in text


def test_what_is_missing_is_said(folder: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(words: str) -> None:
        with pytest.raises(SystemExit, match=words):
            clocks.report(tmp_path)

    refused("results holds no records: make the step `ours` first")
    old = {name: value for name, value in record(SINGLE).items() if not name.startswith("stream")}
    folder([old], {SINGLE: 4500}, gpu="NVIDIA H200")
    refused("have no stream_p50_ns, stream_p50_ns_high, stream_p50_ns_low; make the step")
    pd.DataFrame([record(SINGLE)]).to_parquet(tmp_path / "results/records/run.parquet")
    refused(f"pairbench ran on {GPU}, nvbench on NVIDIA H200")
    (tmp_path / "theirs/triton-0.json").write_text("{")
    refused(r"triton-0.json cannot be read .*: make the step `theirs` again")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for clock in clocks.CLOCKS.values():
        with pytest.raises(SystemExit, match="torch sees no GPU"):
            clock(tmp_path, 0)
