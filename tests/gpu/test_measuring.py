"""What the clocks and counters of a GPU must show: agreement with Triton's own timer, quiet pairs, exact launches."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.gpu.commands import pairbench

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

ITSELF = "tests/suites/itself.py"
DEPTHWISE = "depthwise_conv1d[batch=1,channels=2048,dtype=float32,length=21,taps=3]"
CATALOGUE = f"suites/depthwise/conv1d.py::{DEPTHWISE}"
MODES = ("--mode", "eager", "--mode", "graph")


def records_of(store: Path) -> pd.DataFrame:
    return pd.read_parquet(store / "records")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with a run of implementations against themselves and of the smallest depthwise convolution."""
    folder = tmp_path_factory.mktemp("interleaved")
    # Between processes short calls differ by some 0.1 us, of 5 us 2 %, however long each is timed.
    pairbench("run", ITSELF, CATALOGUE, "--tier", "real", *MODES, "--rounds", "9", "--store", str(folder))
    return folder


@pytest.fixture(scope="module")
def do_bench_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with the same implementations timed by Triton's own function."""
    folder = tmp_path_factory.mktemp("do_bench")
    pairbench("run", ITSELF, "--tier", "real", "--timer", "do_bench", "--rounds", "5", "--store", str(folder))
    return folder


def test_an_implementation_is_as_fast_as_itself(store: Path) -> None:
    pairs = records_of(store).query("role == 'variant' and suite == @ITSELF")
    assert len(pairs) >= 16
    assert (pairs.speedup[pairs.call_p50_ns >= 100e3] - 1).abs().median() <= 0.001
    for row in pairs.itertuples():
        # On an H100 graphs of 5 to 7 us are 0.8 us slower in some processes, one of a pair without the other: in 9 rounds that is up to 3 %.
        # One of 30 longer pairs, a product at the power limit, was 0.32 % apart. In both the interval held 1, which is what it has to.
        if row.call_p50_ns >= 100e3:
            off, exact = 0.01, 0.003
        elif row.mode == "graph" and row.call_p50_ns >= 5e3:
            off, exact = 0.05, 0.02
        else:
            continue
        found = (row.case, row.mode, row.speedup, row.speedup_low, row.speedup_high)
        assert abs(row.speedup - 1) <= off, found
        assert row.speedup_low <= 1 + exact and row.speedup_high >= 1 - exact, found


def test_calls_agree_with_do_bench(store: Path, do_bench_store: Path) -> None:
    """Both implementations of a case are one function, and `do_bench` puts them up to 1.4 % apart: their mean counts.

    At the power limit the two do not see the same GPU: `do_bench` leaves it no pause, so products of 4096 ran at 1.70 GHz there and at
    1.94 GHz here, on an H100. Beyond 3 % they may differ by no more than their clocks do.
    """
    by_case = (
        records_of(folder).query("mode == 'eager' and suite == @ITSELF").groupby("case")
        for folder in (store, do_bench_store)
    )
    ours, theirs = (rows[["call_p50_ns", "sm_clock_mhz"]].mean() for rows in by_case)
    long = theirs[theirs.call_p50_ns >= 50e3].index
    assert len(long) >= 6
    for case in long:
        ratio = ours.call_p50_ns[case] / theirs.call_p50_ns[case]
        by_clock = theirs.sm_clock_mhz[case] / ours.sm_clock_mhz[case]
        assert min(1.0, by_clock) - 0.03 <= ratio <= max(1.0, by_clock) + 0.03, (case, ratio, by_clock)


def kernels_in_the_trace(folder: Path) -> int:
    """Count the kernels of one call of the loop in a raw trace, without any of pairbench's counting."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    x, weight = torch.randn(1, 2048, 21, device="cuda"), torch.randn(2048, 1, 3, device="cuda")

    def loop() -> Any:
        groups = zip(x.split(1, 1), weight.split(1), strict=True)
        return torch.cat([torch.nn.functional.conv1d(one, taps) for one, taps in groups], 1)

    loop()
    torch.cuda.synchronize()
    for _ in range(2):  # the first session of a process may record nothing
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as session:
            loop()
            torch.cuda.synchronize()
    session.export_chrome_trace(str(folder / "trace.json"))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    return sum(event.get("cat") == "kernel" for event in events)


def test_launches_are_what_the_trace_holds(store: Path, tmp_path: Path) -> None:
    rows = records_of(store).query("case == @DEPTHWISE").set_index(["implementation", "mode"])
    assert set(rows.launch_status) == {"exact"}
    assert rows.kernels_per_call["baseline", "eager"] == kernels_in_the_trace(tmp_path) > 2048
    for implementation in ("native_groups", "triton"):
        assert rows.launches_per_call[implementation, "eager"] == 1
        assert rows.kernels_per_call[implementation, "graph"] == 1
    graphs = rows.xs("graph", level="mode")
    assert set(graphs.graph_launches_per_call) == set(graphs.launches_per_call) == {1}
    eager = rows.xs("eager", level="mode")
    assert (graphs.kernels_per_call == eager.kernels_per_call[graphs.index]).all()


def test_counts_do_not_change_between_runs(store: Path, tmp_path: Path) -> None:
    pairbench("run", CATALOGUE, "--rounds", "1", "--store", str(tmp_path))
    counts = ["launches_per_call", "kernels_per_call", "memcpys_per_call", "memsets_per_call", "ops_per_call"]
    before = records_of(store).query("case == @DEPTHWISE and mode == 'eager'").set_index("implementation")[counts]
    after = records_of(tmp_path).set_index("implementation")[counts]
    assert before.sort_index().equals(after.sort_index())


def test_device_latency_is_below_the_call_of_a_loop(store: Path) -> None:
    loop = records_of(store).query("case == @DEPTHWISE and implementation == 'baseline' and mode == 'eager'").iloc[0]
    assert loop.device_timer == "graph_replay"
    assert loop.device_p50_ns < loop.call_p50_ns / 2  # the host launches 2048 kernels one by one
    # Round by round: the host's P50 is that of its quickest round, the call's is of all.
    assert loop.call_round_p50_ns == pytest.approx(loop.host_round_p50_ns, rel=0.2)


def test_products_at_the_power_limit_repeat(tmp_path: Path) -> None:
    """On an H200 their rounds differed by 8 %, and runs by 2.7 %, before the GPU rested once it had throttled; since then by 0.4 and 0.2 %."""
    for _ in range(2):
        pairbench("run", "tests/suites/exam.py::product[n=8192]", "--tier", "real", "--store", str(tmp_path))
    for _, runs in records_of(tmp_path).groupby("implementation"):
        rounds = [p50 for of_run in runs.device_round_p50_ns for p50 in of_run]
        assert len(runs) == 2 and len(rounds) == 6
        assert max(rounds) / min(rounds) <= 1.01, rounds
        assert runs.device_p50_ns.max() / runs.device_p50_ns.min() <= 1.005, rounds
