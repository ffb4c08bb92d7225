"""The verbs that are groups: `pairbench store`, push, compact, check and prune, and `pairbench fleet`, many hosts that measure into one store."""

import sys
from pathlib import Path

import typer

from pairbench.cli.options import Given, Text, Texts, argument, option, verb
from pairbench.cli.say import put, put_rows, remark
from pairbench.errors import UsageError

store_verbs = typer.Typer(
    help="Look after a store: publish what it did not take, merge old records, name damage, remove old samples.\n\n"
    "Example: pairbench store check",
    no_args_is_help=True,
    rich_markup_mode=None,
)
fleet_verbs = typer.Typer(
    help="Measure on many hosts: one scheduler, a worker a host, and a command that hands out units. All of them trust one another.\n\n"
    "Example: pairbench fleet run suites --scheduler tls://head:8786 --store s3://bucket/results",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@store_verbs.command()
@verb("store output")
def push(given: Given) -> int | None:
    """Publish results that a store did not take when they were measured, each into the store that it was meant for, or all into --store.

    They wait in a folder of yours, which the run has named. Published again, nothing is doubled. Exit code: 4 where something
    still waits, which is said; else 0.

    Example: pairbench store push --store s3://bucket/results
    """
    from pairbench.features.upkeep import WAITS, push_waiting
    from pairbench.store.writer import waiting

    rows = [push_waiting(given.config, one, given=given.store is not None) for one in list(waiting())]
    shown = [{name: row[name] for name in row if name != "reason"} for row in rows]
    put_rows("pushed", rows if given.output == "json" else shown, given.output, empty="Nothing waits to be published")
    remark(*(row["reason"] for row in rows if "reason" in row))
    return 4 if any(row["outcome"] == WAITS for row in rows) else 0


@store_verbs.command()
@verb(
    "store keep output", keep=option("How many of the newest runs of each device model keep files of their own.", min=0)
)
def compact(given: Given, keep: int = 100) -> int | None:
    """Merge the records of old runs into one file a device model and month, so that `trend` reads pieces of few files. Loses nothing.

    Every row stays as it is, and samples are left alone. It may be killed at any time, done again (then nothing is left to do), and go on
    beside runs and readers. A month that is not over is left until it has 16 such runs. Exit code: 1 where a file cannot be read; else 0.

    Example: pairbench store compact --store s3://bucket/results
    """
    from pairbench.features.upkeep import store_with_files
    from pairbench.store.upkeep import compact as compact_files

    rows, damaged = [], False
    for done in compact_files(store_with_files(given.config), keep=keep):
        damaged = damaged or bool(done.problems)
        remark(*done.problems)
        if done.files:
            remark(f"{done.folder}: {done.runs} runs merged")
            sizes = {"files_fewer": done.files, "bytes_before": done.size, "bytes": done.now}
            rows.append({"folder": done.folder, "runs": done.runs, **sizes})
    put_rows("compacted", rows, given.output, empty="Nothing is left to compact")
    return int(damaged)


@store_verbs.command()
@verb("store output")
def check(given: Given) -> int | None:
    """Read every file of a store and name what is damaged. Changes nothing.

    Also named: files of others, of a newer pairbench, left over by a killed process, of runs that go on or were killed, and samples whose
    run has no records. Exit code: 1 where something is damaged; else 0.

    Example: pairbench store check --store results
    """
    from pairbench.features.upkeep import store_with_files
    from pairbench.store.upkeep import DAMAGED
    from pairbench.store.upkeep import check as check_files

    checked = check_files(store_with_files(given.config))
    findings = sorted(checked.findings, key=lambda one: (one.what != DAMAGED, one.what, one.path))  # damage first
    rows = [{"what": one.what, "file": one.path, "reason": one.reason} for one in findings]
    put_rows("found", rows, given.output, empty="")
    damaged = sum(one.what == DAMAGED for one in findings)
    files = f"{checked.files:,} files of {_megabytes(checked.size)}"
    remark(f"store {given.config.shown_store!r}: {files} read, {damaged or 'none'} of them damaged")
    return int(damaged > 0)


@store_verbs.command()
@verb(
    "older samples yes store output",
    older=option("How long ago a run began whose samples go: days, weeks or years, such as 90d."),
    samples=option("Remove raw samples, the only thing that can be removed.", "--samples"),
    yes=option("Do it. Without this it is only said what would go.", "--yes"),
)
def prune(given: Given, older: str, samples: bool = False, yes: bool = False) -> int | None:
    """Remove raw samples of old runs, the bulk of a store; without --yes it is only said what would go.

    Records stay, and all that shows or compares them. What needs samples goes with them: `export`, distributions on the site, and device
    intervals of files that pairbench wrote before schema version 4. Exit code: 4 where something could not be removed; else 0.

    Example: pairbench store prune --samples --older 90d --yes
    """
    from pairbench.features.upkeep import prune_store

    if not samples:
        raise UsageError("store prune was not told what to remove, expected --samples; records are never removed")
    found, left = prune_store(given.config, older=older, sure=yes)
    rows = [{"folder": folder.folder, "files": len(folder.files), "bytes": folder.size} for folder in found]
    put_rows("old samples", rows, given.output, empty="")
    count, size = sum(len(folder.files) for folder in found), sum(folder.size for folder in found)
    files = f"{count:,} files of samples, {_megabytes(size)},"
    if left:
        remark(f"{len(left):,} of {files} could not be removed, {left[0]} the first")
        return 4
    remark(f"{files} were removed" if yes else f"{files} are older than {older}; nothing was removed, --yes does it")
    return 0


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


@fleet_verbs.command()
@verb(
    "address certificates insecure", address=argument("Where to listen, like tls://0.0.0.0:8786.", metavar="[ADDRESS]")
)
def scheduler(given: Given, address: str = "tcp://127.0.0.1:8786") -> None:
    """Hand units from commands to hosts, until Ctrl-C. It holds nothing that is not in the store, and may be started again at any time.

    Example: pairbench fleet scheduler tls://0.0.0.0:8786 --certificates certificates
    """
    from pairbench.features.fleet.dask import checked_address, run_scheduler

    address = checked_address(address, given.certificates, insecure=given.insecure)
    run_scheduler(address, given.certificates, lambda at: remark(f"scheduler at {at}"))


@fleet_verbs.command()
@verb(
    "address devices certificates insecure python ignore_load",
    address=argument("The scheduler, like tls://host:8786 or tcp://127.0.0.1:8786.", metavar="ADDRESS"),
    devices=option("all (every GPU, else the CPU), or some of cpu and cuda:N with commas between them."),
    python=option("Interpreter whose pairbench measures. Default: this one.", metavar="FILE"),
    ignore_load=option(
        "Take units although others keep this host busy: to try things, not to measure.", "--ignore-load"
    ),
)
def worker(given: Given, address: str, devices: str = "all", python: Text = None, ignore_load: bool = False) -> None:
    """Measure units on this host, one after the other, until Ctrl-C. Start it in the checkout, where its suites' settings are.

    Says what `pairbench doctor` finds amiss, and takes no unit while others compute on the host. When the scheduler goes, it waits for it.

    Example: pairbench fleet worker tls://head:8786 --certificates certificates
    """
    from pairbench.features.fleet.dask import checked_address
    from pairbench.features.fleet.worker import run_worker

    where = (checked_address(address, given.certificates, insecure=given.insecure), devices, given.certificates)
    run_worker(given.config, *where, remark, python=python or sys.executable, watches=not ignore_load)


@fleet_verbs.command()
@verb(
    "select scheduler commit devices catalogue tier mode rounds patience certificates insecure store output",
    select=argument(
        "A .json or .toml file of units; or as for `pairbench run`, of which each operator is a unit.",
        metavar="[PLAN|SELECT]...",
    ),
    scheduler=option("As for `fleet worker`.", metavar="ADDRESS"),
    commit=option("Measure a commit, branch or tag; repeatable. Default: HEAD.", metavar="REV"),
    devices=option(
        "cpu, cuda (any GPU), a model such as nvidia-h200, or a GPU's UUID; repeatable. Default: each GPU model of the fleet, else its CPUs.",
        "--device",
        "-d",
    ),
    patience=option("How long to wait for a device that no host has, or a scheduler that is gone.", metavar="SECONDS"),
)
def run(
    given: Given,
    select: Texts = None,
    scheduler: str = "tcp://127.0.0.1:8786",
    commit: Texts = None,
    devices: Texts = None,
    patience: float = 600.0,
) -> int | None:
    """Have units measured by the hosts of a fleet, and store the results. Units that the store has are left out, so the same command goes on after Ctrl-C.

    Exit code: 0 all done, 1 a mismatch or a failed implementation, 4 a unit failed or was not done, 130 interrupted.

    Example: pairbench fleet run suites/linear --commit main --scheduler tls://head:8786 --certificates certificates --store s3://bucket/results
    """
    from pairbench.features.fleet.command import ANY, render_fleet, run_fleet, units_of
    from pairbench.features.fleet.dask import checked_address
    from pairbench.model.unit import Unit

    address = checked_address(scheduler, given.certificates, insecure=given.insecure)
    like = Unit(operators=(), device=ANY, tier=given.tier, mode=given.mode, rounds=given.rounds)
    units = units_of(given.config, select or [], commit or (), devices or (), like)
    done = run_fleet(given.config, units, address, given.certificates, patience)
    put(render_fleet(done.hosts, done.results, given.output, given.config.shown_store, done.seconds), nl=False)
    return done.exit_code


@fleet_verbs.command()
@verb(
    "folder days output",
    folder=argument("A new folder.", metavar="FOLDER"),
    days=option("How long they are good for.", min=1, max=3650),
)
def certificates(given: Given, folder: Path, days: int = 365) -> None:
    """Make keys and certificates for a fleet, and say which host needs which. Whoever holds such a key can run code on every host.

    Example: pairbench fleet certificates certificates
    """
    from pairbench.features.fleet.dask import make_certificates

    put_rows("certificates", make_certificates(folder, days=days), given.output)
