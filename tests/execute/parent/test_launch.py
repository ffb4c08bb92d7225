from dataclasses import replace
from unittest.mock import MagicMock

import pytest

from pairbench.errors import UsageError
from pairbench.execute.forking import Preload
from pairbench.execute.parent import launch
from pairbench.execute.parent.launch import ForkServers, FreshInterpreters, Launchers, open_launchers
from pairbench.execute.parent.pool import ANY, WorkerContext, WorkerProcess, _environment
from pairbench.model.environment import Device
from tests.execute.made import CPU, GPU

BESIDE = replace(GPU, selector="cuda:1", uuid="GPU-1")


@pytest.mark.parametrize(
    ("yielding", "users", "policy"), [(True, None, "PASSIVE"), (False, None, None), (True, "ACTIVE", "ACTIVE")]
)
def test_threads_yield_where_others_are_at_work_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, yielding: bool, users: str | None, policy: str | None
) -> None:
    start = MagicMock(return_value=(MagicMock(), MagicMock()))
    monkeypatch.setattr(launch, "start_server", start)
    with open_launchers({}, yielding=yielding) as launchers:
        launchers.shared.prepare({"OMP_WAIT_POLICY": users} if users else {}, Preload.MEASUREMENT)
    start.assert_called_once()
    assert start.call_args.args[0].get("OMP_WAIT_POLICY") == policy


@pytest.mark.parametrize(
    ("asked", "shared", "alone"),
    [
        ({}, ForkServers, FreshInterpreters),
        ({"PAIRBENCH_WORKERS": "fork"}, ForkServers, ForkServers),
        ({"PAIRBENCH_WORKERS": "fresh"}, FreshInterpreters, FreshInterpreters),
    ],
)
def test_what_is_timed_is_in_an_interpreter_of_its_own(asked: dict[str, str], shared: type, alone: type) -> None:
    with open_launchers(asked) as launchers:
        assert (type(launchers.shared), type(launchers.alone)) == (shared, alone)


@pytest.mark.parametrize(
    ("device", "timed", "alone"), [(CPU, False, False), (CPU, True, True), (GPU, False, False), (GPU, True, False)]
)
def test_what_is_timed_on_a_cpu_shares_nothing(
    context: WorkerContext, device: Device, timed: bool, alone: bool
) -> None:
    shared, own = MagicMock(), MagicMock()
    with WorkerProcess(replace(context, launchers=Launchers(shared, own)), device, timed=timed):
        assert (shared.launch.called, own.launch.called) == (not alone, alone)


def test_an_unknown_way_to_start_workers_is_refused() -> None:
    with (
        pytest.raises(UsageError, match=r"PAIRBENCH_WORKERS is 'spoon', expected 'fresh' .* 'fork' .*"),
        open_launchers({"PAIRBENCH_WORKERS": "spoon"}),
    ):
        pass


@pytest.mark.parametrize(
    ("device", "visible"), [(GPU, "GPU-0"), (replace(GPU, beside=(BESIDE,)), "GPU-0,GPU-1"), (CPU, "")]
)
def test_a_worker_sees_its_own_gpu_first_and_no_more_than_it_needs(
    context: WorkerContext, device: Device, visible: str
) -> None:
    assert _environment(context, device, interpret=False)["CUDA_VISIBLE_DEVICES"] == visible


def test_a_worker_on_a_gpu_starts_no_pool_of_compiling_processes(
    context: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each imports torch while the first kernels are compiled without it, and has to come to rest before anything is timed."""
    name = "TORCHINDUCTOR_COMPILE_THREADS"
    monkeypatch.delenv(name, raising=False)
    # That of any device is the server's, which imports the compiler and its settings.
    assert _environment(context, GPU, interpret=False)[name] == _environment(context, ANY, interpret=False)[name] == "1"
    assert name not in _environment(context, CPU, interpret=False)  # a C++ compiler's runs are threads there
    monkeypatch.setenv(name, "8")
    assert _environment(context, GPU, interpret=False)[name] == "8"
