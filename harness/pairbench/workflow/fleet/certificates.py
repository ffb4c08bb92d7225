"""Certificates for a fleet: an authority of its own, and one certificate a role, without which nobody connects."""

import datetime as dt
import os
from pathlib import Path
from typing import Any

from pairbench.errors import UsageError
from pairbench.workflow.fleet.dask import AUTHORITY, ROLES, need_dask

_DAYS = 365


def make_certificates(folder: Path, *, days: int = _DAYS) -> list[dict[str, str]]:
    """Make an authority and a key and a certificate for the scheduler, the workers and the clients, and return a row for each file.

    The authority's key signs these three and is written nowhere: a fleet that needs others makes new ones for all.

    Args:
        folder: A folder that is not there, or empty.
        days: How long they are good for.

    Raises:
        UsageError: something is there already, or it cannot be written.
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
