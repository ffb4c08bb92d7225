"""The attacks on pairbench, by name: what each does, how often, and what it needs."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults import crowd, damaged, failing, flips, imports, kill_imports, kills, messages, reading, s3
from tests.faults.seen import Seen


@dataclass(frozen=True)
class Attack:
    """Something that is done to pairbench."""

    what: str  # for the table
    tried: str | tuple[str, ...]  # which of the attack's counts are tries, by their beginnings
    tries: int  # how many, in all parts together; for some, seconds
    make: Callable[[int, int], Seen]  # makes it, given how many tries and a seed
    parts: int = 1  # into how many processes it is divided, each with another seed
    limit_s: float = 1500.0
    needs: Callable[[], str] = lambda: ""  # returns what is missing here, or nothing


def _read_damaged(tries: int, _: int) -> Seen:
    names = list(damaged.DAMAGES)[:: max(1, -(-len(damaged.DAMAGES) // tries))]
    return reading.read_damaged({name: damaged.DAMAGES[name] for name in names})


def _crowd(seconds: int, _: int) -> Seen:
    with tempfile.TemporaryDirectory() as folder:
        return crowd.crowd(f"{folder}/store", seconds)


def _crowd_on_s3(seconds: int, _: int) -> Seen:
    os.environ.update(s3.ENVIRONMENT)
    with tempfile.TemporaryDirectory() as folder, s3.object_store(Path(folder) / "log") as port:
        return crowd.crowd(s3.url_of(port), seconds, dashboards=1)


def _failing_s3(tries: int, _: int) -> Seen:
    os.environ.update(s3.ENVIRONMENT)
    return failing.fail_elsewhere(puts=failing.FILES[: max(1, tries // 4)])


def _no_server() -> str:
    return "" if s3.server_command() else f"no S3 server: {s3.VARIABLE} names its command"


_KILLS = "runs of which parent, worker, server, two of them or all are killed"
_LOOKS = ("times read", "times listed", "sites built", "runs closed")
_FAILING = "runs in the middle of which S3 fails, is slow, refuses or hangs"


# By name, those that take long first.
ATTACKS: dict[str, Attack] = {
    "kills": Attack(_KILLS, "kill -9", 210, lambda tries, seed: kills.trials(tries, 0, seed, jobs=1), 7),
    "interrupts": Attack(
        "runs that get Ctrl-C, SIGHUP or SIGTERM",
        "SIG",
        60,
        lambda tries, seed: kills.trials(0, tries, seed, jobs=1),
        2,
    ),
    "crowd": Attack("8 writers, 3 readers and a dashboard on one store for 3 minutes", _LOOKS, 180, _crowd),
    "crowd-s3": Attack("the same on S3", _LOOKS, 180, _crowd_on_s3, needs=_no_server),
    "failing-s3": Attack(_FAILING, "runs", 16, _failing_s3, needs=_no_server),
    "flips": Attack(
        "flipped bits, each read by 11 readers",
        "bits flipped",
        1000,
        lambda tries, seed: flips.flip_bits(tries, seed=seed),
        2,
    ),
    "imports": Attack("fuzzed imports", "files", 2500, lambda tries, _: imports.import_fuzzed(tries)),
    "messages": Attack("fuzzed messages of workers", "messages", 7500, lambda tries, _: messages.tell(tries)),
    "damaged": Attack("damaged stores, each with all commands", "commands", 1000, _read_damaged),
    "killed-imports": Attack(
        "imports that are killed, each before another line",
        "killed",
        150,
        lambda tries, _: kill_imports.kill_imports(tries),
    ),
    "disks": Attack(
        "runs whose disk is full",
        "runs",
        5,
        lambda tries, _: failing.fail_for_space(failing.PARTS_OF_DISK[:tries]),
        needs=lambda: "" if failing.may_mount() else "making a disk takes rights of an administrator",
    ),
}
