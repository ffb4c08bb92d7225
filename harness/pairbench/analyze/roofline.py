"""What a call achieves of what its device was measured to be capable of."""

from pairbench.model.environment import Environment
from pairbench.model.outcome import Outcome


def roofline_columns(outcome: Outcome, *, latency_ns: float, environment: Environment) -> dict[str, float | None]:
    """Return the columns of an outcome's roofline; none where no cost is declared.

    Args:
        outcome: Of one implementation.
        latency_ns: What the device's share of a call takes, as far as that is known.
        environment: Whose ceilings count.
    """
    cost = outcome.operator.costs.get(outcome.case.key)
    if cost is None:
        return {}
    flops, moved = cost
    ceilings = environment.rest.get("observed", {}).get("ceilings", {})
    bandwidth = ceilings.get("copy_gbps")
    rates = {name: rate for name, rate in ceilings.items() if name.endswith("_tflops")}
    # Where no axis says the dtype, the highest ceiling: a fraction may then be too low, and never over the roof.
    rate = rates.get(f"{outcome.case.dtype}_tflops") if outcome.case.dtype else max(rates.values(), default=None)
    floors = [moved / bandwidth if bandwidth else None, flops / rate / 1e3 if rate else None]
    known = [floor for floor in floors if floor is not None]
    # Several GPUs have a roof that is so many times as high.
    gpus = outcome.operator.implementation(outcome.entry.implementation).gpus
    return {
        "flops": flops,
        "bytes_moved": moved,
        "tflops": flops / latency_ns / 1e3,
        "gbps": moved / latency_ns,
        "roofline_fraction": max(known) / gpus / latency_ns if len(known) == len(floors) else None,
    }
