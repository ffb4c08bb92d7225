"""The verbs `pairbench fleet`: many hosts that measure units into one store."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from pairbench.cli.options import Given, remark, verb
from pairbench.cli.say import put, put_rows

fleet_verbs = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Certificates = Annotated[Path | None, Option(metavar="FOLDER", help="Certificates of `pairbench fleet certificates`.")]
Insecure = Annotated[
    bool,
    Option(
        "--insecure", help="Go without TLS beyond this machine: whoever reaches a port then runs code on every host."
    ),
]


@fleet_verbs.callback()
def _fleet() -> None:
    """Measure on many hosts: one scheduler, a worker a host, and a command that hands out units. All of them trust one another.

    Example: pairbench fleet run suites --scheduler tls://head:8786 --store s3://bucket/results
    """


@fleet_verbs.command()
def scheduler(
    address: Annotated[
        str, Argument(metavar="[ADDRESS]", help="Where to listen, like tls://0.0.0.0:8786.")
    ] = "tcp://127.0.0.1:8786",
    certificates: Certificates = None,
    insecure: Insecure = False,
) -> None:
    """Hand units from commands to hosts, until Ctrl-C. It holds nothing that is not in the store, and may be started again at any time.

    Example: pairbench fleet scheduler tls://0.0.0.0:8786 --certificates certificates
    """
    from pairbench.features.fleet.dask import run_scheduler

    run_scheduler(address, certificates, insecure=insecure, notify=lambda at: remark(f"scheduler at {at}"))


@fleet_verbs.command()
@verb("address devices certificates insecure python ignore_load")
def worker(
    given: Given,
    address: Annotated[
        str, Argument(metavar="ADDRESS", help="The scheduler, like tls://host:8786 or tcp://127.0.0.1:8786.")
    ],
    devices: Annotated[
        str, Option(help="all (every GPU, else the CPU), or some of cpu and cuda:N with commas between them.")
    ] = "all",
    certificates: Certificates = None,
    insecure: Insecure = False,
    python: Annotated[
        str | None, Option(metavar="FILE", help="Interpreter whose pairbench measures. Default: this one.")
    ] = None,
    ignore_load: Annotated[
        bool,
        Option("--ignore-load", help="Take units although others keep this host busy: to try things, not to measure."),
    ] = False,
) -> None:
    """Measure units on this host, one after the other, until Ctrl-C. Start it in the checkout, where its suites' settings are.

    Says what `pairbench doctor` finds amiss, and takes no unit while others compute on the host. When the scheduler goes, it waits for it.

    Example: pairbench fleet worker tls://head:8786 --certificates certificates
    """
    from pairbench.features.fleet.worker import run_worker

    options = {"insecure": insecure, "ignores_load": ignore_load}
    run_worker(given.config, address, devices, certificates, remark, python=python or sys.executable, **options)


@fleet_verbs.command()
@verb("select scheduler commit devices catalogue tier mode rounds patience certificates insecure store output")
def run(
    given: Given,
    select: Annotated[
        list[str] | None,
        Argument(
            metavar="[PLAN|SELECT]...",
            help="A .json or .toml file of units; or as for `pairbench run`, of which each operator is a unit.",
        ),
    ] = None,
    scheduler: Annotated[str, Option(metavar="ADDRESS", help="As for `fleet worker`.")] = "tcp://127.0.0.1:8786",
    commit: Annotated[
        list[str] | None, Option(metavar="REV", help="Measure a commit, branch or tag; repeatable. Default: HEAD.")
    ] = None,
    devices: Annotated[
        list[str] | None,
        Option(
            "--device",
            "-d",
            help="cpu, cuda (any GPU), a model such as nvidia-h200, or a GPU's UUID; repeatable. Default: each GPU model of the fleet, else its CPUs.",
        ),
    ] = None,
    patience: Annotated[
        float,
        Option(metavar="SECONDS", help="How long to wait for a device that no host has, or a scheduler that is gone."),
    ] = 600.0,
    certificates: Certificates = None,
    insecure: Insecure = False,
) -> int | None:
    """Have units measured by the hosts of a fleet, and store the results. Units that the store has are left out, so the same command goes on after Ctrl-C.

    Exit code: 0 all done, 1 a mismatch or a failed implementation, 4 a unit failed or was not done, 130 interrupted.

    Example: pairbench fleet run suites/linear --commit main --scheduler tls://head:8786 --certificates certificates --store s3://bucket/results
    """
    from pairbench.features.fleet.command import render_fleet, run_fleet, units_of

    options = {"tier": given.tier, "mode": given.mode, "rounds": given.rounds}
    done = run_fleet(
        given.config,
        lambda: units_of(given.config, select or [], commit or (), devices or (), **options),
        address=scheduler,
        certificates=certificates,
        insecure=insecure,
        patience_s=patience,
    )
    put(render_fleet(done.hosts, done.results, given.output, given.config.shown_store, done.seconds), nl=False)
    return done.exit_code


@fleet_verbs.command()
@verb("folder days output")
def certificates(
    given: Given,
    folder: Annotated[Path, Argument(metavar="FOLDER", help="A new folder.")],
    days: Annotated[int, Option(help="How long they are good for.", min=1, max=3650)] = 365,
) -> None:
    """Make keys and certificates for a fleet, and say which host needs which. Whoever has one of them can run code on every host.

    Example: pairbench fleet certificates certificates
    """
    from pairbench.features.fleet.dask import make_certificates

    put_rows("certificates", make_certificates(folder, days=days), given.output)
