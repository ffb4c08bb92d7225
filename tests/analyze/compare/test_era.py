"""What else changed between two runs."""

import json
from dataclasses import replace
from typing import Any

import pytest

from pairbench.analyze.compare.attribute import FIELDS, elsewhere, era_changes
from tests.builders import make_run

RECORD = make_run(0)[0]


def rest(**more: Any) -> str:
    return json.dumps({"flags": {"matmul.allow_tf32": False}, **more})


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_is_named(field: str) -> None:
    (change,) = era_changes(RECORD, replace(RECORD, **{field: "other"}))  # type: ignore[arg-type]
    assert (change.field, change.reference, change.current) == (field, getattr(RECORD, field), "other")


def test_nothing_changed() -> None:
    assert era_changes(RECORD, replace(RECORD, run_id="another", hostname="elsewhere", device_uuid="GPU-9")) == ()


def test_a_flag_deep_in_the_environment_is_named_by_its_path() -> None:
    (change,) = era_changes(
        replace(RECORD, environment=rest()),
        replace(RECORD, environment=json.dumps({"flags": {"matmul.allow_tf32": True}})),
    )
    assert str(change) == "flags.matmul.allow_tf32 false -> true"


def test_what_comes_and_goes() -> None:
    changes = era_changes(replace(RECORD, environment=rest(gpu={"mig": 1})), replace(RECORD, environment=rest(cores=8)))
    assert [str(change) for change in changes] == ["gpu.mig 1 -> none", "cores none -> 8"]


def test_what_was_only_observed_is_no_era() -> None:
    with_it = replace(RECORD, environment=rest(observed={"ceilings": {"copy_gbps": 1}}))
    assert era_changes(replace(RECORD, environment=rest()), with_it) == ()


@pytest.mark.parametrize("text", ["no JSON", "[1]"])
def test_a_damaged_environment_is_one_change(text: str) -> None:
    changes = era_changes(replace(RECORD, environment=rest()), replace(RECORD, environment=text))
    assert text in [change.current for change in changes]


def test_another_machine_or_gpu_is_said() -> None:
    assert elsewhere(RECORD, RECORD) == ""
    assert elsewhere(RECORD, replace(RECORD, hostname="b")) == "another machine, box -> b"
    assert "another GPU of the model, GPU-0 -> GPU-1" in elsewhere(RECORD, replace(RECORD, device_uuid="GPU-1"))
