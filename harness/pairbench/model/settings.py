"""The settings of a run, resolved: none is optional."""

from collections.abc import Iterable

from pairbench.model.plain import Value

MODES = ("eager", "compile", "graph")
TIMERS = ("auto", "do_bench")
OWN_TIMERS = {"cuda": "cuda_event", "cpu": "perf_counter"}
"""The timer that `auto` stands for, by kind of device."""


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
