"""Which samples pytest-benchmark is given to show."""

from dataclasses import replace

import pytest

from pairbench.integrations.plugin.items import samples_to_play
from pairbench.model.outcome import Outcome
from tests.analyze.test_records import BASELINE, DEVICE, FAST, QUICK, ROUNDS, SLOW, outcome, records

ON_GPU = outcome(FAST, *ROUNDS)
HOST_ONLY = outcome(BASELINE, *ROUNDS)


def played(found: Outcome, wanted: str | None, **columns: str) -> tuple[str, list[list[float]]]:
    (record,) = records(found)
    return samples_to_play(found, replace(record, **columns), wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize("wanted", [None, "device", "call"])
def test_on_a_gpu_it_is_the_device_s_unless_calls_are_asked_for_and_elsewhere_the_call_s(wanted: str | None) -> None:
    latency, samples = ("call", QUICK) if wanted == "call" else ("device", DEVICE)
    assert played(ON_GPU, wanted) == (latency, [list(values) for values in samples])
    assert played(HOST_ONLY, wanted) == ("call", [list(values) for values in SLOW])
    assert played(ON_GPU, wanted, device_kind="cpu")[0] == "call"
