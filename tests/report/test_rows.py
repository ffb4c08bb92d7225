import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairbench.model.breakdown import KernelCount
from pairbench.model.record import Record, columns
from pairbench.report.render import FORMATS, Terminal
from pairbench.report.rows import answer, believed, expanded, ordered, render
from pairbench.report.units import issuing
from tests.golden import assert_golden
from tests.report.shown import baseline, ended, variant

PIPE = Terminal()
GOLDEN = Path(__file__).parent / "golden"
LOAD = {"cores": 2, "before": 2.0, "rounds": [1.0], "performance_states": [], "foreign_processes": []}
LOADED = json.dumps({"observed": {"load": LOAD, "ceilings": {"copy_gbps": 10.0, "bfloat16_tflops": 1.0}}})


def gpu() -> list[Record]:
    """Return results on a GPU; their names say what the page has to show of them."""
    tuned = ("norm: BLOCK=64, num_warps=4", "add: BLOCK=8, num_warps=1 (in 1 of 3 rounds)")
    replayed = {"device_timer": "graph_replay", "device_speedup": 4.1, "stream_speedup": 5.7}
    compiled = {"device_timer": "graph_replay", "device_speedup": 5.7, "stream_speedup": 4.1}
    nothing: dict[str, Any] = dict.fromkeys(("operator", "case", "axes", "tier", "implementation", "role"))
    other = {"operator": "gelu", "case": "gelu[n=1]"}
    return [
        baseline(),
        variant("two_kernels_a_launch", launches_per_call=1, kernels_per_call=2),
        variant("bound_by_its_host", device_p50_ns=17_900.0, host_p50_ns=88_000.0, bound="host"),
        variant("the_call_alone", device_p50_ns=None, bound=None),
        variant("launches_unreliable", launch_status="unreliable"),
        variant("same_memory", reuses_output=True),
        variant("overwrites_two", consumes=("a", "b")),
        variant("overwrites_one", consumes=("z",)),
        variant("tuned", autotuned=tuned),
        replace(variant("faster_as_launched"), **replayed),  # type: ignore[arg-type]
        replace(variant("as_fast_as_launched"), **replayed | {"stream_speedup": 4.4}),  # type: ignore[arg-type]
        replace(variant("not_both_replayed", device_timer="spin"), device_speedup=0.97, stream_speedup=0.97),
        replace(variant("compiled", mode="compile"), **compiled),  # type: ignore[arg-type]
        variant("beside_a_library", best_alternative="builtin", speedup_over_best=1.93),
        variant("beside_the_baseline", best_alternative="baseline", speedup_over_best=2.0),
        ended("wrong", "mismatched", "12 % of the elements differ"),
        ended("crashed", "failed", "died of SIGSEGV"),
        ended("later", "skipped", "needs sm_100"),
        ended("a[red]b[/red]", "failed", "x|y\n[bold]z[/bold] \x1b[2J <b>"),
        baseline(**other),
        baseline(**other, device_uuid="GPU-2"),
        baseline(**other, run_id="20260103"),
        ended("", "failed", "SyntaxError", suite="suites/[link].py", **nothing),
    ]


def cpu() -> list[Record]:
    """Return results on a CPU, which is idle for the first operator and busy for the others."""
    found = []
    for operator, environment in (("idle", "{}"), ("busy", LOADED), ("busy_too", LOADED)):
        cost = {"flops": 1.0, "bytes_moved": 1e6, "gbps": 9.0, "tflops": 1.0}
        changes: dict[str, Any] = dict(operator=operator, case=f"{operator}[n=1]", device_kind="cpu", **cost)
        changes |= dict(environment=environment, host_p50_ns=None, bound=None, device_p50_ns=None)
        found += [baseline(**changes), variant("fused", **changes)]
    return found


@pytest.mark.parametrize("output", ["table", "markdown"])
@pytest.mark.parametrize("records", [gpu(), cpu()], ids=["gpu", "cpu"])
def test_each_kind_of_result_is_shown(records: list[Record], output: str) -> None:
    device = str(records[0].device_kind or "gpu")
    text = render(records, output, terminal=PIPE)
    assert_golden(GOLDEN / f"show.{device}.{output}.txt", text)
    assert [line for line in text.splitlines() if line != line.rstrip()] == []
    assert [expanded(one)["speedup"] for one in records] == [one.speedup for one in records], "as it is stored"


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_a_terminal_gets_what_fits_and_is_told_what_does_not(width: int) -> None:
    records = [baseline(), variant("shifted_sum"), variant("shifted_sum", mode="compile")]
    lines = render(records, "table", terminal=Terminal(width=width)).splitlines()
    assert max(map(len, lines)) <= width
    assert "speedup" in lines[4] or "speedup" in lines[3]
    (left_out,) = (line for line in lines if line.startswith("Left out")) if width < 120 else (["Left out"],)
    assert left_out
    if width >= 100:
        header = next(line for line in lines if "implementation" in line)
        assert all(name in header for name in ("P50", "P95", "speedup", "interval", "launches"))


def test_colour_needs_the_whole_interval_on_one_side() -> None:
    records = [baseline(), variant("fast", 2.0), variant("slow", 0.5), variant("same", 1.01)]
    lines = render(records, "table", terminal=Terminal(width=120, color=True)).splitlines()
    coloured = [line for line in lines if "\x1b[32m" in line or "\x1b[31m" in line]
    assert len(coloured) == 2 and "\x1b[32m 2.000x" in coloured[0] and "\x1b[31m 0.500x" in coloured[1]


def test_the_baseline_is_first_and_variants_keep_their_order() -> None:
    other = "rms_norm[tokens=1]"
    records = [
        variant("triton"),
        variant("fused", mode="graph"),
        variant("fused"),
        baseline(mode="graph"),
        baseline(),
        variant("fused", case=other),
        variant("triton", case=other),
        baseline(case=other),
        baseline(operator="softmax", case="softmax[n=1]"),
        baseline(case="rms_norm[tokens=2]"),
    ]
    assert [(row.case, row.mode, row.implementation) for row in ordered(records)] == [
        ("rms_norm[dtype=bfloat16,tokens=4096]", "eager", "baseline"),
        ("rms_norm[dtype=bfloat16,tokens=4096]", "eager", "triton"),
        ("rms_norm[dtype=bfloat16,tokens=4096]", "eager", "fused"),
        ("rms_norm[dtype=bfloat16,tokens=4096]", "graph", "baseline"),
        ("rms_norm[dtype=bfloat16,tokens=4096]", "graph", "fused"),
        (other, "eager", "baseline"),
        (other, "eager", "triton"),
        (other, "eager", "fused"),
        ("rms_norm[tokens=2]", "eager", "baseline"),
        ("softmax[n=1]", "eager", "baseline"),
    ]


def test_json_is_one_document_of_real_objects() -> None:
    record = baseline(
        call_p95_ns=math.nan,
        roofline_fraction=math.inf,
        round_p50_ns=(1.0, math.nan),
        kernels=(KernelCount(name="k", count=2, total_ns=1.5),),
        consumes=("a", "b"),
    )
    document = json.loads(render([record], "json", problems=["bad.parquet: broken"]), parse_constant=pytest.fail)
    (row,) = document["records"]
    assert list(row) == list(columns(Record))
    assert row["axes"] == {"dtype": "bfloat16", "tokens": 4096}
    assert row["environment"] == {"tf32": False}
    assert row["consumes"] == ["a", "b"] and row["kernels"] == [{"name": "k", "count": 2, "total_ns": 1.5}]
    assert (row["call_p95_ns"], row["roofline_fraction"], row["round_p50_ns"]) == (None, None, [1.0, None])
    assert document["problems"] == ["bad.parquet: broken"]
    assert json.loads(render([baseline(axes=None)], "json"))["records"][0]["axes"] is None


@pytest.mark.parametrize("output", FORMATS)
def test_nothing_to_show_is_fine(output: str) -> None:
    assert "a problem" in render([], output, problems=["a problem"], terminal=PIPE)


def test_one_time_alone_is_not_set_beside_another() -> None:
    assert issuing(88_000.0, 17_900.0) == "88 us to issue 18 us of work"
    assert issuing(88_000.0, None) == issuing(None, 17_900.0) == ""


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="'yaml' is unknown, expected one of table, markdown, json"):
        render([baseline()], "yaml")


CEILINGS = json.dumps(
    {"observed": {"ceilings": {"copy_gbps": 4000.0, "bfloat16_tflops": 700.0, "float32_tflops": 60.0}}}
)


@pytest.mark.parametrize(
    ("flops", "moved", "expected"),
    [(1e9, 156e6, ["4000", "GB/s", "97%"]), (15.6e9, 1e6, ["400", "TFLOP/s", "97%"])],
    ids=["memory limits", "arithmetic limits"],
)
def test_a_declared_cost_shows_the_rate_that_limits_and_the_part_of_the_roof(
    flops: float, moved: float, expected: list[str]
) -> None:
    cost = {"flops": flops, "bytes_moved": moved, "tflops": flops / 39e6, "gbps": moved / 39e3}
    row = baseline(**cost, dtype="bfloat16", roofline_fraction=0.97, environment=CEILINGS)
    lines = render([row], "table", terminal=PIPE).splitlines()
    assert "rate  roof" in lines[3] and " ".join(expected) in " ".join(lines[5].split())
    assert "rate" not in render([baseline()], "table", terminal=PIPE), "nothing is declared"


@pytest.mark.parametrize(
    ("precisions", "said"),
    [
        (("ieee", "ieee"), "IEEE float32, where torch by itself lets convolutions use TF32; --tf32 allows it for both"),
        (("tf32", "tf32"), "TF32 allowed for both, where torch by itself allows it for convolutions alone; --no-tf32"),
        (("ieee", "tf32"), "TF32 allowed in 1 of 2 records, IEEE float32 in the others, by the axis tf32 or the run's"),
        ((None, None), None),
    ],
)
def test_the_precision_of_float32_is_one_line(precisions: tuple[str | None, str | None], said: str | None) -> None:
    made = baseline(float32_precision=precisions[0]), variant("fused", float32_precision=precisions[1])
    records = [replace(one, device_kind="cuda") for one in made]
    for output in ("table", "markdown"):
        text = render(records, output, terminal=Terminal(width=None, color=False)).replace("\\", "")
        assert text.count("float32 products and convolutions: ") == (said is not None)
        assert said is None or f"float32 products and convolutions: {said}" in text
        assert (" float32 " in text.split("speedup")[0]) is ("tf32" in precisions)
    notes = json.loads(render(records, "json"))["notes"]
    assert [line.removeprefix("float32 products and convolutions: ")[: len(said or "")] for line in notes] == (
        [said] if said else []
    )
    assert "float32 products" not in render([replace(one, device_kind="cpu") for one in records], "table")


def test_the_answer_of_a_run_of_many_pairs() -> None:
    pairs = [(f"op{n}", f"op{n}[tokens={n}]") for n in range(30)]
    rows = [
        one
        for place, (operator, case) in enumerate(pairs)
        for one in (baseline(operator=operator, case=case), variant("fused", place + 1.0, operator=operator, case=case))
    ]
    assert answer(rows[:6]) == [], "what fits on a screen is its own answer"
    wrong = ended("fused", "mismatched", "off by 3", operator="op31", case="op31[tokens=1]")
    lines = answer([*rows, wrong], ["suite bad.py: cannot be loaded"])
    assert lines[0] == "Pairs: 30 of 31 are right" and lines[1] == "Largest speedups:"
    assert [line.split()[-1] for line in lines[2:7]] == [case for _, case in reversed(pairs[-5:])]
    assert lines[7:] == [
        *("Needs attention:", "  op31[tokens=1], fused: mismatched: off by 3", "  suite bad.py: cannot be loaded"),
    ]


def test_of_many_rows_on_a_loaded_host_the_sound_ones_are_shown() -> None:
    loaded = [variant(f"v{n}", device_kind="cpu", environment=LOADED) for n in range(50)]
    sound = [baseline(device_kind="cpu"), ended("fused", "failed", "why", device_kind="cpu", environment=LOADED)]
    assert [*believed([*loaded, *sound])] == sound and [*believed(loaded[:5])] == loaded[:5]
    lines = answer([*loaded, *sound])
    assert sum("2.0 of 2 cores are busy" in line for line in lines) == 1 and lines[1].startswith("Not shown: 50 of 52")
    assert "Largest speedups: none that is to be believed" in lines
