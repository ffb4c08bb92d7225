"""Whether a call computes the same when it is profiled: else its counts are those of another call."""

from typing import Any

import torch
from torch.profiler import ProfilerActivity

from pairbench.execute.worker.calls import Call
from pairbench.execute.worker.devices import synchronize
from pairbench.execute.worker.profile.memory import count_ops
from pairbench.execute.worker.profile.trace import recording
from pairbench.execute.worker.trees import copy_tree, has_room
from pairbench.execute.worker.verify.case import oracle_or_why
from pairbench.execute.worker.verify.judge import Known, judge, same_outputs


def profiled_otherwise(call: Call, inputs: dict[str, Any], device: torch.device) -> str | None:
    """Return a sentence where a profiled call, or one whose operators are counted, gives another output, else None.

    Outputs that there is no room to copy are not compared.

    Args:
        call: What is profiled.
        inputs: What it was made of, with its state as it was at first.
        device: Where.
    """

    def observed() -> Any:
        if call.operator.state and not call.operator.reset:
            call.refill(inputs)  # else outputs depend on how many calls there were
        return call.observe()

    plain = observed()
    if not has_room(plain, copies=3):
        return None
    expected, kept = copy_tree(plain), dict[str, Any]()
    with recording([ProfilerActivity.CPU]):
        kept["profiled"] = copy_tree(observed())
    count_ops(lambda: kept.update({"watched operator by operator": copy_tree(observed())}))
    synchronize(device)
    tolerance_for, known = call.operator.tolerance_for, Known(inputs)
    for name, outputs in kept.items():
        if same_outputs(outputs, expected) or not judge(outputs, expected, None, tolerance_for, known).mismatch:
            continue
        # Elements beyond the tolerance may still be right; the oracle is asked only here, for it takes long.
        truth, _ = oracle_or_why(call.operator, inputs)
        if wrong := judge(outputs, expected, truth, tolerance_for, known).mismatch:
            return f"computes something else when it is {name}: {wrong}; its counts would be those of another call"
    return None
