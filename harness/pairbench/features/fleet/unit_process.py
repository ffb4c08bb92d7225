"""A unit on its host: `pairbench run` in a process of its own, which ends when its worker does. Dask calls `run_unit`, and nothing else.

JSON goes in and comes out. What was measured is in the store before anything comes back.
"""

import json
import os
import platform
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pairbench.execute.orphans import die_with
from pairbench.features.fleet.commits import BuildError, Code, Commits, tail_of
from pairbench.model.unit import VARIABLE, Unit, UnitEnd

PLUGIN = "pairbench"
BUSY = "busy"
"""What comes back of a unit that was not begun, for others are at work on the host."""
_POLL_S, _GRACE_S = 0.2, 30.0
"""Seconds between two looks at the process, and those that it has to end in order."""
_USAGE, _INTERRUPTED = 2, 130


@dataclass(frozen=True, kw_only=True)
class UnitContext:
    """What a worker has for its units."""

    python: str
    """The interpreter whose pairbench measures."""
    commits: Commits
    logs: Path
    held_up: Callable[[], str | None]
    """Says who else is at work on the host; None where nobody is."""


def run_unit(text: str) -> str:
    """Measure a unit on the host of this worker."""
    from distributed import get_worker

    worker = get_worker()
    context: UnitContext = worker.plugins[PLUGIN].context
    key = worker.get_current_task()

    def given_up() -> bool:
        """Tell whether nobody waits for this any more: the scheduler is gone, or whoever asked."""
        task = worker.state.tasks.get(key)
        return worker.status.name not in ("running", "paused") or task is None or task.state == "cancelled"

    return json.dumps(measure(json.loads(text), context, given_up))


def measure(asked: Mapping[str, Any], context: UnitContext, given_up: Callable[[], bool]) -> dict[str, Any]:
    """Return what became of a unit. See `run_unit`."""
    began = time.monotonic()
    unit = Unit.of(asked["unit"], "unit")
    if why := context.held_up():
        return {"end": BUSY, "reason": why, "host": platform.node()}
    try:
        with context.commits.code(unit.commit) as code:
            found = _run(unit, asked, code, context, given_up)
    except BuildError as error:
        found = {"end": UnitEnd.SKIPPED, "reason": str(error), "log": error.log}
    return {**found, "host": platform.node(), "seconds": time.monotonic() - began}


def _run(
    unit: Unit, asked: Mapping[str, Any], code: Code, context: UnitContext, given_up: Callable[[], bool]
) -> dict[str, Any]:
    command = [context.python, "-P", "-m", "pairbench", "run", "--format", "json", "--device", asked["device"]]
    command += ["--store", asked["store"], "--skip-existing", *unit.options()]
    log = context.logs / f"unit-{unit.key}.log"
    with tempfile.TemporaryFile() as output, log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=code.folder,
            env=_environment(unit, code),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            preexec_fn=partial(die_with, os.getpid()),  # noqa: PLW1509 (one call into libc)
        )
        ended = _ended(process, given_up)
        output.seek(0)
        document = _document(output.read())
    if ended == _INTERRUPTED:
        return {"end": UnitEnd.NOT_DONE, "reason": "interrupted; what was finished is in the store"}
    if ended not in (0, 1) or document is None:
        end = UnitEnd.SKIPPED if ended == _USAGE else UnitEnd.FAILED
        tail = tail_of(log)
        last = next((line for line in reversed(tail.splitlines()) if line.startswith("pairbench: ")), "")
        why = last.removeprefix("pairbench: ") or f"`pairbench run` ended with status {ended}"
        return {"end": end, "reason": why, "log": tail}
    log.unlink(missing_ok=True)
    statuses = document["summary"]["statuses"]
    if not statuses:
        return {"end": UnitEnd.STORED, "statuses": {}}
    return {"end": UnitEnd.DONE, "run_id": document["run_id"], "statuses": statuses}


def _environment(unit: Unit, code: Code) -> dict[str, str]:
    """Return the worker's environment without what Dask has set in it, and with what the unit's commit has built."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
    if code.installed is not None:
        paths = [str(code.installed), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return {**environment, VARIABLE: unit.key}


def _ended(process: "subprocess.Popen[bytes]", given_up: Callable[[], bool]) -> int:
    """Wait for a process, and return its status; one that nobody waits for any more is asked to end, and then killed."""
    deadline = None
    while True:
        try:
            return process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            now = time.monotonic()
            if deadline is None and given_up():
                process.send_signal(signal.SIGINT)
                deadline = now + _GRACE_S
            elif deadline is not None and now > deadline:
                process.kill()


def _document(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "summary" in found else None
