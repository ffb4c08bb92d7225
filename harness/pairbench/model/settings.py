"""What a run was told to do, resolved: no optional fields past this point."""

from dataclasses import dataclass

MODES = ("eager", "compile", "graph")
TIMERS = ("auto", "do_bench")
OWN_TIMERS = {"cuda": "cuda_event", "cpu": "perf_counter"}
"""What `auto` is on a kind of device."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that decides how implementations are verified, timed and profiled."""

    modes: tuple[str, ...] = ("eager",)
    tiers: tuple[str, ...] = ()
    """Empty: smoke on a CPU, all that are timed on a GPU."""
    rounds: int = 3
    """Fresh worker processes that time every case."""
    timeout_s: float = 300.0
    """For one implementation in one stage."""
    timer: str = "auto"
    """`auto`: one of OWN_TIMERS. `do_bench`: Triton's own function."""
    target: float = 0.005
    """Stop when the 95 % interval of each variant's log ratio to the baseline is narrower than this to both sides."""
    min_samples: int = 100
    """Samples of each implementation over all rounds, so that P95 means something."""
    max_samples: int = 5000
    """The same, at most."""
    case_seconds: float = 1.0
    """Cap on the timing of one case in one round."""
    seed: int = 0
    tf32: bool = False
    """Whether float32 convolutions and matrix products may use TF32; pinned alike for every implementation."""
    memory_fraction: float = 0.8
    """Part of the machine's memory that one worker may take before it is ended."""
