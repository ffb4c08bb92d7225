"""From an exception to a status and a sentence; one that is no `Exception` ends the code that raised it and no other."""

import asyncio
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pairbench.errors import DeclarationError, SuiteError
from pairbench.execute.heartbeat import Heartbeat
from pairbench.execute.protocol import Ended, VerifyCase, WorkerConfig
from pairbench.execute.worker.faults import explain, gpu_is_broken, is_out_of_memory
from pairbench.execute.worker.guard import of_case
from pairbench.execute.worker.stages import run_stage
from pairbench.model.case import make_case
from pairbench.model.environment import Device
from pairbench.model.operator import Operator, Variant
from pairbench.model.outcome import ImpostorResult, Status, Verification
from pairbench.model.plan import Entry
from pairbench.model.settings import Settings
from pairbench.suite.load import load_suite


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


class OwnError(BaseException):
    pass


KINDS = (OwnError, KeyboardInterrupt, GeneratorExit, SystemExit, asyncio.CancelledError, StopIteration)
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
BASELINE, BAD, GOOD = (Entry(implementation=name, mode="eager") for name in ("baseline", "bad", "good"))


def double(x: Any) -> Any:
    return x + x


def verified(heartbeat: Heartbeat, **changes: Any) -> list[Any]:
    """Return what a worker says of a baseline and two variants of it."""
    declared = {
        "baseline": double,
        "variants": {"bad": double, "good": double},
        "inputs": lambda make: {"x": make.normal(3)},
        "cases": [{}],
        **changes,
    }
    operator = Operator("op", **declared)
    job = VerifyCase(
        path=Path("/ops.py"),
        operator="op",
        case=make_case("op", {}, "smoke"),
        entries=(BASELINE, BAD, GOOD),
        automatic_impostors=False,
        declared_impostors=tuple(operator.impostors),
    )
    device = Device(selector="cpu", kind="cpu", name="a CPU")
    config = WorkerConfig(device=device, settings=Settings(), memory_bytes=2**30)
    return list(run_stage(job, operator, config, heartbeat))


def statuses(results: list[Any]) -> dict[Entry | None, Status]:
    return {result.entry: result.status for result in results if isinstance(result, Verification | Ended)}


def raiser(kind: type[BaseException]) -> Any:
    def raises(*_: Any, **__: Any) -> Any:
        raise kind("words")

    return raises


@kinds
@pytest.mark.parametrize("place", ["call", "valid"])
def test_of_a_variant(heartbeat: Heartbeat, kind: type[BaseException], place: str) -> None:
    bad = raiser(kind) if place == "call" else Variant(double, valid=raiser(kind))
    found = statuses(verified(heartbeat, variants={"bad": bad, "good": double}))
    assert found == {BASELINE: Status.VERIFIED, BAD: Status.FAILED, GOOD: Status.VERIFIED}


@kinds
@pytest.mark.parametrize("place", ["call", "valid"])
def test_of_an_impostor(heartbeat: Heartbeat, kind: type[BaseException], place: str) -> None:
    bad = raiser(kind) if place == "call" else Variant(double, valid=raiser(kind))
    results = verified(heartbeat, impostors={"one": bad, "two": lambda x: x * 3})
    assert {*statuses(results).values()} == {Status.VERIFIED}
    impostors = {found.impostor: found for found in results if isinstance(found, ImpostorResult)}
    assert impostors["two"].rejected and f"{kind.__name__}: words" in impostors["one"].reason
    assert impostors["one"].rejected == (place == "call")


@kinds
def test_of_a_baseline(heartbeat: Heartbeat, kind: type[BaseException]) -> None:
    found = statuses(verified(heartbeat, baseline=raiser(kind)))
    assert found == {BASELINE: Status.FAILED, BAD: Status.SKIPPED, GOOD: Status.SKIPPED}


@kinds
@pytest.mark.parametrize("name", ["inputs", "oracle"])
def test_of_what_a_case_is_made_of(heartbeat: Heartbeat, kind: type[BaseException], name: str) -> None:
    raises = raiser(kind)
    results = verified(heartbeat, **{name: (lambda make: raises()) if name == "inputs" else raises})
    ended = [result for result in results if isinstance(result, Ended)]
    assert ended and all(
        f"{kind.__name__}: words" in result.reason for result in ended if result.entry in (None, BASELINE)
    )
    assert not [result for result in results if isinstance(result, Verification) and result.status is Status.VERIFIED]


@kinds
def test_of_a_suite_as_it_is_loaded(tmp_path: Path, kind: type[BaseException]) -> None:
    file = tmp_path / "ops.py"
    file.write_text(
        f"import asyncio\nclass OwnError(BaseException): pass\nraise {'asyncio.' * (kind is asyncio.CancelledError)}{kind.__name__}('words')\n"
    )
    with pytest.raises(SuiteError, match=rf"suite ops.py, line 3: {kind.__name__}: words"):
        load_suite(file)


def test_a_case_that_is_given_up_is_no_error_of_the_suite() -> None:
    def results() -> Iterator[int]:
        yield 1
        yield 2

    running = of_case(results())
    assert next(running) == 1
    running.close()  # type: ignore[attr-defined]
