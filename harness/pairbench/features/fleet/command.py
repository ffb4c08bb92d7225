"""What `pairbench fleet run` does: units are asked for, taken through the fleet, shown as they come back, and added up.

The units that a command asks for: those of a plan's file, or one for each operator, commit and device model.

Certificates for a fleet: an authority of its own, and one certificate a role, without which nobody connects.
"""

import contextlib
import datetime as dt
import json
import os
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pairbench.config import Config
from pairbench.errors import UsageError
from pairbench.features.fleet.dask import AUTHORITY, ROLES, checked_address, is_loopback, need_dask
from pairbench.features.fleet.drive import Drive, Progress, run_units
from pairbench.features.fleet.queue import host_rows
from pairbench.model.outcome import Status
from pairbench.model.text import safe
from pairbench.model.unit import Host, Unit, UnitEnd, UnitResult
from pairbench.workflow.git.repository import git
from pairbench.workflow.git.worktrees import repository_of, resolve
from pairbench.workflow.interrupting import on_signals
from pairbench.workflow.setup import choose, open_context, store_of

_ENDINGS = (".json", ".toml")
ANY = "any"
"""Stands for each device model of the fleet, GPUs before CPUs."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which units a command asks for, apart from what they measure."""

    commits: tuple[str, ...]
    """Commits, branches or tags; none for the one that is checked out."""
    devices: tuple[str, ...]
    tier: tuple[str, ...]
    mode: tuple[str, ...]
    rounds: int | None


def units_of(config: Config, arguments: list[str], wanted: Wanted) -> tuple[Unit, ...]:
    """Return the units of a plan's file, or of SELECT arguments. Those for `any` device are for the fleet to say."""
    if len(arguments) == 1 and arguments[0].endswith(_ENDINGS):
        if wanted != Wanted(commits=(), devices=(), tier=(), mode=(), rounds=None):
            raise UsageError(
                f"plan {arguments[0]!r} says all of its units: it goes with none of --commit, --device, --tier, --mode, --rounds"
            )
        return tuple(_resolved(config, unit) for unit in read_plan(Path(arguments[0])))
    plain = _of_operators(_operators(config, arguments), wanted)
    commits: list[str | None] = [*(resolve(_repository(config), name) for name in wanted.commits)]
    commits = commits or [git(config.root, "rev-parse", "HEAD")]
    return tuple(
        replace(unit, commit=commit, device=device)
        for commit in commits
        for unit in plain
        for device in wanted.devices or (ANY,)
    )


def _of_operators(operators: Iterable[tuple[str, ...]], wanted: Wanted) -> tuple[Unit, ...]:
    """Return a unit for each operator, on no device yet."""
    return tuple(
        Unit(operators=names, device=ANY, tier=wanted.tier, mode=wanted.mode, rounds=wanted.rounds)
        for names in operators
    )


def on_models(units: Iterable[Unit], hosts: Iterable[Host]) -> tuple[Unit, ...]:
    """Return units with those for `any` device made into one for each GPU model of the fleet, or each CPU model where it has no GPU."""
    offers = [offer for host in hosts for offer in host.offers]
    models = sorted({offer.model for offer in offers if offer.kind == "cuda"} or {offer.model for offer in offers})
    units = tuple(units)
    if not models and any(unit.device == ANY for unit in units):
        raise UsageError(
            "no worker has joined yet, so say for which device by --device; `pairbench fleet worker` starts one"
        )
    return tuple(
        one
        for unit in units
        for one in ([replace(unit, device=model) for model in models] if unit.device == ANY else [unit])
    )


def read_plan(file: Path) -> tuple[Unit, ...]:
    """Return the units in a file of JSON or TOML: a list of tables under `units`."""
    try:
        text = file.read_text(encoding="utf-8")
        content = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"plan {str(file)!r} cannot be read: {error}; expected JSON or TOML with a list `units`"
        ) from error
    units = content.get("units") if isinstance(content, dict) else None
    if not isinstance(units, list) or not units:
        raise UsageError(
            f"plan {str(file)!r} has no units, expected a list `units` of tables with `operators` and `device`"
        )
    return tuple(Unit.of(values, f"plan {str(file)!r}, unit {number}") for number, values in enumerate(units, 1))


def _resolved(config: Config, unit: Unit) -> Unit:
    return unit if unit.commit is None else replace(unit, commit=resolve(_repository(config), unit.commit))


def _repository(config: Config) -> Path:
    return repository_of(config.root, "a unit names a commit of it")


def _operators(config: Config, select: list[str]) -> list[tuple[str, ...]]:
    """Return the SELECT arguments of each operator that is asked for: itself, or those of its cases that are."""
    with open_context(config, describes=True) as context:
        chosen = choose(config, context, select)
    if chosen.survey.broken:
        raise UsageError("; ".join(suite.reason for suite in chosen.survey.broken))
    whole = {(operator.suite, operator.name): len(operator.cases) for operator in chosen.survey.operators}
    found: list[tuple[str, ...]] = []
    for operator in chosen.operators():
        name = f"{operator.suite}::{operator.name}"
        if len(operator.cases) == whole[operator.suite, operator.name]:
            found.append((name,))
        else:
            found.append(tuple(f"{operator.suite}::{case.key}" for case in operator.cases))
    if not found:
        raise UsageError(f"nothing is called {' or '.join(select)}; `pairbench list` shows what there is")
    return found


_DAYS = 365


def make_certificates(folder: Path, *, days: int = _DAYS) -> list[dict[str, str]]:
    """Make an authority and a key and a certificate for the scheduler, the workers and the clients, and return a row for each file.

    The authority's key signs these three and is written nowhere: a fleet that needs others makes new ones for all.
    """
    need_dask()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        there = sorted(file.name for file in folder.iterdir())
    except OSError as error:
        raise UsageError(f"folder {str(folder)!r} cannot be made: {error.strerror or error}") from error
    if there:
        raise UsageError(
            f"folder {str(folder)!r} holds {there[0]!r} already, expected a new folder: a fleet in use needs its own"
        )
    begins = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)  # clocks of hosts differ
    ends = begins + dt.timedelta(days=days)

    def name(role: str) -> Any:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"pairbench fleet {role}")])

    def certificate(role: str, key: Any, signer: Any) -> Any:
        authority = role == AUTHORITY
        builder = x509.CertificateBuilder().subject_name(name(role)).issuer_name(name(AUTHORITY))
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(begins).not_valid_after(ends)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True
        )
        usages = dict.fromkeys(
            (
                "content_commitment",
                "key_encipherment",
                "data_encipherment",
                "key_agreement",
                "encipher_only",
                "decipher_only",
            ),
            False,
        )
        usage = x509.KeyUsage(digital_signature=not authority, key_cert_sign=authority, crl_sign=authority, **usages)
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        return builder.add_extension(issuer, critical=False).sign(signer, hashes.SHA256())

    signer = ec.generate_private_key(ec.SECP256R1())
    rows = [_write(folder / f"{AUTHORITY}.pem", _pem(certificate(AUTHORITY, signer, signer)), "every host")]
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        where = {
            "scheduler": "the scheduler's host",
            "worker": "every worker's host",
            "client": "whoever calls `fleet run`",
        }[role]
        rows.append(_write(folder / f"{role}.key", _key(key), where))
        rows.append(_write(folder / f"{role}.pem", _pem(certificate(role, key, signer)), where))
    return rows


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return bytes(certificate.public_bytes(Encoding.PEM))


def _key(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _write(file: Path, content: bytes, where: str) -> dict[str, str]:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as stream:  # noqa: PTH123 (an open file)
            stream.write(content)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror or error}") from error
    return {"file": str(file), "belongs to": where}


_LINE_EVERY_S = 10.0
_HOSTS = 40


@dataclass(frozen=True, kw_only=True)
class DoneFleet:
    """What a fleet has done."""

    hosts: tuple[Host, ...]
    results: tuple[UnitResult, ...]
    interrupted: bool
    seconds: float
    """Seconds from the first unit to the last."""

    @property
    def exit_code(self) -> int:
        """Return the contract's exit code."""
        ends = {result.end for result in self.results}
        if self.interrupted:
            return 130
        if ends & {UnitEnd.FAILED, UnitEnd.NOT_DONE}:
            return 4
        return int(any(Status(name).bad for result in self.results for name in result.statuses or ()))


def run_fleet(
    config: Config,
    units: Callable[[], tuple[Unit, ...]],
    *,
    address: str,
    certificates: Path | None,
    insecure: bool,
    patience_s: float,
) -> DoneFleet:
    """Have units measured by a fleet."""
    need_dask()
    address = checked_address(address, certificates, insecure=insecure)
    store = store_of(config)
    asked = units()
    interrupted = threading.Event()
    with on_signals(lambda *_: interrupted.set()), open_table() as (show, notify):
        if store.is_local and not is_loopback(address):
            notify(
                f"pairbench: store {store.address} is a folder, which every host has to see under this name; s3:// and gs:// need none"
            )
        drive = Drive(
            address=address,
            certificates=certificates,
            store=store,
            patience_s=patience_s,
            notify=notify,
            show=show,
            interrupted=interrupted,
        )
        head = git(config.root, "rev-parse", "HEAD")
        if any(unit.commit == head for unit in asked if head) and git(config.root, "status", "--porcelain"):
            notify("pairbench: uncommitted changes are not measured: a unit is of its commit")
        named = [unit for unit in asked if unit.device != ANY]
        left = [unit for unit in asked if unit.device == ANY]
        done = run_units(named, drive, lambda hosts: on_models(left, hosts))
    return DoneFleet(
        hosts=done.hosts, results=tuple(done.results), interrupted=interrupted.is_set(), seconds=done.seconds
    )


@contextlib.contextmanager
def open_table() -> Iterator[tuple[Callable[[Progress], None], Callable[[str], None]]]:
    """Give what shows progress and what prints a message, both to stderr."""
    if not sys.stderr.isatty():
        yield _Lines().show, _say
        return
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    console = Console(stderr=True)
    with Live(console=console, refresh_per_second=2, transient=True) as live:

        def show(progress: Progress) -> None:
            table = Table(title=_head(progress), title_justify="left", box=None, pad_edge=False)
            rows = host_rows(progress.hosts, progress.flying, progress.results)
            for name in ("host", "workers", "devices", "done", "other", "now"):
                table.add_column(name, overflow="ellipsis", no_wrap=True)
            for row in rows[:_HOSTS]:
                table.add_row(*(safe(str(value)).replace("[", "\\[") for value in row.values()))
            live.update(table)

        yield show, lambda text: console.print(safe(text), markup=False, highlight=False)


def _head(progress: Progress) -> str:
    return f"{len(progress.results)} units over, {len(progress.flying)} under way, {progress.waiting} waiting, {len(progress.hosts)} workers"


def _say(text: str) -> None:
    sys.stderr.write(f"{safe(text)}\n")
    sys.stderr.flush()


class _Lines:
    def __init__(self) -> None:
        self._at = 0.0

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._at >= _LINE_EVERY_S:
            self._at = now
            _say(f"pairbench: {_head(progress)}")
