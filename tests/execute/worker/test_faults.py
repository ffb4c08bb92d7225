"""From an exception to a status and a sentence."""

import runpy
from pathlib import Path

import pytest
import torch

from pairbench.errors import DeclarationError
from pairbench.execute.worker.faults import explain, gpu_is_broken, is_out_of_memory
from pairbench.model.outcome import Status


def raised(error: BaseException) -> BaseException:
    """Return the error with a trace that holds nothing but this file."""
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def of_suite(folder: Path, code: str) -> BaseException:
    """Run code from a file of its own, as a suite's is."""
    file = folder / "ops.py"
    file.write_text(code)
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        runpy.run_path(str(file))
    return caught.value


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you"),
    ],
    ids=["python", "torch", "older torch", "host"],
)
def test_out_of_memory(error: BaseException) -> None:
    assert is_out_of_memory(error)
    status, reason = explain(raised(error))
    assert status is Status.OOM and "out of memory" in reason


def test_the_hosts_allocator_says_it_as_we_read_it() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def test_other_errors_are_failures() -> None:
    assert not is_out_of_memory(ValueError("can't allocate memory"))
    status, reason = explain(raised(RuntimeError("first line\nsecond line")))
    assert status is Status.FAILED and reason.endswith("RuntimeError: first line")


def test_the_suites_own_line_is_named(tmp_path: Path) -> None:
    code = "import torch\n\ndef kernel():\n    return torch.zeros(2) @ torch.zeros(3)\n\nkernel()\n"
    status, reason = explain(of_suite(tmp_path, code))
    assert status is Status.FAILED
    assert reason.startswith("ops.py, line 4: RuntimeError: ")


def test_our_own_sentences_stand_alone(tmp_path: Path) -> None:
    assert explain(raised(DeclarationError("inputs() returned int, expected a dict"))) == (
        Status.FAILED,
        "inputs() returned int, expected a dict",
    )


def test_a_message_that_cannot_be_printed(tmp_path: Path) -> None:
    code = "class Mute(Exception):\n    def __str__(self):\n        raise ValueError('no')\n\nraise Mute\n"
    assert explain(of_suite(tmp_path, code))[1] == "ops.py, line 5: Mute: its message cannot be printed (ValueError)"


def test_no_message(tmp_path: Path) -> None:
    assert explain(of_suite(tmp_path, "raise ValueError\n"))[1] == "ops.py, line 1: ValueError: no message"
    assert explain(of_suite(tmp_path, "import sys\nsys.exit(3)\n"))[1] == "ops.py, line 2: SystemExit: 3"


def test_without_a_gpu_none_is_broken() -> None:
    assert not gpu_is_broken()


def test_a_line_that_only_announces_an_error_is_followed_by_it() -> None:
    error = raised(RuntimeError("backend='inductor' raised:\n\nCompilationError: at 3:14\n  more of it"))
    assert explain(error)[1].endswith("RuntimeError: backend='inductor' raised: CompilationError: at 3:14")
