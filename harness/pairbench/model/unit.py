"""A unit of work for one host of a fleet, and what became of it.

Units are JSON on their way to a host. The key of a unit stands in the ids of its runs, so that a listing of the store tells which are done.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from pairbench.errors import UsageError
from pairbench.model.plain import plain

VARIABLE = "PAIRBENCH_UNIT"
"""The variable by which a run is told the key of the unit that it is made for."""
_KEY = re.compile(r"[0-9a-f]{12}")
_MARK = re.compile(r"-u([0-9a-f]{12})\Z")


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What one `pairbench run` on one host measures."""

    commit: str | None = None
    """The commit whose suites are measured, as its whole hash; None for the files as they are on the host."""
    operators: tuple[str, ...]
    """SELECT arguments, with files as the repository's top folder sees them."""
    device: str
    """`cpu`, `cuda` (any GPU), a model such as `nvidia-h200`, or the UUID of a GPU."""
    tier: tuple[str, ...] = ()
    mode: tuple[str, ...] = ()
    rounds: int | None = None
    """How many times every case is timed; None for the settings' number."""

    @property
    def key(self) -> str:
        """What is the same for equal units, and for no others."""
        return hashlib.sha256(json.dumps(plain(self), sort_keys=True).encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """The unit in words, for tables and messages."""
        parts = (" ".join(self.operators), f"@{self.commit[:10]}" if self.commit else "", f"on {self.device}")
        return " ".join(part for part in parts if part)

    def options(self) -> tuple[str, ...]:
        """Return the arguments of `pairbench run`, but for the device and the store."""
        chosen = [option for tier in self.tier for option in ("--tier", tier)]
        chosen += [option for mode in self.mode for option in ("--mode", mode)]
        chosen += [] if self.rounds is None else ["--rounds", str(self.rounds)]
        return (*chosen, "--", *self.operators)

    @classmethod
    def of(cls, values: object, where: str) -> "Unit":
        """Return a unit that was written as JSON or TOML."""
        if not isinstance(values, Mapping):
            raise UsageError(f"{where} is {values!r:.60}, expected a table with `operators` and `device`")
        known = [item.name for item in fields(cls)]
        if unknown := sorted(set(values) - set(known)):
            raise UsageError(f"{where}: {unknown[0]!r} is unknown, expected some of {', '.join(known)}")
        device, commit, rounds = values.get("device"), values.get("commit"), values.get("rounds")
        operators = _texts(values, "operators", where)
        if not operators:
            raise UsageError(f"{where}: `operators` is missing or empty, expected a list of SELECT arguments")
        if not isinstance(device, str) or not device:
            raise UsageError(
                f"{where}: `device` is {device!r:.60}, expected cpu, cuda, a model such as nvidia-h200, or a GPU's UUID"
            )
        if commit is not None and (not isinstance(commit, str) or not commit):
            raise UsageError(f"{where}: `commit` is {commit!r:.60}, expected a commit, branch or tag")
        if rounds is not None and (isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1):
            raise UsageError(f"{where}: `rounds` is {rounds!r:.60}, expected a whole number from 1 up")
        return cls(
            commit=commit,
            operators=operators,
            device=device,
            tier=_texts(values, "tier", where),
            mode=_texts(values, "mode", where),
            rounds=rounds,
        )


def _texts(values: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    value = values.get(name, ())
    several = (value,) if isinstance(value, str) else value
    if not isinstance(several, list | tuple) or not all(isinstance(one, str) and one for one in several):
        raise UsageError(f"{where}: `{name}` is {value!r:.60}, expected a list of texts")
    return tuple(several)


def marked(run_id: str, key: str | None) -> str:
    """Return the id of a run that is made for a unit; of one that is made for none, as it is."""
    return f"{run_id}-u{key}" if key and _KEY.fullmatch(key) else run_id


def unit_of(run_id: str) -> str | None:
    """Return the key of the unit that a run was made for, or None."""
    found = _MARK.search(run_id)
    return found[1] if found else None


class UnitEnd(StrEnum):
    """What became of a unit."""

    DONE = "done"
    """A unit that was measured, and is stored."""
    STORED = "stored"
    """A unit of which the store had everything."""
    SKIPPED = "skipped"
    """A unit that cannot be measured: its commit cannot be built, or has no such operator."""
    FAILED = "failed"
    """A unit whose run failed, or whose worker died time and again."""
    NOT_DONE = "not done"
    """A unit that was interrupted, or not begun."""


@dataclass(frozen=True, kw_only=True)
class UnitResult:
    """What became of a unit, where, and why."""

    unit: Unit
    end: UnitEnd
    reason: str | None = None
    run_id: str | None = None
    host: str | None = None
    device: str | None = None
    """The UUID of the GPU, or the CPU's name for itself: see `Offer.identity`."""
    seconds: float = 0.0
    statuses: Mapping[str, int] | None = None
    """How many outcomes the run has of each status; None where there was no run."""
    log: str | None = None
    """The file on the host that says more, and that file's last lines."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A device that a host measures on."""

    identity: str
    """The GPU's UUID; of a CPU `cpu-` and the host's name."""
    kind: str
    model: str
    """The device model as part of a path, such as `nvidia-h200`."""
    selector: str
    """What `pairbench run --device` calls it on its host."""
    environment_hash: str

    def serves(self, device: str) -> bool:
        """Return whether this is what a unit asks for."""
        return device in (self.identity, self.kind, self.model)


@dataclass(frozen=True, kw_only=True)
class Host:
    """A worker of the fleet, as the scheduler knows it."""

    name: str
    """The host's name, with the devices where they are a part of its devices."""
    address: str
    offers: tuple[Offer, ...]
    held_up: str | None = None
    """Why it is given no work: others keep it busy, or its pairbench is another; None where nothing speaks against it."""

    def offer(self, device: str) -> Offer | None:
        """Return the first of its devices that a unit may ask for so."""
        return next((offer for offer in self.offers if offer.serves(device)), None)
