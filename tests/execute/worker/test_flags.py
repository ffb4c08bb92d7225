"""Global switches: each is seen when it changes, and set back; what cannot be set back ends the process."""

from collections.abc import Callable, Iterator

import pytest
import torch

from pairbench.execute.worker import flags
from pairbench.execute.worker.flags import changed_flags, read_flags, restore_flags, stuck, watched_flags

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
}


@pytest.fixture(autouse=True)
def before(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    """Return the flags, and set them back."""
    monkeypatch.delitem(flags._FLAGS, "environment")  # pytest changes it between set-up and test
    found = watched_flags()
    yield found
    restore_flags(found)
    flags._stuck.clear()


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_named_and_taken_back(name: str, before: dict[str, object]) -> None:
    if name == "flush_denormal" and not torch.set_flush_denormal(False):
        pytest.skip("this processor cannot")
    CHANGES[name]()
    assert f"{name} " in (changed_flags(before) or "")
    restore_flags(before)
    assert changed_flags(before) is None and not stuck()


def test_reading_changes_nothing(before: dict[str, object]) -> None:
    for _ in range(3):
        assert watched_flags() == before


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
