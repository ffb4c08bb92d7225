"""The environment of a run: device and versions, the hash of all that can move a latency, and the load of the host by other work."""

import functools
import hashlib
import json
import re
from dataclasses import field, replace
from typing import Any

from pairbench.model.plain import Value


def device_slug(name: str, otherwise: str = "device") -> str:
    """Return a device model as part of a path, such as `nvidia-h200`; `otherwise` for a name without letters and digits."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or otherwise


class Device(Value):
    """A device that can be measured, identified so that another process finds it."""

    selector: str
    """Selector of the device: `cpu`, or `cuda:N` with N counted among the GPUs that this process may see."""
    kind: str
    name: str
    uuid: str | None = None
    capability: tuple[int, int] | None = None
    memory_bytes: int | None = None
    beside: tuple["Device", ...] = ()
    """Further GPUs that implementations may use; a worker sees them after its own, in this order."""

    @property
    def slug(self) -> str:
        return device_slug(self.name, self.kind)


class Commit(Value):
    sha: str
    committed_at: str
    branch: str | None
    dirty: bool
    subject: str | None = None
    author: str | None = None
    number: int | None = None
    pull_request: int | None = None
    """Number of the pull request, or merge request, that it belongs to; None where neither CI nor its message says so."""


class Environment(Value):
    device: Device
    driver: str | None
    cuda: str | None
    cudnn: str | None
    torch: str
    triton: str | None
    python: str
    hostname: str
    cpu: str
    rest: dict[str, Any] = field(default_factory=dict)
    """All other settings as JSON values. Those under the key `observed` describe this run alone and are not hashed."""

    @property
    def observed(self) -> dict[str, Any]:
        found: dict[str, Any] = self.rest.get("observed", {})
        return found

    def observing(self, **more: Any) -> "Environment":
        return replace(self, rest={**self.rest, "observed": self.observed | more})

    @property
    def hash(self) -> str:
        """A hash that is equal for two runs exactly if everything that can move a latency was the same."""
        stable = {key: value for key, value in self.rest.items() if key != "observed"}
        device = (self.device.kind, self.device.name)
        versions = (self.driver, self.cuda, self.cudnn, self.torch, self.triton, self.python, self.cpu)
        text = json.dumps([device, versions, stable], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Finding(Value):
    name: str
    state: str
    detail: str
    advice: str | None = None
    """What to do, or what will be missing from records; None where nothing is."""


_TOO_MUCH = {"cpu": 0.25, "cuda": 0.75}
"""Part of the host's cores that other work may take, by device kind. Calls on a CPU use all of them; a GPU needs a free one to be issued to."""


class HostLoad(Value):
    cores: int
    before: float | None
    """Processors that other work kept busy before anything was timed, on average; None where that is not known."""
    rounds: tuple[float | None, ...] = ()
    performance_states: tuple[int, ...] = ()
    """NVML's performance states (P0 is the highest) that were seen while calls were timed."""
    foreign_processes: tuple[int, ...] = ()

    @property
    def most(self) -> float | None:
        return max((value for value in (self.before, *self.rounds) if value is not None), default=None)

    def disturbs(self, kind: str) -> str | None:
        """Return why times of a kind of device are not to be believed; None where they are."""
        if self.most is None or self.most <= _TOO_MUCH.get(kind, 1.0) * self.cores:
            return None
        what = "latencies of this run are" if kind == "cpu" else "latencies of this run that the host limits are"
        return f"{self.most:.1f} of {self.cores} cores are busy with other work: {what} not to be believed"

    def put_in(self, environment: Environment) -> Environment:
        return environment.observing(load={**vars(self)})


@functools.lru_cache(maxsize=256)
def load_of(environment: str | None) -> HostLoad | None:
    try:
        stored: dict[str, Any] = json.loads(environment or "{}").get("observed", {})["load"]
        lists = {name: tuple(stored[name]) for name in ("rounds", "performance_states", "foreign_processes")}
        return HostLoad(cores=int(stored["cores"]), before=stored["before"], **lists)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def withheld(device_kind: str | None, environment: str | None) -> str | None:
    """Return why the speedups of a record are withheld, as on a CPU that had other work to do; None where they are shown."""
    load = load_of(environment) if device_kind == "cpu" else None
    return load.disturbs("cpu") if load is not None else None
