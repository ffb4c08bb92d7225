"""What a gate calls a change: every threshold of judging, with the reason for its value."""

from dataclasses import dataclass, replace

from pairbench.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The thresholds of a comparison. The defaults are those whose error rates `tests/gate/README.md` publishes."""

    minimum_effect: float = 0.02
    """The smallest relative change of a latency that must be caught; a series with a noise floor has at least twice
    that floor."""
    least_estimate: float = 0.75
    """The part of the minimum effect that an estimate must reach. With 1, half of the changes of just that size are
    missed."""
    false_discovery_rate: float = 0.005
    """The rate of Benjamini-Hochberg over all latencies of a comparison. Where nothing changed it is the chance of
    any alarm."""

    most_prior_rounds: float = 20.0
    """The most degrees of freedom that other series lend. With more, two outlying rounds of three could raise an
    alarm."""
    least_spread: float = 0.0003
    """The least relative spread between rounds that is believed: three rounds may agree by chance to the last tick."""
    tick_ns: float = 32.0
    """The step in ns of the clock behind CUDA events on current GPUs; medians of short calls differ by whole steps."""

    memory_part: float = 0.01
    memory_bytes: int = 1 << 20
    """Peak memory may grow by `memory_part` of itself or by `memory_bytes`, whichever is more: allocators round up."""

    margin_part: float = 0.5
    """The part of the reference's correctness margin that has to be left, unless `margin_safe` is."""
    margin_safe: float = 0.5
    """The part of the tolerance that is enough to be left, whatever the reference had."""

    host_floor: float = 0.1
    """The largest noise floor of a host's own time, in log units, with which it counts as one that repeats and is judged."""
    host_relative_floor: float = 0.35
    """The largest noise floor of the host's time relative to the baseline's, in log units, with which it counts as one that
    repeats and is judged. Twice this floor is a factor of two."""
    calibration_alarms: float = 0.01
    """The part of a calibration's judgements that may have been false alarms for its machine to count as quiet."""

    kernel_part: float = 0.1
    """The relative change of a kernel's profiled time that is worth naming: profiled times are indications."""
    control_part: float = 0.5
    """The part of a change that its control must show as well for the machine to be the likelier cause."""
    confirmed_part: float = 0.5
    """The part of a change that the second measurement must show alone."""


DEFAULT = Policy()


def policy_of(min_effect: float | None, *, name: str = "--min-effect") -> Policy:
    """Return the default thresholds with another minimum effect.

    Args:
        min_effect: In percent; None for the default one.
        name: What the user calls it.

    Raises:
        UsageError: it is no such percentage.
    """
    if min_effect is None:
        return DEFAULT
    if not 0 < min_effect < 100:
        raise UsageError(f"{name} is {min_effect:g}, expected a percentage between 0 and 100, such as 2")
    return replace(DEFAULT, minimum_effect=min_effect / 100)
