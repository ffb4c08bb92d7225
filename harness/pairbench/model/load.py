"""How busy a host was with other work while a run was made, and whether its times can be believed."""

import functools
import json
from dataclasses import dataclass, replace
from typing import Any

from pairbench.model.environment import Environment

_KEY = "load"
_TOO_MUCH = {"cpu": 0.25, "cuda": 0.75}
"""Part of the host's cores that other work may take, by device kind. Calls on a CPU use all of them; a GPU needs a free one to be issued to."""


@dataclass(frozen=True, kw_only=True)
class HostLoad:
    """Other work on the host's processors, and what a GPU said of itself."""

    cores: int
    """Processors of the host."""
    before: float | None
    """Processors that others kept busy before anything was timed, on average; None where it is not known."""
    rounds: tuple[float | None, ...] = ()
    """Processors that others kept busy during each round of timing, in order."""
    performance_states: tuple[int, ...] = ()
    """NVML's performance states (P0 is the highest) that were seen while calls were timed."""
    foreign_processes: tuple[int, ...] = ()
    """Other processes that computed on the GPU while calls were timed, by their ids."""

    @property
    def most(self) -> float | None:
        """Return the highest of what is known, in processors."""
        return max((value for value in (self.before, *self.rounds) if value is not None), default=None)

    def disturbs(self, kind: str) -> str | None:
        """Return a sentence where times of a kind of device are not to be believed, else None."""
        if self.most is None or self.most <= _TOO_MUCH.get(kind, 1.0) * self.cores:
            return None
        what = "latencies of this run are" if kind == "cpu" else "latencies of this run that the host limits are"
        return f"{self.most:.1f} of {self.cores} cores are busy with other work: {what} not to be believed"

    def put_in(self, environment: Environment) -> Environment:
        """Return the environment with this value among what it observed, which is no part of its hash."""
        observed = {**environment.rest.get("observed", {}), _KEY: {**vars(self)}}
        return replace(environment, rest={**environment.rest, "observed": observed})


@functools.lru_cache(maxsize=256)
def load_of(environment: str | None) -> HostLoad | None:
    """Return the load in a record's `environment`; None for runs that did not store it."""
    try:
        stored: dict[str, Any] = json.loads(environment or "{}").get("observed", {})[_KEY]
        lists = {name: tuple(stored[name]) for name in ("rounds", "performance_states", "foreign_processes")}
        return HostLoad(cores=int(stored["cores"]), before=stored["before"], **lists)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def withheld(device_kind: str | None, environment: str | None) -> str | None:
    """Return why the speedups of a record are not shown, or None where they are: on a CPU that had other work to do."""
    load = load_of(environment) if device_kind == "cpu" else None
    return load.disturbs("cpu") if load is not None else None
