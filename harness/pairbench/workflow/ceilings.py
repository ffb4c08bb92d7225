"""Ceilings of a device in the user's cache: to measure them takes half a second, and neither device nor driver changes between two runs."""

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairbench.execute.parent.pool import WorkerContext
from pairbench.execute.parent.scout import Ceilings, probe_environment
from pairbench.model.environment import Device, Environment
from pairbench.model.load import HostLoad
from pairbench.workflow.host_watch import HostWatch


@dataclass(frozen=True, kw_only=True)
class KeptCeilings:
    """What was measured earlier, by environment and device."""

    file: Path | None
    """Where it is kept; None where the user has no folder for that, so that nothing is."""

    @classmethod
    def of_user(cls) -> "KeptCeilings":
        """Return those of the user who runs this."""
        try:
            folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        except RuntimeError:
            return cls(file=None)
        return cls(file=folder / "pairbench" / "ceilings.json")

    def get(self, environment: Environment) -> Ceilings | None:
        """Return the ceilings of this very device under this very environment, or None where they were never measured."""
        kept = self._all().get(_key(environment))
        return kept if isinstance(kept, dict) and isinstance(kept.get("ceilings"), dict) else None

    def put(self, environment: Environment) -> None:
        """Keep the ceilings of an environment; where that cannot be done, they are measured again the next time."""
        observed = environment.rest["observed"]
        ceilings: Ceilings = {name: observed[name] for name in ("ceilings", "ceilings_at")}
        everything = self._all()
        if self.file is None or everything.get(_key(environment)) == ceilings:
            return
        unfinished = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_text(json.dumps({**everything, _key(environment): ceilings}, indent=1), encoding="utf-8")
            unfinished.replace(self.file)

    def _all(self) -> dict[str, Any]:
        try:
            kept = json.loads(self.file.read_text(encoding="utf-8")) if self.file else None
        except (OSError, ValueError, RecursionError):  # not there, or damaged: it is only a cache
            return {}
        return kept if isinstance(kept, dict) else {}


def _key(environment: Environment) -> str:
    device = environment.device
    return f"{environment.hash} {device.uuid or environment.hostname}"


def probe_device(context: WorkerContext, device: Device, watch: HostWatch) -> tuple[Environment, HostLoad]:
    """Return a device's environment and how busy its host is, before anything is timed on it.

    Args:
        context: What the workers share.
        device: Where.
        watch: Watches the host; it says what computes beside.

    Raises:
        PairbenchError: the device cannot be used at all.
    """
    kept = KeptCeilings.of_user()
    environment = probe_environment(context, device, kept.get)
    load = watch.begin(environment)
    quiet = load.disturbs(device.kind) is None and not environment.rest["observed"].get("foreign_processes")
    if quiet:
        kept.put(environment)
    return environment, load
