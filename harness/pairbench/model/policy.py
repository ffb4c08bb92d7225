"""What a gate calls a change: every threshold of judging, with the reason for its value."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The thresholds of a comparison. The defaults are those whose error rates `tests/gate/README.md` publishes."""

    minimum_effect: float = 0.02
    """Smallest relative change of a latency that must be caught; a series with a noise floor has at least twice that."""
    least_estimate: float = 0.75
    """Part of the minimum effect that an estimate must reach. With 1, half of the changes of just that size are missed."""
    false_discovery_rate: float = 0.005
    """Of Benjamini-Hochberg over all latencies of a comparison. Where nothing changed it is the chance of any alarm."""

    most_prior_rounds: float = 20.0
    """Most degrees of freedom that other series lend. With more, two outlying rounds of three could raise an alarm."""
    least_spread: float = 0.0003
    """Least relative spread between rounds that is believed: three rounds may agree by chance to the last tick."""
    tick_ns: float = 32.0
    """Step of the clock behind CUDA events on current GPUs; medians of short calls differ by whole steps."""

    memory_part: float = 0.01
    memory_bytes: int = 1 << 20
    """Peak memory may grow by this part of itself or by this much, whichever is more: allocators round up."""

    margin_part: float = 0.5
    """Part of the correctness margin that has to be left, compared with the reference..."""
    margin_safe: float = 0.5
    """...unless at least this part of the tolerance is still unused."""

    calibration_alarms: float = 0.01
    """Part of a calibration's judgements that may have been false alarms for its machine to count as quiet."""

    kernel_part: float = 0.1
    """Relative change of a kernel's profiled time that is worth naming: profiled times are indications."""
    control_part: float = 0.5
    """Part of a change that its control must show as well for the machine to be the likelier cause."""
    confirmed_part: float = 0.5
    """Part of a change that the second measurement must show alone."""


DEFAULT = Policy()
