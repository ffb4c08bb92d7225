"""Stands in for `python -m pairbench run` of a unit: sleeps, and then stores one record as a run does. Torch would take most of the time.

Started as the interpreter of a worker: `pairbench fleet worker ... --python tests/fleet/standin`.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

from pairbench.errors import EmptyStoreError
from pairbench.model.unit import VARIABLE, marked
from pairbench.store.location import StoreLocation
from pairbench.store.reader import read_frame
from tests.builders import make_run, write_runs

SECONDS, ENVIRONMENT = "STANDIN_SECONDS", "STANDIN_ENVIRONMENT"


def main(arguments: list[str]) -> None:
    place = StoreLocation.of(arguments[arguments.index("--store") + 1])
    case = f"{arguments[-1].rpartition('::')[2]}[n=1]"
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    run_id = marked(f"{time.strftime('%Y%m%dT%H%M%S')}-{time.time_ns() % 10**9:09d}", os.environ[VARIABLE])
    statuses = {}
    if not _there(place, case, commit):
        time.sleep(float(os.environ[SECONDS]))
        row: dict[str, Any] = {"commit": commit, "environment_hash": os.environ[ENVIRONMENT], "run_id": run_id}
        write_runs(place, make_run(cases=[case], implementations=["baseline"], rounds=1, **row))
        statuses = {"measured": 1}
    sys.stdout.write(json.dumps({"run_id": run_id, "summary": {"statuses": statuses}}))


def _there(place: StoreLocation, case: str, commit: str) -> bool:
    try:
        frame, _ = read_frame(place, columns=("case",), where={"case": case, "commit": commit})
    except EmptyStoreError:
        return False
    return len(frame) > 0


if __name__ == "__main__":
    main(sys.argv[1:])
