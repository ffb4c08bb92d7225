import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from pairbench.features.results.operator import COLUMNS, results_of
from pairbench.features.results.page import StoredResults, results_page
from pairbench.model.case import Claim
from pairbench.model.plan import OperatorDescription
from pairbench.model.record import Record
from tests.builders import ended
from tests.golden import assert_golden
from tests.results_made import measured, operator

SIZES = ({"tokens": 4096, "dtype": "bfloat16"}, {"tokens": 64, "dtype": "bfloat16"})


def page(declared: OperatorDescription, records: list[Record], output: str = "markdown", **changes: Any) -> str:
    found = results_of(declared, records, ("real",))
    given = {"command": "pairbench results", "tiers": ("real",), **changes}
    stored = StoredResults((found,) if found else (), given.pop("unmeasured", ()), problems=(), broken=())
    return results_page(stored, output, **given)


def fixed(declared: OperatorDescription, **columns: Any) -> list[Record]:
    numbers = {"baseline": (200_000.0, None), "fused": (100_000.0, 2.0), "slow": (400_000.0, 0.5)}
    found = []
    for record in measured(declared):
        p50, speedup = numbers[str(record.implementation)]
        found.append(
            replace(
                record,
                call_p50_ns=p50,
                speedup=speedup,
                speedup_low=speedup and speedup * 0.9,
                speedup_high=speedup and speedup * 1.1,
                roofline_fraction=20_000.0 / p50,
                **columns,
            )
        )
    return found


def claimed() -> tuple[OperatorDescription, list[Record]]:
    """Return an operator on a CPU, with claims of each kind, a step, a variant that loses, and one that keeps its inputs and output to itself."""
    beside: dict[str, Any] = dict(device="NVIDIA H200", cases=[SIZES[0]], unmet="the copy alone takes 12 ms")
    claims = (
        Claim(latency_ms=(1284.0, 9.566), source="them #1", shape="another size", **beside),
        Claim(launches=(4096, 5), source="met, so no reason", **beside),
        Claim(peak_gib=(2.0, 1.0), source="them #3", mode="compile", **beside),
        Claim(speedup=(1.14, 1.31), source="of no case here", device="RTX"),
    )
    declared = operator(*SIZES, names=("baseline", "fused", "slow"), claims=claims, builds_on={"slow": "fused"})
    plain, fused, *others = declared.implementations
    declared = replace(declared, implementations=(plain, replace(fused, consumes=("a", "b")), *others))
    records = fixed(declared, mean_abs_error=2.5e-4, round_p50_ns=(1.0,), device_kind="cpu", device_p50_ns=1.0)
    return declared, [replace(one, reuses_output=one.implementation == "fused") for one in records]


def on_a_gpu() -> tuple[OperatorDescription, list[Record]]:
    """Return an operator on a GPU in two modes: bound by the host, and faster as launched than as replayed."""
    declared = operator(SIZES[0])
    columns: dict[str, Any] = dict(
        device_kind="cuda", host_p50_ns=88_000.0, device_timer="graph_replay", graph_breaks=0
    )
    baseline, fused = (replace(one, **columns) for one in fixed(declared))
    baseline = replace(baseline, device_p50_ns=22_733.0, compilations=1, recompilations=0)
    fused = replace(fused, device_p50_ns=17_900.0, device_speedup=1.27, stream_speedup=5.7, bound="host")
    fused = replace(fused, compilations=4, recompilations=2)
    compiled: dict[str, Any] = dict(mode="compile", first_call_ns=3e9)
    slower: dict[str, Any] = dict(device_speedup=0.5, device_speedup_low=0.49, device_speedup_high=0.51, bound=None)
    peer = replace(declared.implementations[1], name="peer", kind="library")
    return replace(declared, implementations=(*declared.implementations, peer)), [
        baseline,
        fused,
        replace(fused, implementation="peer", device_p50_ns=21_700.0, device_speedup=1.05, stream_speedup=1.05),
        replace(baseline, **compiled, device_p50_ns=8e3, call_p50_ns=5e4),
        replace(fused, **compiled, **slower, warm_first_call_ns=2e9),
    ]


def with_gaps() -> tuple[OperatorDescription, list[Record]]:
    """Return an operator of which much is missing: refused, skipped, never measured or of an earlier definition, with hostile words."""
    small = [{"tokens": tokens, "dtype": "bfloat16"} for tokens in (1, 2)]
    declared = operator(*SIZES, *small, names=("baseline", "fused", "slow"))
    declared = replace(declared, summary="a | b <script> `c`")
    reasons = {"fused": ("skipped", "not valid here: odd"), "slow": ("oom", "x | y <b>\n# z")}
    records = [
        ended(one, *reasons[str(one.implementation)]) if one.role == "variant" else one for one in fixed(declared)
    ]
    never = replace(declared.implementations[1], name="never")
    declared = replace(declared, implementations=(*declared.implementations, never))
    old = [replace(one, definition_hash="old") for one in records if "=2]" in str(one.case)]
    return declared, [*(one for one in records if "=1]" not in str(one.case) and "=2]" not in str(one.case)), *old]


@pytest.mark.parametrize("output", ["markdown", "table"])
@pytest.mark.parametrize("made", [claimed, on_a_gpu, with_gaps])
def test_a_page_has_all_that_is_known_of_an_operator(
    made: Callable[[], tuple[OperatorDescription, list[Record]]], output: str
) -> None:
    assert_golden(Path(__file__).parent / "golden" / f"{made.__name__}.{output}.txt", page(*made(), output))


@pytest.mark.parametrize("made", [claimed, on_a_gpu, with_gaps])
def test_every_column_that_a_page_shows_is_read_from_the_store(
    made: Callable[[], tuple[OperatorDescription, list[Record]]],
) -> None:
    declared, records = made()
    unread: dict[str, Any] = {one.name: None for one in fields(Record) if one.name not in COLUMNS}
    assert page(declared, [replace(one, **unread) for one in records]) == page(declared, records)


def test_a_long_map_is_folded_and_a_short_one_is_not() -> None:
    many = operator(*({"tokens": 2**n} for n in range(20)), names=("baseline", "fused", "slow"))
    few = operator(*SIZES, names=("baseline", "fused", "slow"))
    assert page(many, fixed(many)).count("<details>") == 2  # the map, and all measurements
    assert page(few, fixed(few)).count("<details>") == 0


def test_the_interval_of_a_step_is_of_rounds_that_timed_both() -> None:
    """The two vary by a fifth, and together: their ratio does not."""
    declared = operator(SIZES[0], names=("baseline", "fused", "slow"), builds_on={"slow": "fused"})
    rounds = {"baseline": (2e5, 2e5, 2e5), "fused": (9e4, 1e5, 1.1e5), "slow": (3.6e5, 4e5, 4.4e5)}
    records = [replace(record, round_p50_ns=rounds[str(record.implementation)]) for record in fixed(declared)]
    assert "| 0.250x (0.250-0.250) over fused |" in page(declared, records)
    document = json.loads(page(declared, records, "json"))
    (step,) = document["results"][0]["cases"][0]["modes"][0]["steps"]
    assert (step["implementation"], step["over"], step["speedup"]) == ("slow", "fused", 0.25)
    assert step["speedup_low"] == pytest.approx(0.25)
    # By rounds as its interval is, and not by medians of all samples, which the interval need not hold.
    rounds["slow"] = (3.8e5, 4.2e5, 4.6e5)
    records = [replace(record, round_p50_ns=rounds[str(record.implementation)]) for record in records]
    assert "| 0.238x (0.235-0.241) over fused |" in page(declared, records)
    shorter = [
        replace(record, round_p50_ns=(record.round_p50_ns or ())[: 3 - place]) for place, record in enumerate(records)
    ]
    assert "| 0.250x over fused |" in page(declared, shorter)


def test_a_step_is_not_measured_across_runs() -> None:
    declared = operator(*SIZES, names=("baseline", "fused", "slow"), builds_on={"slow": "fused"})
    records = fixed(declared)
    fused = [replace(record, run_id="20230101T000000-000000") for record in records if record.implementation == "fused"]
    text = page(declared, [record for record in records if record.implementation != "fused"] + fused)
    assert "over fused" not in text and "max error" in text


@pytest.mark.parametrize(
    ("rounds", "words"), [((1, 1), "4 records, of 1 round"), ((3, 3), "of 3 rounds"), ((1, 2), "of 1 or 2 rounds")]
)
def test_a_run_says_of_how_many_rounds_it_is(rounds: tuple[int, int], words: str) -> None:
    declared = operator(*SIZES)
    records = fixed(declared)
    given = [replace(record, n_rounds=rounds[place % 2]) for place, record in enumerate(records)]
    (line,) = [line for line in page(declared, given).splitlines() if line.startswith("- run ")]
    assert line.endswith(words)


def test_only_graph_is_said() -> None:
    declared = operator(SIZES[0])
    assert "| fused (graph) |" in page(declared, fixed(declared, mode="graph"))


def test_nothing_measured_is_a_page_too() -> None:
    declared = operator(*SIZES, claims=(Claim(speedup=3.0, source="them", device="a GPU"),))
    text = page(declared, [], unmeasured=[declared])
    assert "The store holds no measurement" in text
    assert "- suites/norm.py::rms\\_norm: 2 cases, 1 published figure" in text


def test_devices_have_sections() -> None:
    declared = operator(*SIZES)
    found = [
        results_of(declared, fixed(declared, device_name=device), ("real",))
        for device in ("NVIDIA H100", "NVIDIA H200")
    ]
    stored = StoredResults(tuple(one for one in found if one), unmeasured=(), problems=(), broken=())
    text = results_page(stored, "markdown", command="pairbench results", tiers=("real",))
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## NVIDIA H100", "## NVIDIA H200"]


def test_json_has_the_columns_names() -> None:
    declared = operator(*SIZES, claims=(Claim(speedup=3.0, source="them", device="a GPU", cases=[SIZES[0]]),))
    document = json.loads(page(declared, fixed(declared), "json"))
    (one,) = document["results"]
    assert one["operator"] == "rms_norm"
    (mode,) = one["cases"][0]["modes"]
    assert (mode["best"], mode["baseline"]["call_p50_ns"]) == ("fused", 200_000.0)
    assert mode["variants"][0]["part_of_roof"] == 0.2
    assert one["claims"][0]["state"] == "worse"
    assert one["claims"][0]["claim"]["speedup"] == 3.0
