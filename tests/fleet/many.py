"""Many workers on one machine, whose units sleep: what the queue takes of a unit's time, and whether the scheduler grows."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.faults.ports import free_port
from tests.fleet.fleet import environment, make_project, offer, pairbench, plan_of

_SLEEPER = """#!/bin/sh
sleep {seconds}
echo '{{"run_id": "made-up", "summary": {{"statuses": {{"measured": 1}}}}}}'
"""
_PROCESSES = 4


@dataclass(frozen=True)
class Many:
    workers: int
    units: int
    unit_s: float
    seconds: float  # from the first unit to the last, as the command tells
    done: int
    idle_ms: float  # milliseconds that a host waits between two units, on average
    scheduler_mib: tuple[float, ...]  # memory of the scheduler, ten times while units went on
    command_cpu_ms: float  # processor time of the command for a unit, its start included
    scheduler_cpu_ms: float  # processor time of the scheduler for a unit


def many_workers(folder: Path, *, workers: int, units: int, unit_s: float, settle_s: float = 15) -> Many:
    """Have sleeping units done by many workers on this machine."""
    project = folder / "project"
    make_project(project, ops_py="# nobody looks\n")
    sleeper = folder / "sleeper"
    sleeper.write_text(_SLEEPER.format(seconds=unit_s))
    sleeper.chmod(0o755)
    address = f"tcp://127.0.0.1:{free_port()}"
    variables = environment(folder)
    each = workers // _PROCESSES
    starts = [pairbench("fleet", "scheduler", address)]
    starts += [[sys.executable, "-m", "tests.fleet.many", address, str(sleeper), str(each)]] * _PROCESSES
    processes = [
        subprocess.Popen(command, cwd=project, env=variables, stderr=subprocess.DEVNULL, start_new_session=True)
        for command in starts
    ]
    try:
        time.sleep(settle_s)
        plan = plan_of(folder / "plan.json", None, units)
        command = pairbench(
            "fleet", "run", str(plan), "--store", str(folder / "store"), "--scheduler", address, "--format", "json"
        )
        before = _cpu_s(processes[0].pid)
        memory: list[float] = []
        spent_by_command = 0.0
        ideal = units * unit_s / (each * _PROCESSES)
        # To a file: it is more than a pipe holds, and nobody reads before the end.
        with (folder / "out.json").open("wb") as output:
            run = subprocess.Popen(command, cwd=project, env=variables, stdout=output, stderr=subprocess.DEVNULL)
            while run.poll() is None:
                spent_by_command = _cpu_s(run.pid)
                memory.append(_memory_mib(processes[0].pid))
                time.sleep(ideal / 12)
        out = (folder / "out.json").read_text()
        cpu = _cpu_s(processes[0].pid) - before
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
    document = json.loads(out)
    seconds, spent = document["seconds"], [unit["seconds"] for unit in document["units"]]
    counts = Counter(unit["host"] for unit in document["units"])
    # What hosts wait for at the end, since units do not go into them evenly, is no matter of the queue.
    uneven = sum(max(counts.values()) - count for count in counts.values()) * sum(spent) / units
    return Many(
        workers=each * _PROCESSES,
        units=units,
        unit_s=unit_s,
        seconds=seconds,
        done=sum(unit["end"] == "done" for unit in document["units"]),
        idle_ms=1000 * (seconds * each * _PROCESSES - sum(spent) - uneven) / units,
        command_cpu_ms=1000 * spent_by_command / units,
        scheduler_mib=tuple(memory),
        scheduler_cpu_ms=1000 * cpu / units,
    )


def _memory_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _serve(address: str, sleeper: str, count: int) -> None:
    """Serve as several workers, without looking at the devices, which takes torch."""
    import asyncio
    import tempfile

    from pairbench.features.fleet.dask import configured
    from pairbench.features.fleet.worker import _Worker

    async def serve(folder: str) -> None:
        made = []
        for number in range(count):
            name = f"{os.getpid()}-{number}"
            own = offer(f"cpu-{name}", kind="cpu", model="made-up", selector="cpu")
            logs = Path(folder) / name
            logs.mkdir()
            worker = _Worker(name, (own,), address, logs, lambda _: None, python=sleeper, watches=False)
            made.append(worker.serve())
        await asyncio.gather(*made)

    with configured(), tempfile.TemporaryDirectory() as folder:
        asyncio.run(serve(folder))


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
