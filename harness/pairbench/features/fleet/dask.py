"""The queue of a fleet, run by Dask without its work stealing and retries; its scheduler listens on the given address only.

The scheduler is Dask's, with these settings. A fleet has an authority and certificates of its own, without which nobody connects.
"""

import asyncio
import contextlib
import datetime as dt
import importlib.util
import logging
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pairbench import __version__
from pairbench.errors import UsageError

PORT = 8786
_ADDRESS = re.compile(r"(?P<scheme>tcp|tls)://(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(?::(?P<port>\d{1,5}))?")
_LOOPBACK = re.compile(r"localhost|127(?:\.\d{1,3}){3}|\[::1\]")
AUTHORITY = "ca"
# The roles of certificates, and where the files of each belong.
ROLES = {"scheduler": "the scheduler's host", "worker": "every worker's host", "client": "whoever calls `fleet run`"}
# The address of Dask's HTTP servers, which cannot be switched off and have no TLS: no other host reaches it.
NO_HTTP = "127.0.0.1:0"
QUIET: dict[str, Any] = {
    # What would disturb a measurement beside it.
    "distributed.diagnostics.nvml": False,  # asks every GPU every 500 ms
    "distributed.worker.profile.enabled": False,  # looks at all threads every 10 ms
    "distributed.admin.tick.interval": "1s",  # 20 ms, to warn of an event loop that is late
    "distributed.admin.system-monitor.interval": "10s",  # 500 ms
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,  # every millisecond
    "distributed.nanny.pre-spawn-environ": {},  # OMP_NUM_THREADS=1, in workers of a nanny; ours have none
    # A queue and no more.
    "distributed.scheduler.work-stealing": False,  # it takes tasks with restrictions too
    "distributed.scheduler.active-memory-manager.start": False,
    # A death comes back at once: who asked for the unit looks into the store and decides. Dask would run it again without, three times,
    # and count all that wait on a worker when it dies as if they had killed it.
    "distributed.scheduler.allowed-failures": 0,
    # None would wait for ever for a device that no host has any more.
    "distributed.scheduler.no-workers-timeout": "15s",
    "distributed.scheduler.worker-ttl": "60s",
    "distributed.scheduler.events-cleanup-delay": "60s",
    "distributed.admin.log-length": 100,
    "distributed.admin.low-level-log-length": 100,
    "distributed.comm.timeouts.connect": "10s",
}
METADATA = "pairbench"  # the key of pairbench's version in a scheduler's metadata
Notify = Callable[[str], None]


def need_dask() -> None:
    if importlib.util.find_spec("distributed") is None:
        raise UsageError("a fleet needs Dask distributed, which is not installed: pip install 'pairbench[fleet]'")


def checked_address(text: str, certificates: Path | None, *, insecure: bool) -> str:
    """Return the address of a scheduler with its port; refuse one that others could use without TLS, and any where there is no Dask."""
    need_dask()
    found = _ADDRESS.fullmatch(text)
    given, makes = f"scheduler {text!r}", "`pairbench fleet certificates FOLDER`"
    if found is None or int(found["port"] or PORT) > 65535:
        raise UsageError(f"{given} is no address, expected one like tls://host:{PORT}, or tcp://127.0.0.1:{PORT}")
    if found["scheme"] == "tls" and certificates is None:
        raise UsageError(f"{given} needs --certificates FOLDER; {makes} makes them")
    if found["scheme"] == "tcp" and not is_loopback(text) and not insecure:
        why = "has no TLS and is not on this machine: whoever reaches it may run code as you, on every host"
        advice = f"Make certificates with {makes} and name it tls://{found['host']}; --insecure goes on without"
        raise UsageError(f"{given} {why}. {advice}")
    return f"{found['scheme']}://{found['host']}:{found['port'] or PORT}"


def is_loopback(address: str) -> bool:
    found = _ADDRESS.fullmatch(address)
    return found is not None and _LOOPBACK.fullmatch(found["host"]) is not None


def security_of(certificates: Path | None) -> Any:
    """Return Dask's security settings for a folder of certificates: both sides of every connection show one."""
    if certificates is None:
        return None
    from distributed.security import Security

    files = {"tls_ca_file": certificates / f"{AUTHORITY}.pem"}
    for role in ROLES:
        # A host has those of its own role, and uses them for whatever it does.
        if (own := certificates / f"{role}.pem").exists():
            files |= {f"tls_{role}_cert": own, f"tls_{role}_key": certificates / f"{role}.key"}
    if (absent := [str(file) for file in files.values() if not file.is_file()]) or len(files) == 1:
        what = absent[0] if absent else f"{certificates}/worker.pem"
        raise UsageError(f"--certificates: {what} is not there, expected a folder of `pairbench fleet certificates`")
    return Security(require_encryption=True, **{name: str(file) for name, file in files.items()})


@contextlib.contextmanager
def configured() -> Iterator[None]:
    """Set Dask's settings as pairbench needs them, whatever the user's files say, and silence its log."""
    import dask

    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client", "tornado.application")]
    before = [logger.level for logger in loggers]
    with dask.config.set(QUIET):
        # Only after it was imported, for that sets levels.
        import distributed  # noqa: F401

        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)


def run_scheduler(address: str, certificates: Path | None, notify: Notify) -> None:
    """Serve as a fleet's scheduler at an address that was checked until SIGINT or SIGTERM; `notify` is given the address once it listens."""
    with configured():
        asyncio.run(_serve(address, security_of(certificates), notify))


async def _serve(address: str, security: Any, notify: Notify) -> None:
    from distributed import Scheduler

    protocol, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    where = {"host": host, "port": int(port), "protocol": protocol}
    scheduler = Scheduler(**where, security=security, dashboard=False, dashboard_address=NO_HTTP)
    try:
        await scheduler
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"the scheduler cannot listen at {address}: {error.__cause__ or error}") from error
    scheduler.task_metadata[METADATA] = {"version": __version__}
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    notify(scheduler.address)
    await ended.wait()
    await scheduler.close()


def make_certificates(folder: Path, *, days: int = 365) -> list[dict[str, str]]:
    """Make an authority, whose key is not kept, and a key and a certificate for each role; return a row for each file."""
    need_dask()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        there = sorted(file.name for file in folder.iterdir())
    except OSError as error:
        raise UsageError(f"folder {str(folder)!r} cannot be made: {error.strerror or error}") from error
    if there:
        expected = "expected a new folder: a fleet in use needs its own"
        raise UsageError(f"folder {str(folder)!r} holds {there[0]!r} already, {expected}")
    begins = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)  # clocks of hosts differ
    ends = begins + dt.timedelta(days=days)

    def name(role: str) -> Any:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"pairbench fleet {role}")])

    def certificate(role: str, key: Any, signer: Any) -> Any:
        authority = role == AUTHORITY
        builder = x509.CertificateBuilder().subject_name(name(role)).issuer_name(name(AUTHORITY))
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(begins).not_valid_after(ends)
        basics = x509.BasicConstraints(ca=authority, path_length=0 if authority else None)
        builder = builder.add_extension(basics, critical=True)
        unused = "content_commitment key_encipherment data_encipherment key_agreement encipher_only decipher_only"
        usages = dict.fromkeys(unused.split(), False)
        usage = x509.KeyUsage(digital_signature=not authority, key_cert_sign=authority, crl_sign=authority, **usages)
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        return builder.add_extension(issuer, critical=False).sign(signer, hashes.SHA256())

    pem = Encoding.PEM
    signer = ec.generate_private_key(ec.SECP256R1())
    own = certificate(AUTHORITY, signer, signer).public_bytes(pem)
    rows = [_write(folder / f"{AUTHORITY}.pem", own, "every host")]
    for role, where in ROLES.items():
        key = ec.generate_private_key(ec.SECP256R1())
        private = key.private_bytes(pem, PrivateFormat.PKCS8, NoEncryption())
        rows.append(_write(folder / f"{role}.key", private, where))
        rows.append(_write(folder / f"{role}.pem", certificate(role, key, signer).public_bytes(pem), where))
    return rows


def _write(file: Path, content: bytes, where: str) -> dict[str, str]:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as stream:  # noqa: PTH123 (an open file)
            stream.write(content)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror or error}") from error
    return {"file": str(file), "belongs to": where}
