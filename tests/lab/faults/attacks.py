"""The attacks on pairbench, by name: what each does, how often, and what it needs."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Attack:
    """Something that is done to pairbench."""

    what: str
    """For the table."""
    module: str
    """Where it is, in this folder; an attack whose module is not there is left out."""
    make: Callable[[Any, int, int], Any]
    """Makes it, given the module, how many tries, and a seed; what it returns has `counts` and `wrong`."""
    tries: int
    """How many, in all parts together; for some, seconds."""
    tried: tuple[str, ...]
    """Which of the attack's counts are tries, by their beginnings."""
    parts: int = 1
    """Into how many processes it is divided, each with another seed."""
    limit_s: float = 1500.0
    needs: Callable[[], str] = lambda: ""
    """Returns what is missing here, or nothing."""


def _of_reading(module: Any, tries: int, _: int) -> Any:
    damages = import_module("tests.faults.damaged").DAMAGES
    names = list(damages)[:: max(1, -(-len(damages) // tries))]
    return module.read_damaged({name: damages[name] for name in names})


def _of_crowd(module: Any, tries: int, _: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return module.crowd(f"{folder}/store", tries)


def _of_crowd_elsewhere(module: Any, tries: int, _: int) -> Any:
    s3 = import_module("tests.faults.s3")
    os.environ.update(s3.ENVIRONMENT)
    with tempfile.TemporaryDirectory() as folder, s3.object_store(Path(folder) / "log") as port:
        return module.crowd(s3.url_of(port), tries, dashboards=1)


def _of_elsewhere(module: Any, tries: int, _: int) -> Any:
    os.environ.update(import_module("tests.faults.s3").ENVIRONMENT)
    return module.fail_elsewhere(puts=module.FILES[: max(1, tries // 4)])


def _no_server() -> str:
    if find_spec("tests.faults.s3") is None or import_module("tests.faults.s3").server_command() is None:
        return "no S3 server: PAIRBENCH_S3_SERVER names its command"
    return ""


def _no_mount() -> str:
    return "" if import_module("tests.faults.failing").may_mount() else "making a disk takes rights of an administrator"


ATTACKS: dict[str, Attack] = {
    "kills": Attack(
        what="runs of which parent, worker, server, two of them or all are killed",
        module="kills",
        make=lambda module, tries, seed: module.trials(tries, 0, seed, jobs=1),
        tries=210,
        tried=("kill -9",),
        parts=7,
    ),
    "interrupts": Attack(
        what="runs that get Ctrl-C, SIGHUP or SIGTERM",
        module="kills",
        make=lambda module, tries, seed: module.trials(0, tries, seed, jobs=1),
        tries=60,
        tried=("SIG",),
        parts=2,
    ),
    "crowd": Attack(
        what="8 writers, 3 readers and a dashboard on one store for 3 minutes",
        module="crowd",
        make=_of_crowd,
        tries=180,
        tried=("times read", "times listed", "sites built", "runs closed"),
    ),
    "crowd-s3": Attack(
        what="the same on S3",
        module="crowd",
        make=_of_crowd_elsewhere,
        tries=180,
        tried=("times read", "times listed", "sites built", "runs closed"),
        needs=_no_server,
    ),
    "failing-s3": Attack(
        what="runs in the middle of which S3 fails, is slow, refuses or hangs",
        module="failing",
        make=_of_elsewhere,
        tries=16,
        tried=("runs",),
        needs=_no_server,
    ),
    "flips": Attack(
        what="flipped bits, each read by 11 readers",
        module="flips",
        make=lambda module, tries, seed: module.flip_bits(tries, seed=seed),
        tries=1000,
        tried=("bits flipped",),
        parts=2,
    ),
    "imports": Attack(
        what="fuzzed imports",
        module="imports",
        make=lambda module, tries, _: module.import_fuzzed(tries),
        tries=2500,
        tried=("files",),
    ),
    "messages": Attack(
        what="fuzzed messages of workers",
        module="messages",
        make=lambda module, tries, _: module.tell(tries),
        tries=7500,
        tried=("messages",),
    ),
    "damaged": Attack(
        what="damaged stores, each with all commands",
        module="reading",
        make=_of_reading,
        tries=1000,
        tried=("commands",),
    ),
    "killed-imports": Attack(
        what="imports that are killed, each before another line",
        module="kill_imports",
        make=lambda module, tries, _: module.kill_imports(tries),
        tries=150,
        tried=("killed",),
    ),
    "disks": Attack(
        what="runs whose disk is full",
        module="failing",
        make=lambda module, tries, _: module.fail_for_space(module.PARTS_OF_DISK[:tries]),
        tries=5,
        tried=("runs",),
        needs=_no_mount,
    ),
}
"""By name, those that take long first."""
