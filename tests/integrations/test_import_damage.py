"""Files with something wrong anywhere in them: imported as far as they make sense, or refused in a sentence, nothing else."""

import contextlib
import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pairbench.errors import StoreError
from pairbench.features.exchange.asv import read_asv_file
from pairbench.features.exchange.importing import Intake, Pairing, rows_of
from pairbench.features.exchange.pytest_benchmark import (
    KEY,
    ROUND_SIZES,
    extra_info_of,
    machine_info_of,
    read_benchmark_json,
    run_info_of,
)
from pairbench.features.exchange.values import ForeignRun, ImportFailedError
from tests.builders import ended, make_run

DATA = Path(__file__).parent / "data"
JUNK: tuple[Any, ...] = (
    *(None, True, 0, -1, 10**400, 0.0, float("nan"), float("inf"), "", "x", "a[b]::c", "\ud800", "2026-11-21T00:00"),
    *([], [None], [[]], ["x"], {}, {"x": None}, {"suite": 7}),
)
ROUNDS = 150


def benchmark_document() -> dict[str, Any]:
    """Return a document with benchmarks of others and of ours."""
    document: dict[str, Any] = json.loads((DATA / "pytest-benchmark-5.3.1.json").read_text())
    record = make_run(rounds=2)[1]
    document["machine_info"][KEY] = machine_info_of(record)
    document["benchmarks"][0]["extra_info"] = extra_info_of(record) | {ROUND_SIZES: [20, 20]}
    document[KEY] = {"run": run_info_of(record), "not_measured": [extra_info_of(ended(record, "failed"))]}
    return document


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place of a document as its holder and its key there."""
    keys: Any = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in keys:
        yield node, key
        yield from places(node[key])


def damaged(document: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    broken = copy.deepcopy(document)
    # Not among the many raw samples and processor flags each time.
    known = [place for place in places(broken) if not isinstance(place[1], int) or rng.random() < 0.05]
    holder, key = rng.choice(known)
    if isinstance(holder, dict) and rng.random() < 0.2:
        del holder[key]
    else:
        holder[key] = rng.choice(JUNK)
    return broken


def read(tool: str, path: Path, benchmarks: dict[str, Any]) -> ForeignRun:
    return read_benchmark_json(path) if tool == "pytest-benchmark" else read_asv_file(path, benchmarks)


@pytest.mark.parametrize("tool", ["pytest-benchmark", "asv"])
def test_whatever_is_wrong_is_said_in_a_sentence(tool: str, tmp_path: Path) -> None:
    rng = random.Random(7)
    benchmarks = json.loads((DATA / "asv" / "benchmarks.json").read_text())
    asv = json.loads(next((DATA / "asv" / "box").glob("68433e35-*")).read_text())
    document = benchmark_document() if tool == "pytest-benchmark" else asv
    path = tmp_path / "broken.json"
    intake = Intake(tmp_path / "store")
    reasons = []
    for _ in range(ROUNDS):
        path.write_text(json.dumps(damaged(document, rng)))
        try:
            run = read(tool, path, damaged(benchmarks, rng))
        except ImportFailedError as error:
            reasons.append(str(error))
            continue
        imported = rows_of(run, Pairing(axis="way", baseline="plain"))
        assert imported.records
        if rng.random() < 0.2:
            with contextlib.suppress(StoreError):  # a device name that is too long for a folder
                intake.take(imported)
    assert 0 < len(reasons) < ROUNDS / 2
    assert [reason for reason in reasons if not reason.startswith(f"{path}:") or "expected" not in reason] == []
