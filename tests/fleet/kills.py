"""Workers and the scheduler are killed while units go on: every unit is stored once, and the command ends with all of them done."""

import contextlib
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from pairbench.store.reader import read_frame
from tests.fleet.fleet import Fleet, environment, make_project, plan_of, standin

_HASH = """
from pathlib import Path
from pairbench.config import load_config
from pairbench.features.fleet.worker import examine_host
print(examine_host(load_config(Path.cwd()), "cpu")[1][0].environment_hash)
"""


@dataclass(frozen=True)
class Killed:
    units: int
    stored: int
    doubled: int
    done: int
    code: int
    worker_kills: int
    scheduler_kills: int
    seconds: float
    said: str


def kill_them(
    folder: Path, *, units: int, workers: int, worker_kills: int, scheduler_kills: int, unit_s: float, seed: int = 0
) -> Killed:
    """Kill at random, over the time that the units take, in an empty folder; `unit_s` is the seconds of a unit, `seed` that of chance."""
    project = folder / "project"
    commit = make_project(project, ops_py="# the stand-in looks at no file\n")
    made = subprocess.run(
        [sys.executable, "-c", _HASH], cwd=project, env=environment(folder), check=True, capture_output=True, text=True
    )
    plan = plan_of(folder / "plan.json", commit, units)
    more = {"STANDIN_SECONDS": str(unit_s), "STANDIN_ENVIRONMENT": made.stdout.split()[-1]}
    options = ("--python", str(standin(folder)))
    with Fleet(folder, project, workers=workers, worker_options=options, **more) as fleet:
        began = time.monotonic()
        run = fleet.start_run(str(plan), "--store", str(folder / "store"), "--format", "json")
        ended = threading.Event()

        def kill() -> None:
            while not any((folder / "store").rglob("*.parquet")) and not ended.wait(0.1):
                pass  # the first unit is not done, so there is nothing to lose
            span = units * (unit_s + 0.7) / workers
            for _ in fleet.kill_at_random(worker_kills, scheduler_kills, span, random.Random(seed)):
                if ended.is_set():
                    return

        killer = threading.Thread(target=kill)
        killer.start()
        out, said = run.communicate(timeout=1800)
        ended.set()
        killer.join()
        seconds = time.monotonic() - began
    frame, problems = read_frame(str(folder / "store"), columns=("case", "commit"))
    counts = Counter(frame["case"])
    document: dict[str, list[dict[str, str]]] = {"units": []}
    with contextlib.suppress(ValueError):
        document = json.loads(out)
    ends = Counter(unit["end"] for unit in document["units"])
    return Killed(
        units=units,
        stored=len(counts),
        doubled=sum(count - 1 for count in counts.values()),
        done=ends["done"] + ends["stored"],
        code=run.returncode,
        worker_kills=fleet.kills["worker"],
        scheduler_kills=fleet.kills["scheduler"],
        seconds=seconds,
        said=said + "\n".join(problems),
    )
