"""Devices get beside them what their plans need, and foreign processes are named wherever they are."""

import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pairbench.execute.parent.pool import WorkerContext
from pairbench.execute.parent.scout import Survey
from pairbench.model.case import make_case
from pairbench.model.environment import Device, Environment, Settings
from pairbench.model.plan import Entry, ImplementationDescription, OperatorDescription
from pairbench.plan import parse_selection
from pairbench.workflow.devices import HostWatch, on_devices, plans_for
from pairbench.workflow.setup import Chosen, Request
from tests.builders import described

GPUS = tuple(
    Device(selector=f"cuda:{index}", kind="cuda", name="NVIDIA H200", uuid=f"GPU-{index}", capability=(9, 0))
    for index in range(3)
)
CPU = Device(selector="cpu", kind="cpu", name="a CPU")


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerContext:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return WorkerContext(settings=Settings(), cache=tmp_path, interrupted=threading.Event(), memory_bytes=1 << 30)


def operator(name: str, *needs: str) -> OperatorDescription:
    variants = [ImplementationDescription(name=f"v{place}", needs=(need,), hash="") for place, need in enumerate(needs)]
    return described(
        name=name,
        definition_hash="",
        implementations=(ImplementationDescription(name="baseline", needs=(), hash=""), *variants),
        cases=(make_case(name, {"rows": 4}, "smoke"),),
    )


def chosen(*select: str) -> Chosen:
    operators = (operator("plain", "cuda"), operator("shared", "gpus:2", "gpus:8"))
    return Chosen(
        survey=Survey(devices=(*GPUS, CPU), operators=operators, broken=()),
        selections=tuple(parse_selection(text) for text in select),
    )


def beside(context: WorkerContext, *select: str) -> dict[str, list[str]]:
    found = plans_for(context, chosen(*select), (*GPUS, CPU), edge=False)
    return {device.selector: [other.selector for other in device.beside] for device in found}


def test_one_device_takes_others_and_only_where_its_plan_needs_them(context: WorkerContext) -> None:
    assert beside(context, "shared") == {"cuda:0": ["cuda:1"], "cuda:1": [], "cuda:2": [], "cpu": []}
    assert beside(context) == beside(context, "shared")
    assert beside(context, "plain") == {"cuda:0": [], "cuda:1": [], "cuda:2": [], "cpu": []}


def test_what_uses_several_is_left_to_the_first_of_the_model(context: WorkerContext) -> None:
    reasons = [plan.cases[0].skipped for plan in plans_for(context, chosen("shared"), GPUS[1:], edge=False).values()]
    several = Entry(implementation="v0", mode="eager")
    assert [found.get(several) for found in reasons] == [
        None,
        "uses several GPUs, and is measured on cuda:1, which takes the others along",
    ]


def test_sessions_that_share_a_gpu_take_turns_and_all_of_them_come_through(context: WorkerContext) -> None:
    told: Any = mock.Mock()
    at_work: set[str] = set()
    done: list[str] = []

    def work(device: Device) -> None:
        own = {one.selector for one in (device, *device.beside)}
        assert not own & at_work
        at_work.update(own)
        threading.Event().wait(0.2)
        at_work.difference_update(own)
        done.append(device.selector)

    request = Request(mock.MagicMock(), context, chosen("shared"), GPUS, told)
    on_devices(request, tuple(plans_for(context, request.chosen, GPUS, edge=False)), work)
    assert sorted(done) == ["cuda:0", "cuda:1", "cuda:2"]
    said = [call.args[0] for call in told.notify.call_args_list]
    assert said and all("is held by another device's turn of this run; waiting for it" in text for text in said)


def test_foreign_processes_are_named_with_the_gpu_that_they_are_on() -> None:
    observed = {"foreign_processes": [7], "foreign_processes_beside": {"cuda:1": [], "cuda:2": [8, 9]}}
    unknown: dict[str, Any] = dict.fromkeys(("driver", "cuda", "cudnn", "triton"))
    versions = {**unknown, "torch": "", "python": "", "hostname": "", "cpu": ""}
    environment = Environment(device=GPUS[0], rest={"observed": observed}, **versions)
    said: list[str] = []
    HostWatch(GPUS[0], said.append).begin(environment)
    assert [line for line in said if "cores are busy" not in line] == [
        "pairbench: processes [7] compute on cuda:0 too; latencies will be far too long",
        "pairbench: processes [8, 9] compute on cuda:2 too; latencies will be far too long",
    ]
