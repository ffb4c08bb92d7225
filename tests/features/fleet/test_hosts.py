from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.errors import UsageError
from pairbench.execute.parent.lock import LoadMeter
from pairbench.features.fleet import worker
from pairbench.features.fleet.command import ANY, on_models, read_plan
from pairbench.features.fleet.worker import other_work, processes_of
from pairbench.model.unit import Host, Offer, Unit
from tests.fleet.fleet import offer

UNIT = Unit(operators=("a.py::b",), device="cpu", tier=("smoke",), rounds=2)


def host(kind: str, model: str) -> Host:
    return Host(name=model, address=f"tcp://{model}", offers=(offer(kind=kind, model=model),))


def test_a_plan_in_toml_and_json_is_the_same(tmp_path: Path) -> None:
    toml, json = tmp_path / "plan.toml", tmp_path / "plan.json"
    toml.write_text('[[units]]\noperators = "a.py::b"\ndevice = "cpu"\ntier = ["smoke"]\nrounds = 2\n')
    json.write_text('{"units": [{"operators": ["a.py::b"], "device": "cpu", "tier": "smoke", "rounds": 2}]}')
    assert read_plan(toml) == read_plan(json) == (UNIT,)
    assert UNIT.options() == ("--tier", "smoke", "--rounds", "2", "--", "a.py::b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot be read"),
        ("[]", "has no units"),
        ('{"units": []}', "has no units"),
        ('{"units": [3]}', "unit 1 is 3, expected a table"),
        ('{"units": [{"device": "cpu"}]}', "`operators` is missing"),
        ('{"units": [{"operators": ["a"]}]}', "`device` is None"),
        ('{"units": [{"operators": ["a"], "device": "cpu", "rounds": true}]}', "`rounds` is True"),
        ('{"units": [{"operators": ["a"], "device": "cpu", "banana": 1}]}', "'banana' is unknown"),
    ],
)
def test_what_is_wrong_with_a_plan_has_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(UsageError, match="plan") as caught:
        read_plan(file)
    assert words in str(caught.value)


def test_any_device_is_each_gpu_model_or_else_each_cpu() -> None:
    unit = replace(UNIT, device=ANY)
    hosts = [host("cpu", "some-cpu"), host("cuda", "nvidia-h200"), host("cuda", "nvidia-h100")]
    assert [one.device for one in on_models([unit, UNIT], hosts)] == ["nvidia-h100", "nvidia-h200", "cpu"]
    assert [one.device for one in on_models([unit], hosts[:1])] == ["some-cpu"]
    with pytest.raises(UsageError, match="no worker has joined"):
        on_models([unit], [])


GPU, CPU = offer(), offer("cpu-here", kind="cpu", model="some-cpu", selector="cpu")
PROCESSES = [("GPU-1", "4711"), ("GPU-2", "4712")]


def test_what_nvidia_smi_prints() -> None:
    assert processes_of("GPU-1, 4711\nGPU-2, 4712\n") == PROCESSES
    assert processes_of("No running processes found\n[N/A], [N/A]\n") == []


@pytest.mark.parametrize(
    ("own", "busy", "processes", "said"),
    [
        (CPU, 0.5, PROCESSES, None),
        (GPU, 4.0, PROCESSES[1:], None),
        (CPU, 4.0, [], "4.0 of 8 cores are busy with other work"),
        (GPU, 0.0, PROCESSES, "processes 4711 compute on its GPU"),
    ],
)
def test_a_quiet_host_takes_units_and_one_with_other_work_says_so(
    monkeypatch: pytest.MonkeyPatch, own: Offer, busy: float, processes: list[tuple[str, str]], said: str | None
) -> None:
    monkeypatch.setattr("pairbench.features.fleet.worker.LoadMeter.foreign_cores", lambda _: busy)
    monkeypatch.setattr(worker, "count_cores", lambda: 8)
    monkeypatch.setattr(worker, "compute_processes", lambda: processes)
    assert other_work((own,), LoadMeter()) == said
