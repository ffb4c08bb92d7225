"""What an implementation may change of its process is seen and put back: also what the kernel, Python and the dispatcher keep."""

import gc
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from pairbench.execute.worker import flags
from pairbench.execute.worker.flags import changed_flags, restore_flags, stuck, watched_flags
from pairbench.execute.worker.process_state import files, registered


@pytest.fixture(autouse=True)
def before(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    monkeypatch.setattr(files, "spare", {})
    if "PYTEST_CURRENT_TEST" in os.environ:  # pytest changes it between set-up and test
        monkeypatch.setitem(
            flags._FLAGS,
            "environment",
            flags._FLAGS["environment"]._replace(
                read=lambda: {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
            ),
        )
    found = watched_flags()
    yield found
    restore_flags(found)
    flags._stuck.clear()


def _profile() -> None:
    torch.autograd.profiler.profile().__enter__()


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _register() -> None:
    library = torch.library.Library("aten", "IMPL")
    places: dict[str, Any] = {}
    exec("def register(library):\n library.impl('relu', lambda x: x, 'CPU')", places)  # noqa: S102
    places["register"](library)


class _Finder:
    def find_spec(self, *_: object) -> None:
        return None


CHANGES: dict[str, Callable[[], object]] = {
    "handlers of signals (SIGUSR2)": lambda: signal.signal(signal.SIGUSR2, lambda *_: None),
    "timers": lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 1000),
    "umask": lambda: os.umask(0o777),
    "environment variables (SOMETHING)": lambda: os.environ.update(SOMETHING="1"),
    "folder": lambda: os.chdir("/"),
    "sys.path": lambda: sys.path.insert(0, "/nowhere"),
    "sys.meta_path": lambda: sys.meta_path.insert(0, _Finder()),
    "switch_interval": lambda: sys.setswitchinterval(1e-5),
    "settings of the garbage collector": lambda: gc.callbacks.append(lambda *_: None),
    "hooks of all modules": lambda: torch.nn.modules.module.register_module_forward_hook(lambda *_: None),
    "hooks of all saved tensors": lambda: torch.autograd.graph.saved_tensors_hooks(abs, abs).__enter__(),
    "profiler": _profile,
    "kernels of operators that others use: aten::relu (CPU)": _register,
}


@pytest.mark.filterwarnings("ignore:Warning only once:UserWarning")
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_named_and_put_back(name: str, before: dict[str, object]) -> None:
    CHANGES[name]()
    assert name in (changed_flags(before) or "")
    restore_flags(before)
    assert changed_flags(before) is None and not stuck() and not registered
    assert torch.relu(torch.tensor(-1.0)) == 0


def test_cores_and_priority_are_seen(before: dict[str, object]) -> None:
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("there is one core")
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert "affinity" in (changed_flags(before) or "")
        restore_flags(before)
        assert os.sched_getaffinity(0) == cores and not stuck()
    finally:
        os.sched_setaffinity(0, cores)


def test_what_libraries_add_for_themselves_is_taken_away_and_names_nobody(before: dict[str, object]) -> None:
    os.environ["KMP_SOMETHING"] = "1"
    sys.path.append("/nowhere")
    sys.meta_path.append(finder := _Finder())
    try:
        assert changed_flags(before) is None
        restore_flags(before)
        assert "KMP_SOMETHING" not in os.environ and not stuck()
    finally:
        sys.path.remove("/nowhere")
        sys.meta_path.remove(finder)


def test_a_suite_s_own_operator_is_its_own(before: dict[str, object]) -> None:
    places: dict[str, object] = {"torch": torch}
    exec(  # noqa: S102
        "def make():\n torch.library.custom_op('made_up_ops::twice', lambda x: 2 * x, mutates_args=(), schema='(Tensor x) -> Tensor')",
        places,
    )
    places["make"]()  # type: ignore[operator]
    assert changed_flags(before) is None


def test_a_file_that_was_closed_or_replaced_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    files.hold(theirs)
    before = watched_flags()
    os.close(theirs)
    assert "open files" in (changed_flags(before) or "")
    restore_flags(before)
    os.write(theirs, b"1")
    assert os.read(ours, 1) == b"1" and not stuck()
