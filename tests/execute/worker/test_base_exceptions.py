"""What is raised and is no `Exception` ends who raised it, and nobody else, wherever a suite's code runs."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pairbench.errors import SuiteError
from pairbench.execute.heartbeat import Heartbeat
from pairbench.execute.protocol import Ended, VerifyCase, WorkerConfig
from pairbench.execute.worker.guard import of_case
from pairbench.execute.worker.stages import run_stage
from pairbench.model.case import make_case
from pairbench.model.environment import Device
from pairbench.model.operator import Operator, Variant
from pairbench.model.outcome import ImpostorResult, Status, Verification
from pairbench.model.plan import Entry
from pairbench.model.settings import Settings
from pairbench.suite.load import load_suite


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
