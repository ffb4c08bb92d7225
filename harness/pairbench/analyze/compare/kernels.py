"""How the lists of kernels of two runs differ: the first place to look for why a call became slower."""

from collections.abc import Sequence

from pairbench.model.comparison import KernelChange
from pairbench.model.policy import DEFAULT, Policy
from pairbench.model.record import KernelCount, Record

_NOTICEABLE_NS = 500.0
"""The least difference that is named: profiled times differ by this much from run to run whatever the kernel."""


def kernel_changes(reference: Record, current: Record, policy: Policy = DEFAULT) -> tuple[KernelChange, ...]:
    """Return the kernels that are new, gone, run more or less often, or take noticeably longer or less long.

    Those that matter most to the latency come first. Nothing where the kernels of a side are not known.
    """
    if reference.kernels is None or current.kernels is None:
        return ()
    before, now = _by_name(reference.kernels), _by_name(current.kernels)
    changes = []
    for name in dict.fromkeys([*now, *before]):
        old, new = before.get(name, (0, 0.0)), now.get(name, (0, 0.0))
        if what := _what(old, new, policy):
            changes.append(
                KernelChange(
                    name=name,
                    what=what,
                    reference_count=old[0],
                    current_count=new[0],
                    reference_ns=old[1],
                    current_ns=new[1],
                )
            )
    return tuple(sorted(changes, key=lambda change: -abs(change.current_ns - change.reference_ns)))


def _by_name(kernels: Sequence[KernelCount]) -> dict[str, tuple[int, float]]:
    by_name: dict[str, tuple[int, float]] = {}
    for kernel in kernels:
        count, total = by_name.get(kernel.name, (0, 0.0))
        by_name[kernel.name] = (count + kernel.count, total + kernel.total_ns)
    return by_name


def _what(old: tuple[int, float], new: tuple[int, float], policy: Policy) -> str | None:
    if not old[0]:
        return "new"
    if not new[0]:
        return "gone"
    if new[0] != old[0]:
        return "more often" if new[0] > old[0] else "less often"
    moved = new[1] - old[1]
    if abs(moved) <= max(policy.kernel_part * old[1], _NOTICEABLE_NS):
        return None
    return "slower" if moved > 0 else "faster"
