"""The settings of a run, and its environment: device and versions, the hash of all that can move a latency, and the load of the host by other work."""

import functools
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import field, replace
from typing import Any

from pairbench.model.plain import Value


def device_slug(name: str, otherwise: str = "device") -> str:
    """Return a device model as part of a path, such as `nvidia-h200`; `otherwise` for a name without letters and digits."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or otherwise


class Device(Value):
    """A device that can be measured, identified so that another process finds it."""

    selector: str  # selector of the device: `cpu`, or `cuda:N` with N counted among the GPUs that this process may see
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
    advice: str | None = None  # what to do, or what will be missing from records; None where nothing is


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


MODES = ("eager", "compile", "graph")
TIMERS = ("auto", "do_bench")
OWN_TIMERS = {"cuda": "cuda_event", "cpu": "perf_counter"}  # the timer that `auto` stands for, by kind of device


class Settings(Value):
    """Everything that decides how implementations are verified, timed and profiled."""

    modes: tuple[str, ...] = ("eager",)
    tiers: tuple[str, ...] = ()
    """Tiers of the cases to run; empty for smoke on a CPU, and for all that are timed on a GPU."""
    rounds: int = 3
    timeout_s: float = 300.0
    timer: str = "auto"
    """How calls are timed: `auto` for one of OWN_TIMERS, `do_bench` for Triton's own function."""
    target: float = 0.005
    """Precision at which timing stops: half the 95 % interval of each variant's log ratio to the baseline."""
    min_samples: int = 100
    """Least number of samples of each implementation over all rounds, so that P95 means something."""
    max_samples: int = 5000
    """Largest number of samples of each implementation over all rounds."""
    case_seconds: float = 0.5
    """Seconds after which the timing of one case in one round ends; twice as many on a GPU, where a ratio is not known to twice `target`.

    Where nobody chose it, a run has less: `_ON_A_GPU` and `_ON_A_CPU` in `workflow/record.py`.
    """
    seed: int = 0
    tf32: bool = False
    """Whether float32 convolutions and matrix products may use TF32 where no axis `tf32` says it; pinned alike for every implementation."""
    against: str = ""
    """A file of KernelBench's `ModelNew`, or a folder of them, as candidates for problems; empty for none."""
    isolated: bool = False
    """Whether workers are kept from the network, and from files beside those of their run."""
    memory_fraction: float = 0.8
    """Part of the machine's memory that one worker may take before it is ended."""


def about_precision(found: Iterable[str | None]) -> str | None:
    """Return a line on the precision of float32 products, from `float32_precision` of records, and on the option for another; None without products."""
    known = [precision for precision in found if precision]
    tf32 = known.count("tf32")
    if not known:
        return None
    if not tf32:
        precision = "IEEE float32, where torch by itself lets convolutions use TF32; --tf32 allows it for both"
    elif tf32 == len(known):
        alone = "where torch by itself allows it for convolutions alone"
        precision = f"TF32 allowed for both, {alone}; --no-tf32 has IEEE float32"
    else:
        precision = f"TF32 allowed in {tf32} of {len(known)} records, IEEE float32 in the others, by the axis tf32 or the run's --tf32"
    return f"float32 products and convolutions: {precision}"
