import json
from dataclasses import replace
from typing import Any

import pytest

from pairbench.analyze.compare.attribute import (
    FIELDS,
    Circumstances,
    build_changes,
    elsewhere,
    era_changes,
    kernel_changes,
    moved_along,
    outcome_of_move,
)
from pairbench.model.breakdown import KernelBuild, KernelCount
from pairbench.model.comparison import Attribution, EraChange, GateOutcome
from pairbench.model.record import Record
from pairbench.stats import Interval
from tests.builders import make_run

SLOWER = Interval(1.05, 1.04, 1.06)
STILL, ALONG, NOISY, AGAINST = Interval(1.0, 0.99, 1.01), SLOWER, Interval(1.04, 0.9, 1.2), Interval(0.95, 0.94, 0.96)
DRIVER = (EraChange(field="driver", reference="580.1", current="580.2"),)


def known(era: tuple[EraChange, ...] = (), changed: bool | None = False, *, interleaved: bool = False) -> Circumstances:
    return Circumstances(era=era, implementation_changed=changed, control_changed=False, interleaved=interleaved)


@pytest.mark.parametrize(
    ("control", "era", "changed", "expected"),
    [
        (STILL, (), True, Attribution.CODE),
        (STILL, (), False, Attribution.CODE),
        (None, (), None, Attribution.CODE),
        (NOISY, (), False, Attribution.CODE),
        (AGAINST, (), False, Attribution.CODE),
        (ALONG, (), False, Attribution.MACHINE),
        (ALONG, (), True, Attribution.MACHINE),
        (ALONG, DRIVER, True, Attribution.ENVIRONMENT),
        (STILL, DRIVER, False, Attribution.ENVIRONMENT),
        (None, DRIVER, True, Attribution.ENVIRONMENT),
        (STILL, DRIVER, True, Attribution.CODE),
    ],
)
def test_latency(
    control: Interval | None, era: tuple[EraChange, ...], changed: bool | None, expected: Attribution
) -> None:
    found, why = known(era, changed).cause_of_latency(SLOWER, control)
    assert found is expected
    assert ("driver 580.1 -> 580.2" in why) == (expected is Attribution.ENVIRONMENT)
    if control is not None:
        assert f"its control moved {100 * (control.estimate - 1):+.1f} %" in why


def test_a_source_that_did_not_change_is_said_and_in_turns_the_machine_is_the_same() -> None:
    assert known(changed=True, interleaved=True).cause_of_latency(SLOWER, ALONG)[0] is Attribution.CODE
    assert "its source did not change" in known(changed=False).cause_of_latency(SLOWER, STILL)[1]
    assert "its source changed" in known(changed=True).cause_of_latency(SLOWER, STILL)[1]


def test_a_machine_slows_no_count() -> None:
    assert known().cause_of_count()[0] is Attribution.CODE
    assert known(DRIVER).cause_of_count()[0] is Attribution.ENVIRONMENT
    assert known(DRIVER, changed=True).cause_of_count()[0] is Attribution.CODE


def test_along_means_the_same_way_by_half_and_not_by_chance() -> None:
    assert moved_along(SLOWER, Interval(1.03, 1.01, 1.05))
    assert not moved_along(SLOWER, Interval(1.02, 1.01, 1.03))
    assert moved_along(AGAINST, Interval(0.96, 0.95, 0.97))
    assert not moved_along(AGAINST, ALONG)


@pytest.mark.parametrize(
    ("attribution", "slower", "faster"),
    [
        (Attribution.CODE, GateOutcome.REGRESSION, GateOutcome.IMPROVEMENT),
        (Attribution.ENVIRONMENT, GateOutcome.UNDECIDED, GateOutcome.IMPROVEMENT),
        (Attribution.MACHINE, GateOutcome.UNDECIDED, GateOutcome.UNDECIDED),
        (None, GateOutcome.UNDECIDED, GateOutcome.UNDECIDED),
    ],
)
def test_what_a_move_means_to_a_gate(attribution: Attribution | None, slower: GateOutcome, faster: GateOutcome) -> None:
    assert (outcome_of_move(1.05, attribution), outcome_of_move(0.95, attribution)) == (slower, faster)


RECORD = make_run(0)[0]
LONG = "void at::native::elementwise_kernel<128, 4, lambda>(int, lambda)" * 5


def having(**kernels: tuple[int, float]) -> Record:
    return replace(
        RECORD,
        kernels=tuple(KernelCount(name=name, count=count, total_ns=ns) for name, (count, ns) in kernels.items()),
    )


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ((1, 1e5), (1, 1e5), None),
        ((1, 1e5), (1, 1.09e5), None),
        ((1, 1e5), (1, 1.2e5), "slower"),
        ((1, 1e5), (1, 0.8e5), "faster"),
        ((1, 1e3), (1, 1.4e3), None),
        ((1, 1e5), (2, 1e5), "more often"),
        ((2, 1e5), (1, 1e5), "less often"),
    ],
)
def test_one_kernel(before: tuple[int, float], now: tuple[int, float], expected: str | None) -> None:
    found = kernel_changes(having(k=before), having(k=now))
    assert [change.what for change in found] == ([expected] if expected else [])


def test_new_and_gone_by_their_whole_names_largest_first() -> None:
    found = kernel_changes(having(same=(1, 10.0), old=(1, 5.0)), having(**{"same": (1, 10.0), LONG: (3, 900.0)}))
    assert [(change.name, change.what) for change in found] == [(LONG, "new"), ("old", "gone")]
    assert (found[0].current_count, found[0].current_ns, found[0].reference_count) == (3, 900.0, 0)


def test_one_name_in_several_rows_is_one_kernel_and_unknown_kernels_say_nothing() -> None:
    assert kernel_changes(replace(RECORD, kernels=None), RECORD) == ()
    assert kernel_changes(RECORD, replace(RECORD, kernels=None)) == ()
    twice = replace(RECORD, kernels=tuple(KernelCount(name="k", count=1, total_ns=1e5) for _ in range(2)))
    assert kernel_changes(twice, having(k=(2, 2e5))) == ()


def test_each_field_is_named_three_of_them_at_most() -> None:
    changes = era_changes(RECORD, replace(RECORD, **dict.fromkeys(FIELDS, "other")))  # type: ignore[arg-type]
    assert [(change.field, change.reference, change.current) for change in changes] == [
        (field, getattr(RECORD, field), "other") for field in FIELDS
    ]
    assert known(changes).environment.startswith("environment changed: driver 580.1 -> other, cuda 12.8 -> other, ")
    assert known(changes).environment.endswith(" and 4 more")


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({}, {"flags": {"matmul.allow_tf32": True}}, ["flags.matmul.allow_tf32 false -> true"]),
        ({"gpu": {"mig": 1}}, {"cores": 8}, ["gpu.mig 1 -> none", "cores none -> 8"]),
        ({}, {"observed": {"ceilings": {"copy_gbps": 1}}}, []),  # what was only observed is no era
        ({}, {}, []),
        ({}, "no JSON", ["flags.matmul.allow_tf32 false -> none", "environment none -> no JSON"]),
        ({}, "[1]", ["flags.matmul.allow_tf32 false -> none", "environment none -> [1]"]),
    ],
)
def test_what_differs_in_the_environment_is_named_by_its_path(before: Any, now: Any, said: list[str]) -> None:
    texts = [
        one if isinstance(one, str) else json.dumps({"flags": {"matmul.allow_tf32": False}, **one})
        for one in (before, now)
    ]
    later = replace(RECORD, run_id="another", hostname="elsewhere", device_uuid="GPU-9", environment=texts[1])
    assert [str(change) for change in era_changes(replace(RECORD, environment=texts[0]), later)] == said


def test_another_machine_or_gpu_is_said() -> None:
    assert elsewhere(RECORD, RECORD) == ""
    assert elsewhere(RECORD, replace(RECORD, hostname="b")) == "another machine, box -> b"
    assert "another GPU of the model, GPU-0 -> GPU-1" in elsewhere(RECORD, replace(RECORD, device_uuid="GPU-1"))


BUILT = KernelBuild(name="_add", registers=40, shared_bytes=0, warps=4, spills=0, stages=3, code="aa")


@pytest.mark.parametrize(
    ("now", "phrase"),
    [
        (replace(BUILT, registers=64, spills=12), "_add was compiled otherwise (40 registers, 0 spills, "),
        (replace(BUILT, code="bb"), "_add was compiled otherwise (other machine code)"),
        (BUILT, ""),
        (replace(BUILT, name="_new"), ""),
    ],
)
def test_a_kernel_that_was_compiled_otherwise_is_named(now: KernelBuild, phrase: str) -> None:
    before, after = (replace(RECORD, kernel_builds=(one,)) for one in (BUILT, now))
    assert build_changes(before, after).startswith(phrase) and bool(build_changes(before, after)) is bool(phrase)
    assert Circumstances.between(before, after).built == build_changes(before, after)
    # A changed source explains it.
    assert Circumstances.between(before, replace(after, implementation_hash="other")).built == ""
    # Nothing is known of an earlier release's record.
    assert build_changes(replace(RECORD, kernel_builds=None), after) == ""


def test_another_choice_of_the_autotuner_is_named_before_another_gpu() -> None:
    """The control, which no tuner changed, stayed where it was."""
    before = replace(RECORD, autotuned=("_add: BLOCK=128",), device_uuid="GPU-1")
    after = replace(RECORD, autotuned=("_add: BLOCK=256",), device_uuid="GPU-2")
    found = Circumstances.between(before, after, gpus=("GPU-1", "GPU-2"))
    slower, still = Interval(1.2, 1.15, 1.25), Interval(1.0, 0.99, 1.01)
    cause, why = found.cause_of_latency(slower, still)
    assert cause is Attribution.CODE
    assert why.startswith("autotuned _add: BLOCK=256 instead of _add: BLOCK=128; its control moved +0.0 %")
    # A control that moved alike was not tuned: the machine did both.
    assert found.cause_of_latency(slower, slower)[0] is Attribution.MACHINE
