import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from pairbench.execute.worker import flags, trusted
from pairbench.execute.worker.flags import changed_flags, read_flags, restore_flags, stuck, watched_flags
from pairbench.execute.worker.process_state import files, registered

assert trusted.watch, "which also watches how kernels of operators are registered"


@pytest.fixture(autouse=True)
def before(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    """Return the flags, and set them back."""
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


def _register() -> None:
    library = torch.library.Library("aten", "IMPL")
    places: dict[str, Any] = {}
    exec("def register(library):\n library.impl('relu', lambda x: x, 'CPU')", places)  # noqa: S102
    places["register"](library)


class _Finder:
    def find_spec(self, *_: object) -> None:
        return None


CHANGES: dict[str, Callable[[], object]] = {
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "default_dtype": lambda: torch.set_default_dtype(torch.float64),
    "grad_enabled": lambda: torch.set_grad_enabled(False),
    "deterministic_algorithms": lambda: torch.use_deterministic_algorithms(True),
    "deterministic_warn_only": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "flush_denormal": lambda: torch.set_flush_denormal(True),
    "mkldnn.enabled": lambda: torch.backends.mkldnn.set_flags(False),
    "mkldnn.deterministic": lambda: setattr(torch.backends.mkldnn, "deterministic", True),
    "matmul.allow_tf32": lambda: torch.set_float32_matmul_precision("medium"),
    "fp32_precision": lambda: setattr(torch.backends, "fp32_precision", "tf32"),
    "cudnn.fp32_precision": lambda: setattr(torch.backends.cudnn, "fp32_precision", "tf32"),
    "mkldnn.fp32_precision": lambda: setattr(torch.backends.mkldnn, "fp32_precision", "bf16"),
    "mkldnn.rnn.fp32_precision": lambda: setattr(torch.backends.mkldnn.rnn, "fp32_precision", "bf16"),
    "cudnn.benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "flash_sdp": lambda: torch.backends.cuda.enable_flash_sdp(False),
    "autocast.cpu": lambda: torch.set_autocast_enabled("cpu", True),
    "anomaly_mode": lambda: torch.autograd.set_detect_anomaly(True, check_nan=True),
    "mha_fastpath": lambda: torch.backends.mha.set_fastpath_enabled(False),
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
def test_a_change_is_named_and_taken_back(name: str, before: dict[str, object]) -> None:
    if name == "flush_denormal" and not torch.set_flush_denormal(False):
        pytest.skip("this processor cannot")
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


def test_what_libraries_add_for_themselves_and_operators_of_a_suite_s_own_name_nobody(
    before: dict[str, object],
) -> None:
    places: dict[str, object] = {"torch": torch}
    exec(  # noqa: S102
        "def make():\n torch.library.custom_op('made_up_ops::twice', lambda x: 2 * x, mutates_args=(), schema='(Tensor x) -> Tensor')",
        places,
    )
    places["make"]()  # type: ignore[operator]
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


def test_a_file_that_was_closed_or_replaced_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    files.hold(theirs)
    before = watched_flags()
    os.close(theirs)
    assert "open files" in (changed_flags(before) or "")
    restore_flags(before)
    os.write(theirs, b"1")
    assert os.read(ours, 1) == b"1" and not stuck()


def test_what_is_recorded_is_what_all_histories_were_made_with() -> None:
    """A name more would change the hash of every environment, and so begin every series anew."""
    assert list(read_flags()) == [
        "matmul.allow_tf32",
        "cudnn.allow_tf32",
        "cudnn.benchmark",
        "cudnn.deterministic",
        "cudnn.enabled",
        "fp16_reduced_precision_reduction",
        "bf16_reduced_precision_reduction",
        "deterministic_algorithms",
        "default_dtype",
        "grad_enabled",
        "threads",
    ]
    assert set(read_flags()) < set(watched_flags())


def test_what_cannot_be_taken_back_ends_the_process(before: dict[str, object]) -> None:
    mode = torch.overrides.TorchFunctionMode()
    mode.__enter__()
    try:
        assert changed_flags(before) == "modes (0, 0) -> (0, 1)"
        restore_flags(before)
        assert stuck()
    finally:
        mode.__exit__(None, None, None)


def test_a_flag_that_torch_no_longer_tells_is_a_change(
    before: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of old and new names for TF32 that were both used."""

    def read() -> bool:
        raise RuntimeError("mix of the legacy and new APIs")

    monkeypatch.setitem(flags._FLAGS, "matmul.allow_tf32", flags._FLAGS["matmul.allow_tf32"]._replace(read=read))
    assert changed_flags(before) == "matmul.allow_tf32 False -> unreadable"
