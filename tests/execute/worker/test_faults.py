import asyncio
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from pairbench.errors import DeclarationError, SuiteError
from pairbench.execute.protocol import Ended, Heartbeat, VerifyCase
from pairbench.execute.worker.guard import explain, gpu_is_broken, is_out_of_memory, of_case
from pairbench.execute.worker.stages import run_stage
from pairbench.model.operator import Variant
from pairbench.model.outcome import ImpostorResult, Status, Verification
from pairbench.model.plan import Entry
from pairbench.suite.modules import load_suite
from tests.execute.made import BASELINE, CONFIG, declare, entry, job_of


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


ANNOUNCED = "backend='inductor' raised:\n\nCompilationError: at 3:14\n  more of it"


def test_other_errors_are_failures_in_a_line() -> None:
    assert not is_out_of_memory(ValueError("can't allocate memory")) and not gpu_is_broken()
    status, reason = explain(raised(RuntimeError("first line\nsecond line")))
    assert status is Status.FAILED and reason.endswith("RuntimeError: first line")
    # A line that only announces an error is followed by it.
    announced = explain(raised(RuntimeError(ANNOUNCED)))[1]
    assert announced.endswith("RuntimeError: backend='inductor' raised: CompilationError: at 3:14")
    ours = "inputs() returned int, expected a dict"
    assert explain(raised(DeclarationError(ours))) == (Status.FAILED, ours)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def kernel():\n    return [][0]\n\nkernel()\n", "ops.py, line 2: IndexError: list index out of range"),
        ("raise ValueError\n", "ops.py, line 1: ValueError: no message"),
        ("import sys\nsys.exit(3)\n", "ops.py, line 2: SystemExit: 3"),
        (
            "class Mute(Exception):\n    def __str__(self):\n        raise ValueError('no')\n\nraise Mute\n",
            "ops.py, line 5: Mute: its message cannot be printed (ValueError)",
        ),
    ],
)
def test_the_suite_s_own_line_is_named(tmp_path: Path, code: str, words: str) -> None:
    assert explain(of_suite(tmp_path, code)) == (Status.FAILED, words)


class OwnError(BaseException):
    pass


KINDS = (OwnError, KeyboardInterrupt, GeneratorExit, SystemExit, asyncio.CancelledError, StopIteration)
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
BAD, GOOD = entry("bad"), entry("good")


def double(x: Any) -> Any:
    return x + x


def verified(heartbeat: Heartbeat, **changes: Any) -> list[Any]:
    """Return what a worker says of a baseline and two variants of it."""
    operator = declare(**{"baseline": double, "variants": {"bad": double, "good": double}, **changes})
    more = {"automatic_impostors": False, "declared_impostors": tuple(operator.impostors)}
    return list(run_stage(job_of(VerifyCase, operator, **more), operator, CONFIG, heartbeat))


def statuses(results: list[Any]) -> dict[Entry | None, Status]:
    return {result.entry: result.status for result in results if isinstance(result, Verification | Ended)}


def raiser(kind: type[BaseException]) -> Any:
    def raises(*_: Any, **__: Any) -> Any:
        raise kind("words")

    return raises


@kinds
@pytest.mark.parametrize("place", ["call", "valid"])
def test_of_a_variant_and_of_an_impostor(heartbeat: Heartbeat, kind: type[BaseException], place: str) -> None:
    bad = raiser(kind) if place == "call" else Variant(double, valid=raiser(kind))
    impostors = {"one": bad, "two": lambda x: x * 3}
    results = verified(heartbeat, variants={"bad": bad, "good": double}, impostors=impostors)
    assert statuses(results) == {BASELINE: Status.VERIFIED, BAD: Status.FAILED, GOOD: Status.VERIFIED}
    found = {found.impostor: found for found in results if isinstance(found, ImpostorResult)}
    assert found["two"].rejected and f"{kind.__name__}: words" in found["one"].reason
    assert found["one"].rejected == (place == "call")


@pytest.mark.parametrize(
    ("valid", "reason"),
    [
        (lambda x: None, "`valid` returned None, expected True, or False or a sentence with the reason"),
        (lambda x: x > 0, "Boolean value of Tensor with more than one value is ambiguous"),
        (lambda n: True, "`valid` takes (n), expected the names that inputs() returns, x: "),
    ],
    ids=["nothing", "a tensor", "an axis"],
)
def test_of_a_valid_that_does_not_answer(heartbeat: Heartbeat, valid: Any, reason: str) -> None:
    results = verified(heartbeat, variants={"bad": Variant(double, valid=valid), "good": double})
    assert statuses(results) == {BASELINE: Status.VERIFIED, BAD: Status.FAILED, GOOD: Status.VERIFIED}
    assert [reason in result.reason for result in results if getattr(result, "entry", None) == BAD] == [True]


def test_a_valid_may_give_a_number_as_and_does(heartbeat: Heartbeat) -> None:
    variants = {
        "bad": Variant(double, valid=lambda x: x.numel() & 0),
        "good": Variant(double, valid=lambda x: x.numel()),
    }
    results = verified(heartbeat, variants=variants)
    assert statuses(results) == {BASELINE: Status.VERIFIED, BAD: Status.SKIPPED, GOOD: Status.VERIFIED}


@kinds
@pytest.mark.parametrize("name", ["inputs", "oracle", "baseline"])
def test_of_what_a_case_is_made_of(heartbeat: Heartbeat, kind: type[BaseException], name: str) -> None:
    raises = raiser(kind)
    results = verified(heartbeat, **{name: (lambda make, n: raises()) if name == "inputs" else raises})
    if name == "baseline":
        assert statuses(results) == {BASELINE: Status.FAILED, BAD: Status.SKIPPED, GOOD: Status.SKIPPED}
    ended = [result for result in results if isinstance(result, Ended) and result.entry in (None, BASELINE)]
    assert ended and all(f"{kind.__name__}: words" in result.reason for result in ended)
    assert Status.VERIFIED not in statuses(results).values()


@kinds
def test_of_a_suite_as_it_is_loaded(tmp_path: Path, kind: type[BaseException]) -> None:
    file = tmp_path / "ops.py"
    file.write_text(
        f"import asyncio\nclass OwnError(BaseException): pass\nraise {'asyncio.' * (kind is asyncio.CancelledError)}{kind.__name__}('words')\n"
    )
    with pytest.raises(SuiteError, match=rf"suite ops.py, line 3: {kind.__name__}: words"):
        load_suite(file)


def test_a_case_that_is_given_up_is_no_error_of_the_suite() -> None:
    running: Any = of_case(iter([1, 2]))
    assert next(running) == 1
    running.close()
