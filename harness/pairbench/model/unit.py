"""Units of work for the hosts of a fleet, their results, and the hosts.

Units travel as JSON. The key of a unit stands in the ids of its runs, so that a listing of the store shows which units are done.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any

from pairbench.errors import UsageError
from pairbench.model.plain import Value, plain

VARIABLE = "PAIRBENCH_UNIT"  # the environment variable with the key of the unit that a run is made for


class Unit(Value):
    commit: str | None = None
    """The commit whose suites are measured, as its whole hash; None for the files as they are on the host."""
    operators: tuple[str, ...]
    device: str  # `cpu`, `cuda` (any GPU), a model such as `nvidia-h200`, or the UUID of a GPU
    tier: tuple[str, ...] = ()
    mode: tuple[str, ...] = ()
    rounds: int | None = None

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(plain(self), sort_keys=True).encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        return " ".join([*self.operators, *([f"@{self.commit[:10]}"] if self.commit else []), f"on {self.device}"])

    def options(self) -> tuple[str, ...]:
        chosen = [option for tier in self.tier for option in ("--tier", tier)]
        chosen += [option for mode in self.mode for option in ("--mode", mode)]
        chosen += [] if self.rounds is None else ["--rounds", str(self.rounds)]
        return (*chosen, "--", *self.operators)

    @classmethod
    def of(cls, values: object, where: str) -> "Unit":
        """Return the unit that a table of JSON or TOML describes; `where` names the table in messages."""
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
            expected = "cpu, cuda, a model such as nvidia-h200, or a GPU's UUID"
            raise UsageError(f"{where}: `device` is {device!r:.60}, expected {expected}")
        if commit is not None and (not isinstance(commit, str) or not commit):
            raise UsageError(f"{where}: `commit` is {commit!r:.60}, expected a commit, branch or tag")
        if rounds is not None and (isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1):
            raise UsageError(f"{where}: `rounds` is {rounds!r:.60}, expected a whole number from 1 up")
        tier, mode = _texts(values, "tier", where), _texts(values, "mode", where)
        return cls(commit=commit, operators=operators, device=device, tier=tier, mode=mode, rounds=rounds)


def _texts(values: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    value = values.get(name, ())
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) and text for text in texts):
        raise UsageError(f"{where}: `{name}` is {value!r:.60}, expected a list of texts")
    return tuple(texts)


def marked(run_id: str, key: str | None) -> str:
    return f"{run_id}-u{key}" if key and re.fullmatch(r"[0-9a-f]{12}", key) else run_id


def unit_of(run_id: str) -> str | None:
    mark = re.search(r"-u([0-9a-f]{12})\Z", run_id)
    return mark[1] if mark else None


class UnitEnd(StrEnum):
    DONE = "done"
    STORED = "stored"
    SKIPPED = "skipped"  # the unit's commit cannot be built, or has no such operator
    FAILED = "failed"  # the unit's run failed, or its worker died several times
    NOT_DONE = "not done"  # interrupted, or not begun


class UnitResult(Value):
    unit: Unit
    end: UnitEnd
    reason: str | None = None
    run_id: str | None = None
    host: str | None = None
    device: str | None = None
    seconds: float = 0.0
    statuses: Mapping[str, int] | None = None
    log: str | None = None


class Offer(Value):
    identity: str  # the UUID of a GPU; `cpu-` followed by the host's name for a CPU
    kind: str
    model: str
    selector: str
    environment_hash: str

    def serves(self, device: str) -> bool:
        return device in (self.identity, self.kind, self.model)


class Host(Value):
    name: str  # the host's name, with the devices if these are only some of the host's
    address: str
    offers: tuple[Offer, ...]
    held_up: str | None = None
    """Why it is given no work: it is busy with other work, or has another pairbench; None where it is given work."""
