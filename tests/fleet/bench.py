"""Measure what a fleet takes and survives, as README.md beside this file has it. `python -m tests.fleet.bench --scale 0.1` makes a tenth.

On two cores the whole of it takes some fifteen minutes. Needs the extra `fleet`.
"""

import argparse
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pairbench import __version__
from pairbench.features.fleet.dask import NO_HTTP, configured
from pairbench.features.fleet.worker import hosts_of
from tests.fleet.fleet import offer
from tests.fleet.kills import kill_them
from tests.fleet.many import many_workers
from tests.fleet.simulate import Costs, lining_up, simulate

HOSTS, UNITS = 500, 100_000


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def looking(count: int) -> tuple[float, int]:
    """Return the seconds that a look takes for a host, and the bytes of the scheduler's whole answer, which is that of one worker many times."""
    import asyncio

    import distributed
    from distributed.protocol import dumps, loads

    async def answer() -> dict[str, Any]:
        async with (
            distributed.Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address=NO_HTTP) as scheduler,
            distributed.Worker(
                scheduler.address, host="127.0.0.1", nthreads=1, memory_limit=0, dashboard_address=NO_HTTP
            ),
        ):
            return dict(next(iter(scheduler.identity(n_workers=-1)["workers"].values())))

    with configured():
        one = asyncio.run(answer())
        one |= {"pairbench": {"version": __version__, "host": "some-host", "offers": [asdict(offer())]}}
        frames = dumps({"workers": {f"tcp://{number}": one for number in range(count)}})
        began = time.perf_counter()
        hosts = hosts_of(loads(frames)["workers"])
        assert len(hosts) == count
        return (time.perf_counter() - began) / count, sum(map(len, frames))


def main() -> int:
    """Kill, crowd and simulate, and fail where a unit is lost or doubled, or the queue takes too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="how much of everything")
    scale = parser.parse_args().scale
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        units, kills = max(8, round(200 * scale)), (max(1, round(20 * scale)), max(1, round(5 * scale)))
        killed = kill_them(
            Path(folder) / "kills", units=units, workers=4, worker_kills=kills[0], scheduler_kills=kills[1], unit_s=1.0
        )
        say(
            f"kills: {killed.units} units, {killed.worker_kills} workers and {killed.scheduler_kills} schedulers killed: "
            f"{killed.stored} stored, {killed.doubled} doubled, {killed.done} done, exit code {killed.code}, {killed.seconds:.0f} s"
        )
        wrong += (killed.stored, killed.doubled, killed.done, killed.code) != (units, 0, units, 0)
        many = many_workers(Path(folder) / "many", workers=64, units=max(64, round(2000 * scale)), unit_s=3.0)
        memory = [f"{value:.0f}" for value in many.scheduler_mib]
        say(
            f"many: {many.workers} workers, {many.units} units of {many.unit_s} s in {many.seconds:.0f} s, {many.done} done; a host waits "
            f"{many.idle_ms:.0f} ms between two; processor time a unit: command {many.command_cpu_ms:.1f} ms, scheduler "
            f"{many.scheduler_cpu_ms:.1f} ms; scheduler MiB {' '.join(memory)}"
        )
        wrong += many.done != many.units
    say(f"line: {UNITS:,} units lined up and taken by {HOSTS} hosts in {lining_up(HOSTS, UNITS):.2f} s")
    look_s, size = looking(HOSTS)
    say(f"look: {1e6 * look_s:.0f} us and {size / HOSTS / 1000:.1f} kB for each of {HOSTS} hosts, once a second")
    costs = Costs(command_s=many.command_cpu_ms / 1000, look_s=look_s, scheduler_s=many.scheduler_cpu_ms / 1000)
    for unit_s in (1, 3, 10, 60, 300):
        one = simulate(HOSTS, UNITS, unit_s, costs)
        say(
            f"simulated: units of {one.unit_s:.0f} s take {one.hours:.2f} h; busy: hosts {one.hosts_busy:.1%}, command "
            f"{one.command_busy:.1%}, scheduler {one.scheduler_busy:.1%}"
        )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
