"""The raw call latencies of a run by series, as its statistics take them."""

from pathlib import Path
from typing import Any

import pytest

from pairbench.model.record import Samples, Series
from pairbench.store.reader import latency_samples
from pairbench.store.writer import RunWriter
from tests.builders import CASES, DEVICE, SUITE, make_run, make_samples

SERIES = Series(device_name=DEVICE, suite=SUITE, case=CASES[0], implementation="fused", mode="eager")


def round_of(number: int, call_ns: tuple[float, ...], throttled: tuple[bool, ...], **changes: Any) -> Samples:
    return make_samples(make_run(0)[1], call_ns, round=number, throttled=throttled, **changes)


def write(store: Path, *rounds: Samples) -> str:
    run_id = make_run(0)[0].run_id
    with RunWriter(store, run_id=run_id, device_slug="h200", month="2024-01") as writer:
        writer.append_samples(rounds)
        writer.append_records(make_run(0))
    return run_id


def test_rounds_are_put_together_without_what_was_measured_again(tmp_path: Path) -> None:
    run_id = write(
        tmp_path,
        round_of(0, (1.0, 2.0, 3.0), (False, True, False), device_ns=(0.1, 0.2, 0.3)),
        # Throttled throughout: measuring again did not help, so all of it counts.
        round_of(1, (4.0, 5.0), (True, True)),
    )
    found = latency_samples(tmp_path, run_id)
    assert list(found.value) == [SERIES] and not found.problems
    assert sorted(found.value[SERIES]["call"]) == pytest.approx([1.0, 3.0, 4.0, 5.0])
    # Of the second round the device's latency could not be taken.
    assert sorted(found.value[SERIES]["device"]) == pytest.approx([0.1, 0.3])


def test_what_has_no_latency_on_the_device_has_no_samples_of_it(tmp_path: Path) -> None:
    run_id = write(tmp_path, round_of(0, (1.0,), (False,)))
    assert list(latency_samples(tmp_path, run_id).value[SERIES]) == ["call"]


def test_samples_that_were_pruned_are_none(tmp_path: Path) -> None:
    run_id = write(tmp_path, round_of(0, (1.0,), (False,)))
    for path in (tmp_path / "samples").rglob("*.parquet"):
        path.unlink()
    assert latency_samples(tmp_path, run_id) == ({}, ())


def test_a_stream_has_the_samples_of_the_blocks_in_which_it_was_taken(tmp_path: Path) -> None:
    taken = round_of(0, (1.0, 2.0, 3.0), (False, True, False), stream_ns=(None, 0.2, 0.3))
    found = latency_samples(tmp_path, write(tmp_path, taken)).value[SERIES]
    assert list(found["stream"]) == pytest.approx([0.3])
