"""Set pairbench's latencies beside other people's clocks: nvbench, and Triton's `do_bench` and `do_bench_cudagraph`.

python -m tests.lab.exam.clocks FOLDER [--steps ours theirs report]

Entries of `tests/suites/exam.py`, single kernels and chains of them, are measured on the first GPU: by `pairbench run` into
FOLDER/results, then by the other clocks, each three times over all entries in a process of its own, with the same functions, inputs
and flags. The report goes to FOLDER/clocks.md as well, needs no GPU, and ends with 1 where a goal is missed.
"""

import argparse
import functools
import importlib
import importlib.metadata
import json
import math
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

ROOT = Path(__file__).parents[3]
SUITE = ROOT / "tests/suites/exam.py"
OPERATORS = ("gelu", "layer_norm", "product", "softmax", "launches", "twice_a")
PROCESSES = 3
STEPS = ("ours", "theirs", "report")
NVBENCH = ("--stopping-criterion", "sample-count", "--target-samples", "2000", "--timeout", "0.5")
"""Half a second an entry is nvbench's own `--min-time`; its criterion by noise would take 15 s for a call of 4 us."""
WARM_UP = ("--cold-warmup-runs", "10")
"""In these the caching allocator, cuBLAS and Triton get what they need: where a call has to wait for the device, nvbench's blocking kernel never ends."""
OURS = ("device_p50_ns", "stream_p50_ns", "call_p50_ns")
COUNTS = ("kernels_per_call", "memcpys_per_call", "memsets_per_call")
VERSIONS = ("device_name", "driver", "cuda", "torch", "triton")
IDENTITY = ("run_id", "started_at", "commit", "case", "implementation", "status", "reason", "sm_clock_mhz")
INTERVALS = tuple(f"{latency}_p50_ns_{end}" for latency in ("device", "stream") for end in ("low", "high"))
THEIRS = ("nvbench", "do_bench", "do_bench_cudagraph")

Found = dict[str, float | str]
"""By entry: what a clock says in one process, or why it says nothing."""


def main() -> int:
    """Make the steps that are asked for; 1 where the report has an entry that misses its goal."""
    options = _options()
    folder: Path = options.folder.resolve()
    if options.clock:
        CLOCKS[options.clock](folder, options.process)
        return 0
    if "theirs" in options.steps:
        _cuda_bench_version()
    status = 0
    for step in options.steps:
        began = time.monotonic()
        match step:
            case "ours":
                _ours(folder)
            case "theirs":
                _theirs(folder)
            case "report":
                text, status = report(folder)
                (folder / "clocks.md").write_text(text, encoding="utf-8")
                sys.stdout.write(text)
        sys.stderr.write(f"{step}: {time.monotonic() - began:.0f} s\n")
    return status


@functools.cache
def entries() -> dict[str, tuple[Any, Any, str]]:
    """Return operator, case and implementation of each entry, by its name in the report."""
    from pairbench.suite.modules import load_suite

    operators = load_suite(SUITE)
    return {
        f"{case.key}-{implementation}": (operators[name], case, implementation)
        for name in OPERATORS
        for case in operators[name].cases
        for implementation in operators[name].implementations
    }


def call_of(operator: Any, case: Any, implementation: str, device: Any) -> Callable[[], Any]:
    """Return an entry's call as pairbench's workers time it."""
    from pairbench.execute.worker.calls import SEEDS, build_inputs, make_call
    from pairbench.execute.worker.flags import pin_flags

    pin_flags(tf32=False)
    inputs = build_inputs(operator, case, device, SEEDS[0])
    run: Callable[[], Any] = make_call(operator, operator.implementations[implementation], "eager", inputs).run
    return run


def _ours(folder: Path) -> None:
    selected = [f"{SUITE}::{operator}" for operator in OPERATORS]
    options = ["--tier", "real", "--rounds", "3", "--device", "cuda:0", "--store", str(folder / "results")]
    done = subprocess.run([sys.executable, "-m", "pairbench", "run", *selected, *options], cwd=ROOT, check=False)
    if done.returncode not in (0, 1):  # 1: an entry is wrong, which the report says
        raise SystemExit(f"clocks: pairbench run ended with {done.returncode}; what it says above comes first")


def _theirs(folder: Path) -> None:
    shutil.rmtree(folder / "theirs", ignore_errors=True)
    (folder / "theirs").mkdir(parents=True)
    for process in range(PROCESSES):
        for clock in CLOCKS:
            command = [sys.executable, "-m", "tests.lab.exam.clocks", str(folder), "--clock", clock]
            done = subprocess.run([*command, "--process", str(process)], cwd=ROOT, check=False)
            if done.returncode:
                raise SystemExit(f"clocks: {clock} ended with {done.returncode} in process {process}; see above")


def _cuda_bench_version() -> str:
    try:
        return importlib.metadata.version("cuda-bench")
    except importlib.metadata.PackageNotFoundError:
        raise SystemExit("clocks: nvbench is not installed: pip install cuda-bench==0.3.0") from None


def _in_order_of(process: int) -> list[str]:
    names = list(entries())
    random.Random(process).shuffle(names)
    return names


def _made_ready(name: str) -> Callable[[], Any]:
    """Return the call of an entry on the first GPU, called once; memory of the entry before is given back."""
    import torch

    torch.cuda.empty_cache()
    call = call_of(*entries()[name], torch.device("cuda", 0))
    call()
    torch.cuda.synchronize()
    return call


def _by_nvbench(folder: Path, process: int) -> None:
    """Have nvbench write what it finds into FOLDER/theirs/nvbench-N.json."""
    import torch

    _need_gpu()
    bench = importlib.import_module("cuda.bench")

    def clocked(state: Any) -> None:
        stream = torch.cuda.ExternalStream(state.get_stream().addressof())
        call = _made_ready(state.get_string("entry"))

        def launch(_: object) -> None:
            with torch.cuda.stream(stream):
                call()

        state.exec(launch, batched=False)

    try:
        bench.register(clocked).add_string_axis("entry", _in_order_of(process))
    except ImportError as error:  # the part that is compiled for one CUDA is loaded here
        raise SystemExit(f"clocks: cuda-bench cannot be loaded: {error}") from None
    file = folder / f"theirs/nvbench-{process}.json"
    # The first argument is the program's name, which nvbench keeps in its file and does not read.
    name = f"cuda-bench {_cuda_bench_version()}"
    bench.run_all_benchmarks([name, "--quiet", "--devices", "0", *NVBENCH, *WARM_UP, "--json", str(file)])


def _by_triton(folder: Path, process: int) -> None:
    """Write what `do_bench` and `do_bench_cudagraph` find, in ns, into FOLDER/theirs/triton-N.json."""
    from triton.testing import do_bench, do_bench_cudagraph

    _need_gpu()
    found: dict[str, Found] = {clock.__name__: {} for clock in (do_bench, do_bench_cudagraph)}
    for name in _in_order_of(process):
        for clock in (do_bench, do_bench_cudagraph):
            try:
                found[clock.__name__][name] = 1e6 * clock(_made_ready(name), return_mode="median")
            except Exception as error:  # noqa: BLE001 (the others go on, and the report says why this one is not there)
                found[clock.__name__][name] = f"{type(error).__name__}: {error}"
    (folder / f"theirs/triton-{process}.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


CLOCKS = {"nvbench": _by_nvbench, "triton": _by_triton}


def _need_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("clocks: torch sees no GPU; `pairbench doctor` tells what is missing")


def read_nvbench(document: dict[str, Any]) -> tuple[Found, Found]:
    """Return the median of cold GPU times in ns and the SMs' mean clock in MHz, by entry, of a file that nvbench wrote."""
    medians: Found = {}
    clocks: Found = {}
    for state in document["benchmarks"][0]["states"]:
        name = next(axis["value"] for axis in state["axis_values"] if axis["name"] == "entry")
        values = {
            summary["tag"]: float(datum["value"])
            for summary in state["summaries"] or ()
            for datum in summary.get("data") or ()
            if datum["name"] == "value"
        }
        if state["is_skipped"]:
            medians[name] = state["skip_reason"]
        elif "nv/cold/time/gpu/median" not in values:
            medians[name] = "it took no sample that it believed"
        else:
            medians[name] = 1e9 * values["nv/cold/time/gpu/median"]
            clocks[name] = values.get("nv/cold/sm_clock_rate/mean", math.nan) / 1e6
    return medians, clocks


def report(folder: Path) -> tuple[str, int]:
    """Return the clocks side by side as Markdown, and 1 where an entry misses its goal, else 0."""
    ours = _records(folder)
    found, clocks, nvbench = _others(folder, str(ours["device_name"].iloc[0]))
    rows, problems = [], []
    for name in sorted({*ours.index, *(name for each in found["nvbench"] for name in each)}):
        row = _row(name, ours, found)
        if isinstance(row, str):
            problems.append(f"- {name}: {row}")
            continue
        rows.append(row)
        if not row["holds"]:
            mhz = statistics.median(float(each[name]) for each in clocks)
            problems.append(_missed(row, ours.loc[name], [each[name] for each in found["nvbench"]], mhz))
    rows.sort(key=lambda row: (not row["single"], row["nvbench"]))
    goals = {row["goal"]: [each["holds"] for each in rows if each["goal"] == row["goal"]] for row in rows}
    counted = [f"- {name}: {sum(holds)} of {len(holds)}" for name, holds in goals.items()]
    lines = [*_head(ours, nvbench), "", *_table(rows), "", *counted, "", *problems]
    return "\n".join(lines).rstrip() + "\n", int(bool(problems))


def goal(single: bool, nvbench_ns: float) -> tuple[str, float]:
    """Return what is asked of a single kernel, or of a chain, and by how many ns it may differ from nvbench for that."""
    if single:
        if nvbench_ns < 10e3:
            return "single kernels below 10 us: `device` within 0.3 us", 300
        return "single kernels from 10 us up: `device` within 2 %", 0.02 * nvbench_ns
    if nvbench_ns <= 100e3:
        return "chains up to 100 us: `stream` within 3 %", 0.03 * nvbench_ns
    return "chains above 100 us: `stream` within 1 %", 0.01 * nvbench_ns


def _records(folder: Path) -> pd.DataFrame:
    """Return the records of the newest run, by entry."""
    try:
        rows = pd.read_parquet(folder / "results/records")
    except FileNotFoundError:
        raise SystemExit(f"clocks: {folder}/results holds no records: make the step `ours` first") from None
    if missing := sorted({*IDENTITY, *VERSIONS, *OURS, *INTERVALS, *COUNTS} - set(rows)):
        raise SystemExit(
            f"clocks: the records in {folder}/results have no {', '.join(missing)}; make the step `ours` again, by a pairbench that has them"
        )
    rows = rows[rows["run_id"] == rows["run_id"].max()]
    return rows.set_index(rows["case"] + "-" + rows["implementation"])


def _others(folder: Path, gpu: str) -> tuple[dict[str, list[Found]], list[Found], str]:
    """Return what the other clocks found, by clock and process, nvbench's SM clocks by process, and its version."""
    found: dict[str, list[Found]] = {clock: [] for clock in THEIRS}
    clocks, version = [], ""
    for process in range(PROCESSES):
        by_nvbench, by_triton = (_read(folder / f"theirs/{clock}-{process}.json") for clock in CLOCKS)
        if (other := by_nvbench["devices"][0]["name"]) != gpu:
            raise SystemExit(f"clocks: pairbench ran on {gpu}, nvbench on {other}: make both steps on one machine")
        version = by_nvbench["meta"]["argv"][0]
        medians, mhz = read_nvbench(by_nvbench)
        clocks.append(mhz)
        for clock, each in {"nvbench": medians, **by_triton}.items():
            found[clock].append(each)
    return found, clocks, version


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SystemExit(f"clocks: {file} cannot be read ({error}): make the step `theirs` again") from None


def _row(name: str, ours: pd.DataFrame, found: dict[str, list[Found]]) -> dict[str, Any] | str:
    """Return a row of the table, or why there is none."""
    if name not in ours.index:
        return "pairbench has no record of it"
    record = ours.loc[name]
    if record["status"] != "measured":
        return f"pairbench: {record['status']}, {record['reason']}"
    if missing := [column for column in (*OURS, *COUNTS) if pd.isna(record[column])]:
        return f"pairbench has no {', '.join(missing)}"
    times = {}
    for clock, processes in found.items():
        said = [each.get(name, "it was not asked") for each in processes]
        if reasons := [why for why in said if isinstance(why, str)]:
            return f"{clock}: {reasons[0]}"
        times[clock] = statistics.median(map(float, said))
    single = sum(record[column] for column in COUNTS) == 1
    latency = "device" if single else "stream"
    measured, nvbench = record[f"{latency}_p50_ns"], times["nvbench"]
    asked, allowed_ns = goal(single, nvbench)
    return {
        "entry": name,
        "kernels": int(record["kernels_per_call"]),
        **{column.removesuffix("_p50_ns"): record[column] for column in OURS},
        **times,
        "single": single,
        "latency": latency,
        "ours": measured,
        "percent": 100 * (measured / nvbench - 1),
        "us": (measured - nvbench) / 1e3,
        "goal": asked,
        "allowed_ns": allowed_ns,
        "holds": abs(measured - nvbench) <= allowed_ns,
    }


def _missed(row: dict[str, Any], record: "pd.Series[Any]", nvbench: list[Any], nvbench_mhz: float) -> str:
    """Return by how much an entry misses its goal, and what may tell whose clock is off: how far each spreads, and how fast the GPU ran."""
    low, high = (record[f"{row['latency']}_p50_ns_{end}"] / 1e3 for end in ("low", "high"))
    return (
        f"- {row['entry']}: {row['percent']:+.1f} %, {row['us']:+.2f} us, where {row['allowed_ns'] / 1e3:.2g} us are allowed: "
        f"{row['latency']} {row['ours'] / 1e3:.4g} us ({low:.4g} to {high:.4g}) at {record['sm_clock_mhz']:.0f} MHz, "
        f"nvbench {', '.join(f'{median / 1e3:.4g}' for median in nvbench)} us at {nvbench_mhz:.0f} MHz"
    )


def _head(ours: pd.DataFrame, nvbench: str) -> Iterator[str]:
    record = ours.iloc[0]
    commit = "" if pd.isna(record["commit"]) else f", pairbench at {record['commit'][:7]}"
    yield (
        f"{record['device_name']}, driver {record['driver']}, CUDA {record['cuda']}, torch {record['torch']}, triton {record['triton']}, "
        f"{nvbench}{commit}, {str(record['started_at'])[:10]}. All are medians in us: pairbench's of three rounds; of the others the median of "
        f"{PROCESSES} processes, of the median of nvbench's cold GPU times in each, and of what Triton's functions return for `median`. "
        "Single kernels are compared by `device`, chains by `stream`, both with nvbench."
    )


def _table(rows: list[dict[str, Any]]) -> Iterator[str]:
    times = ("device", "stream", "call", *THEIRS)
    yield "| entry | kernels | " + " | ".join(times) + " | compared | in % | in us | holds |"
    yield "| --- |" + " ---: |" * (1 + len(times)) + " --- | ---: | ---: | --- |"
    for row in rows:
        cells = [row["entry"], row["kernels"], *(f"{row[clock] / 1e3:.4g}" for clock in times), row["latency"]]
        cells += [f"{row['percent']:+.1f}", f"{row['us']:+.2f}", "yes" if row["holds"] else "**no**"]
        yield f"| {' | '.join(map(str, cells))} |"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where results go; it may be there")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--clock", choices=CLOCKS, help="measure by this clock alone, as the step `theirs` has it done")
    parser.add_argument("--process", type=int, default=0, help="the number of that process")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
