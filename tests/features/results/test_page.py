"""What the page of results says, of runs that are made up."""

import json
from dataclasses import replace
from typing import Any

import pytest

from pairbench.features.results.operator import results_of
from pairbench.features.results.page import results_page
from pairbench.model.claim import Claim
from pairbench.model.plan import OperatorDescription
from pairbench.model.record import Record
from pairbench.report.render import Terminal
from tests.builders import ended
from tests.results_made import measured, operator

SIZES = ({"tokens": 4096, "dtype": "bfloat16"}, {"tokens": 64, "dtype": "bfloat16"})


def page(declared: OperatorDescription, records: list[Record], output: str = "markdown", **changes: Any) -> str:
    found = results_of(declared, records, ("real",))
    given = {"unmeasured": (), "command": "pairbench results", "tiers": ("real",), "terminal": Terminal(), **changes}
    return results_page([found] if found else [], output=output, **given)


def rows_of(text: str, header: str) -> list[dict[str, str]]:
    """Return the rows of the first table that has a header, by their headers."""
    lines = text.splitlines()
    start = next(place for place, line in enumerate(lines) if f"| {header} |" in line)
    names = [cell.strip() for cell in lines[start].strip("|").split("|")]
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append(dict(zip(names, (cell.strip() for cell in line.strip("|").split("|")), strict=True)))
    return found


def fixed(declared: OperatorDescription, **columns: Any) -> list[Record]:
    """Return records whose numbers are round."""
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


def test_a_row_is_a_case_the_smallest_first() -> None:
    declared = operator(*SIZES, claims=(Claim(speedup=3.0, source="them", device="a GPU", cases=[SIZES[0]]),))
    rows = rows_of(page(declared, fixed(declared)), "best variant")
    assert [row["case"] for row in rows] == ["tokens=64", "tokens=4096"]
    assert rows[1] == {
        "case": "tokens=4096",
        "tier": "real",
        "baseline": "200.0 us",
        "best variant": "fused",
        "P50": "100.0 us",
        "speedup": "2.000x",
        "95 %": "1.800-2.200",
        "launches": "6 -&gt; 1",
        "peak memory": "1.000 MiB -&gt; 1.000 MiB",
        "of the roof": "10% -&gt; 20%",
        "published": "3.000x",
        "ours is": "worse",
    }
    assert rows[0]["published"] == ""


def test_what_overwrites_its_inputs_is_named() -> None:
    declared = operator(*SIZES, claims=(Claim(speedup=3.0, source="them", device="a GPU", cases=[SIZES[0]]),))
    plain, fused, *others = declared.implementations
    declared = replace(declared, implementations=(plain, replace(fused, consumes=("a", "b")), *others))
    text = page(declared, fixed(declared))
    assert f"{fused.name} overwrites its inputs a, b, which its caller loses." in text and text.count("overwrites") == 1


def test_the_runs_behind_it_are_named_with_their_environment() -> None:
    declared = operator(*SIZES)
    (line,) = [line for line in page(declared, fixed(declared)).splitlines() if line.startswith("- run ")]
    for words in (
        "commit ",
        "torch 2.11.0",
        "triton 3.6.0",
        "CUDA 12.8",
        "cuDNN 9.10.2",
        "driver 580.1",
        "2024-01-01",
        ": 4 records",
    ):
        assert words in line


def test_a_claim_stands_beside_ours_with_device_source_and_reason() -> None:
    claims = (
        Claim(
            latency_ms=(1284.0, 9.566),
            source="them #1",
            device="NVIDIA H200",
            cases=[SIZES[0]],
            shape="another size",
            unmet="the copy alone takes 12 ms",
        ),
        Claim(launches=(4096, 5), source="them #2", device="RTX", cases=[SIZES[0]]),
        Claim(peak_gib=(2.0, 1.0), source="them #3", device="RTX", cases=[SIZES[0]], mode="compile"),
        Claim(speedup=(1.14, 1.31), source="them #4", device="RTX"),
    )
    declared = operator(*SIZES, claims=claims)
    text = page(declared, fixed(declared))
    first, second, third, fourth = rows_of(text, "our case")
    assert first == {
        "published": "1.284 s -&gt; 9.566 ms (134.2x)",
        "about": "",
        "on": "NVIDIA H200",
        "by": "them \\#1",
        "measured there": "another size",
        "our case": "tokens=4096",
        "ours": "200.0 us -&gt; 100.0 us (2.000x, 1.800-2.200), fused",
        "ours is": "worse",
        "why not": "the copy alone takes 12 ms",
    }
    assert (second["published"], second["ours"], second["ours is"]) == (
        "4096 -&gt; 5 launches",
        "6 -&gt; 1, fused",
        "better",
    )
    assert (third["published"], third["about"], third["ours is"]) == (
        "2.000 GiB -&gt; 1.000 GiB",
        "compile",
        "not measured",
    )
    assert (fourth["published"], fourth["our case"]) == ("1.140-1.310x", "none here")
    (row,) = [row for row in rows_of(text, "best variant") if row["case"] == "tokens=4096"]
    assert (row["published"], row["ours is"]) == ("134.2x; 4096 -&gt; 5 launches", "worse; better")


def test_a_reason_is_given_only_where_a_claim_is_not_met() -> None:
    claims = tuple(
        Claim(speedup=speedup, source="them", device="a GPU", cases=[SIZES[0]], unmet="too slow")
        for speedup in (1.0, 3.0)
    )
    declared = operator(*SIZES, claims=claims)
    found = rows_of(page(declared, fixed(declared)), "our case")
    assert [(row["ours is"], row["why not"]) for row in found] == [("better", ""), ("worse", "too slow")]


def test_what_loses_is_shown_like_what_wins() -> None:
    declared = operator(*SIZES, names=("baseline", "fused", "slow"))
    text = page(declared, fixed(declared))
    (loss,) = rows_of(text, "loses in")
    assert loss == {
        "variant": "slow",
        "loses in": "2 of 2",
        "slowest": "0.500x (0.450-0.550)",
        "there": "tokens=64",
        "where it loses": "everywhere",
    }
    assert text.count("slower, 0.500x (0.450-0.550)") == 2
    (glance,) = rows_of(text, "variants that lose somewhere")
    assert (glance["the best variant is"], glance["variants that lose somewhere"]) == ("faster in 2", "slow")


def test_a_long_map_is_folded_and_a_short_one_is_not() -> None:
    many = operator(*({"tokens": 2**n} for n in range(20)), names=("baseline", "fused", "slow"))
    few = operator(*SIZES, names=("baseline", "fused", "slow"))
    assert page(many, fixed(many)).count("<details>") == 2  # the map, and all measurements
    assert page(few, fixed(few)).count("<details>") == 0


def test_all_measurements_are_there_with_errors_and_the_gain_of_each_step() -> None:
    declared = operator(*SIZES, names=("baseline", "fused", "slow"), builds_on={"slow": "fused"})
    records = fixed(declared, mean_abs_error=2.5e-4, round_p50_ns=(1.0,))
    found = rows_of(page(declared, records), "max error")
    assert [row["implementation"] for row in found] == ["baseline", "fused", "slow"] * 2
    assert [row["the step alone"] for row in found[:3]] == ["", "", "0.250x over fused"]
    assert {row["mean error"] for row in found} == {"0.00025"}
    assert [row["P50"] for row in found[:3]] == ["200.0 us", "100.0 us", "400.0 us"]


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


def test_refused_and_skipped_come_with_reasons_and_counts() -> None:
    declared = operator(*SIZES, names=("baseline", "fused", "slow"))
    records = [
        ended(record, "oom", "CUDA out of memory")
        if record.implementation == "slow"
        else ended(record, "skipped", "not valid here: odd")
        if record.implementation == "fused"
        else record
        for record in fixed(declared)
    ]
    text = page(declared, records)
    refused, skipped = (rows_of(text[text.index(word) :], "why") for word in ("Refused", "Skipped"))
    assert refused == [
        {
            "implementation": "slow",
            "status": "oom",
            "cases": "2",
            "which": "tokens=64; tokens=4096",
            "why": "CUDA out of memory",
        }
    ]
    assert [row["why"] for row in skipped] == ["not valid here: odd"]
    assert {row["best variant"] for row in rows_of(text, "best variant")} == {"none was measured"}


def test_who_returns_the_same_memory_is_marked() -> None:
    declared, said = operator(SIZES[0]), "returns the same memory in each call"
    records = fixed(declared)
    assert said not in page(declared, records)
    text = page(declared, [replace(one, reuses_output=one.implementation == "fused") for one in records])
    (row,) = rows_of(text, "best variant")
    assert row[said] == "best"
    marks = {one["implementation"]: one[said] for one in rows_of(text, "max error")}
    assert marks == {"baseline": "", "fused": "yes"}


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_the_device_leads_on_a_gpu_and_the_call_on_a_cpu(kind: str) -> None:
    declared = operator(SIZES[0])
    numbers = {"baseline": (22_733.0, None), "fused": (17_900.0, 1.27), "slow": (35_800.0, 0.635)}
    records = [
        replace(
            record,
            device_kind=kind,
            device_p50_ns=numbers[str(record.implementation)][0],
            device_speedup=numbers[str(record.implementation)][1],
            host_p50_ns=88_000.0,
            bound="host" if kind == "cuda" and record.implementation == "fused" else None,
        )
        for record in fixed(declared)
    ]
    text = page(declared, records)
    (row,) = rows_of(text, "best variant")
    (fused,) = (one for one in rows_of(text, "max error") if one["implementation"] == "fused")
    if kind == "cuda":
        assert (row["baseline"], row["P50"], row["speedup"]) == ("22.73 us", "17.90 us", "1.270x")
        assert row["call"] == "200.0 us -\\> 100.0 us" or row["call"] == "200.0 us -&gt; 100.0 us"
        assert row["host-bound"] == "best: 88 us to issue 18 us of work"
        assert (fused["P50"], fused["speedup"], fused["call"], fused["host"]) == (
            *("17.90 us", "1.270x"),
            *("100.0 us", "88.00 us"),
        )
    else:
        assert (row["baseline"], row["P50"], row["speedup"]) == ("200.0 us", "100.0 us", "2.000x")
        assert not {"call", "host", "host-bound"} & {*row, *fused}
    assert "1.270x" in text if kind == "cuda" else "1.270x" not in text


def test_a_speedup_of_launches_that_differs_from_that_of_replays_stands_beside_it() -> None:
    declared = operator(SIZES[0])
    records = [
        replace(
            one,
            device_kind="cuda",
            device_p50_ns=1e4,
            device_speedup=4.1,
            device_timer="graph_replay",
            stream_speedup=5.7,
        )
        for one in fixed(declared)
    ]
    (row,) = rows_of(page(declared, records), "best variant")
    assert (row["speedup"], row["as launched"]) == ("4.100x", "5.700x")
    alike = [replace(one, stream_speedup=4.2) for one in records]
    assert "as launched" not in rows_of(page(declared, alike), "best variant")[0]


def test_modes_stand_beside_one_another_with_what_compiling_costs() -> None:
    declared = operator(SIZES[0])
    eager = fixed(declared)
    compiled = [
        replace(
            record,
            mode="compile",
            first_call_ns=3e9,
            warm_first_call_ns=None if record.role == "baseline" else 2e9,
            compilations=1 if record.role == "baseline" else 4,
            recompilations=0 if record.role == "baseline" else 2,
            graph_breaks=0,
            call_p50_ns=50_000.0 if record.role == "baseline" else 100_000.0,
            speedup=None if record.role == "baseline" else 0.5,
            speedup_low=None if record.role == "baseline" else 0.49,
            speedup_high=None if record.role == "baseline" else 0.51,
        )
        for record in eager
    ]
    text = page(declared, [*eager, *compiled])
    (row,) = rows_of(text, "eager: baseline")
    assert row == {
        "case": row["case"],
        "eager: baseline": "200.0 us",
        "eager: best": "100.0 us fused, 2.000x",
        "compile: baseline": "50.00 us",
        "compile: best": "100.0 us fused, 0.500x",
        "compiling the baseline": "3.000 s, 20,000 calls",
        "compiling the best": "3.000 s (2.000 s warm), never; 4 compiled, 2 again",
    }
    assert (
        "In mode compile the best variant is proven faster than the baseline of that mode in 0 of 1 cases, slower in 1"
        in text
    )
    assert "eager: baseline" not in page(declared, eager)
    (loss,) = rows_of(text, "loses in")
    assert loss["mode"] == "compile"


def test_only_graph_is_said() -> None:
    declared = operator(SIZES[0])
    (row,) = rows_of(page(declared, fixed(declared, mode="graph")), "best variant")
    assert row["best variant"] == "fused (graph)"


def test_gaps_are_named() -> None:
    declared = operator(*SIZES, names=("baseline", "fused", "slow"))
    records = [record for record in fixed(declared) if record.implementation != "slow" and "=64]" in str(record.case)]
    text = page(declared, [replace(record, definition_hash="old") for record in records])
    assert "- No measurement of the variants: slow." in text
    assert "- No measurement of the cases: tokens=4096." in text
    assert "- Measured with an earlier definition of the operator: tokens=64." in text


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
    text = results_page([one for one in found if one], (), "markdown", command="pairbench results", tiers=("real",))
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## NVIDIA H100", "## NVIDIA H200"]


def test_hostile_names_stay_in_their_cells() -> None:
    declared = replace(operator(SIZES[0]), summary="a | b <script> `c`")
    records = [
        ended(record, "failed", "x | y <b>\n# z") if record.role == "variant" else record for record in fixed(declared)
    ]
    text = page(declared, records)
    assert "<script>" not in text and "<b>" not in text and "\n# z" not in text
    assert "x \\| y &lt;b&gt; \\# z" in text


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


def test_a_terminal_gets_a_table() -> None:
    declared = operator(*SIZES, names=("baseline", "fused", "slow"))
    text = page(declared, fixed(declared), "table")
    assert "slower, 0.500x" in text and "|" not in text and "&gt;" not in text
