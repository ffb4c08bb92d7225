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


@pytest.mark.parametrize("wanted", [None, "device"])
def test_on_a_gpu_it_is_the_device_s(wanted: str | None) -> None:
    assert played(ON_GPU, wanted) == ("device", [list(values) for values in DEVICE])


def test_calls_are_there_for_who_asks() -> None:
    assert played(ON_GPU, "call") == ("call", [list(values) for values in QUICK])


@pytest.mark.parametrize("wanted", [None, "device", "call"])
def test_elsewhere_it_is_the_call_s(wanted: str | None) -> None:
    assert played(HOST_ONLY, wanted) == ("call", [list(values) for values in SLOW])
    assert played(ON_GPU, wanted, device_kind="cpu")[0] == "call"
