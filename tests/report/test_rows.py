"""What `show` prints of records in each format; of a CPU that had other work to do times are marked and speedups withheld."""

import json
import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from pairbench.model.record import KernelCount, Record, columns
from pairbench.report.render import FORMATS, Terminal
from pairbench.report.rows import MEANINGS, answer, believed, expanded, ordered, render

Make = Callable[..., Record]
PIPE = Terminal()


def test_a_pipe_gets_everything_and_no_colour(baseline: Make, variant: Make) -> None:
    text = render([baseline(), variant("fused", launches_per_call=1, kernels_per_call=2)], "table", terminal=PIPE)
    lines = text.splitlines()
    assert (
        lines[0] == "run 20260102T030405-aaaa, 2026-01-02T03:04:05+00:00, commit 0123456789 and changes, torch 2.11.0"
    )
    assert lines[2] == "rms_norm (suites/norm.py, NVIDIA H200)"
    header = "implementation P50 ± P95 call host speedup interval launches ops max error oracle ratio"
    assert lines[3].split() == header.split()
    assert lines[4] == "  rms_norm[dtype=bfloat16,tokens=4096] (real)"
    assert lines[5].split() == [
        "baseline",
        *("39.00", "us", "±0.26%"),
        *("40.00", "us"),
        *("41.00", "us"),
        *("20.00", "us"),
        "6",
        "9",
        "0.0078",
        "1.00",
    ]
    assert "2.000x  1.980-2.020     1 (2)" in lines[6]
    assert lines[-1] == "2 measured"
    assert "\x1b" not in text
    assert not any(line != line.rstrip() for line in lines)


def test_on_a_gpu_the_device_leads_and_a_call_that_the_host_limits_says_so(baseline: Make, variant: Make) -> None:
    bound = replace(
        variant("fused", device_p50_ns=17_900.0, host_p50_ns=88_000.0, bound="host"), speedup=9.0, speedup_low=8.0
    )
    for text in (
        render([baseline(), bound], "table", terminal=PIPE),
        render([baseline(), bound], "markdown"),
    ):
        (row,) = (line for line in text.splitlines() if "fused" in line)
        assert row.index("17.90 us") < row.index("41.00 us") < row.index("88.00 us")
        assert "2.000x" in row and "9.000x" not in row
        assert "host-bound: 88 us to issue 18 us of work" in text
        assert "on a GPU of the device, with the host's work hidden" in text


def test_on_a_cpu_the_call_is_all_there_is(baseline: Make, variant: Make) -> None:
    cpu = {"device_kind": "cpu", "host_p50_ns": None, "bound": None}
    cpu |= {name: None for name in vars(baseline()) if name.startswith("device_") and name.endswith(("_ns", "_low"))}
    cpu |= {f"device_speedup{end}": None for end in ("", "_low", "_high")}
    text = render([baseline(**cpu), variant("fused", **cpu)], "table", terminal=PIPE)
    lines = text.splitlines()
    assert lines[3].split()[:6] == ["implementation", "P50", "±", "P95", "speedup", "interval"]
    assert "41.00 us" in lines[5] and "43.00 us" in lines[5] and "2.000x" in lines[6]
    assert "on a GPU" not in text and "host" not in text


def test_a_row_without_a_latency_on_the_device_says_that_it_is_the_calls(baseline: Make) -> None:
    text = render([baseline(device_p50_ns=None, bound=None)], "table", terminal=PIPE)
    assert "41.00 us" in text and "P50 is the call's: the latency on the device could not be taken" in text


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_a_terminal_gets_what_fits_and_is_told_what_does_not(baseline: Make, variant: Make, width: int) -> None:
    records = [baseline(), variant("shifted_sum"), variant("shifted_sum", mode="compile")]
    lines = render(records, "table", terminal=Terminal(width=width)).splitlines()
    assert max(map(len, lines)) <= width
    assert "speedup" in lines[4] or "speedup" in lines[3]
    (left_out,) = (line for line in lines if line.startswith("Left out")) if width < 120 else (["Left out"],)
    assert left_out
    if width >= 100:
        header = next(line for line in lines if "implementation" in line)
        assert all(name in header for name in ("P50", "P95", "speedup", "interval", "launches"))


def test_colour_needs_the_whole_interval_on_one_side(baseline: Make, variant: Make) -> None:
    records = [baseline(), variant("fast", 2.0), variant("slow", 0.5), variant("same", 1.01)]
    lines = render(records, "table", terminal=Terminal(width=120, color=True)).splitlines()
    colours = {name: next(line for line in lines if name in line) for name in ("baseline", "fast", "slow", "same")}
    assert "\x1b[32m 2.000x" in colours["fast"]
    assert "\x1b[31m 0.500x" in colours["slow"]
    assert "\x1b[3" not in colours["same"]
    assert "\x1b[3" not in colours["baseline"]


def test_what_went_wrong_stands_below_its_row(baseline: Make, ended: Make) -> None:
    records = [
        baseline(),
        ended("wrong", "mismatched", "12 % of the elements differ"),
        ended("crash", "failed", "died of SIGSEGV"),
        ended("later", "skipped", "needs sm_100", device_uuid="GPU-1"),
    ]
    lines = render(records, "table", terminal=PIPE).splitlines()
    assert lines[lines.index("    wrong") + 1] == "      mismatched: 12 % of the elements differ"
    assert lines[lines.index("    crash") + 1] == "      failed: died of SIGSEGV"
    assert lines[lines.index("    later") + 1] == "      skipped: needs sm_100"
    assert lines[-1] == "1 measured, 1 mismatched, 1 failed, 1 skipped"


def test_names_and_reasons_are_shown_as_they_are(baseline: Make, ended: Make) -> None:
    record = ended("a[red]b[/red]", "failed", "x|y\n[bold]z[/bold] \x1b[2J <b>", suite="suites/[link].py")
    text = render([record], "table", terminal=PIPE)
    assert "a[red]b[/red]" in text
    assert "failed: x|y [bold]z[/bold] [2J <b>" in text
    assert "suites/[link].py" in text
    markdown = render([record], "markdown")
    assert r"x\|y \[bold\]z\[/bold\] \[2J &lt;b&gt;" in markdown
    (row,) = (line for line in markdown.splitlines() if "x\\|y" in line)
    assert row.replace("\\|", "").count("|") == markdown.splitlines()[4].replace("\\|", "").count("|")


def test_the_baseline_is_first_and_variants_keep_their_order(baseline: Make, variant: Make) -> None:
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


def test_devices_of_one_model_are_told_apart(baseline: Make) -> None:
    text = render([baseline(), baseline(device_uuid="GPU-2")], "table", terminal=PIPE)
    assert "(real, GPU-1)" in text
    assert "(real, GPU-2)" in text


def test_two_runs_have_two_headings(baseline: Make) -> None:
    text = render([baseline(), baseline(run_id="20260103"), baseline(case="x[]")], "table", terminal=PIPE)
    assert [line.split(",")[0] for line in text.splitlines() if line.startswith("run")] == [
        "run 20260102T030405-aaaa",
        "run 20260103",
    ]


def test_unreliable_launches_are_no_number(baseline: Make) -> None:
    assert "unreliable" in render([baseline(launch_status="unreliable")], "table", terminal=PIPE)
    nothing = baseline(launches_per_call=None, kernels_per_call=None, launch_status="unavailable")
    assert "launches" not in render([nothing], "table", terminal=PIPE)


def test_a_suite_that_could_not_be_loaded_is_shown(ended: Make) -> None:
    record = ended(
        "", "failed", "SyntaxError", operator=None, case=None, axes=None, tier=None, implementation=None, role=None
    )
    text = render([record], "table", terminal=PIPE)
    assert "not loaded (suites/norm.py, NVIDIA H200)" in text
    assert "failed: SyntaxError" in text
    assert json.loads(render([record], "json"))["records"][0]["axes"] is None


def test_json_is_one_document_of_real_objects(baseline: Make) -> None:
    record = baseline(
        call_p95_ns=math.nan,
        roofline_fraction=math.inf,
        round_p50_ns=(1.0, math.nan),
        kernels=(KernelCount(name="k", count=2, total_ns=1.5),),
    )
    document = json.loads(render([record], "json", problems=["bad.parquet: broken"]), parse_constant=pytest.fail)
    (row,) = document["records"]
    assert list(row) == list(columns(Record))
    assert row["axes"] == {"dtype": "bfloat16", "tokens": 4096}
    assert row["environment"] == {"tf32": False}
    assert row["kernels"] == [{"name": "k", "count": 2, "total_ns": 1.5}]
    assert (row["call_p95_ns"], row["roofline_fraction"], row["round_p50_ns"]) == (None, None, [1.0, None])
    assert document["problems"] == ["bad.parquet: broken"]


def test_markdown_is_a_table_for_each_operator(baseline: Make, variant: Make, ended: Make) -> None:
    text = render(
        [baseline(), variant("fused"), ended("bad", "oom", "out of memory"), baseline(operator="b")], "markdown"
    )
    tables = text.split("### ")[1:]
    assert [table.splitlines()[0] for table in tables] == [
        r"rms\_norm (suites/norm.py, NVIDIA H200)",
        "b (suites/norm.py, NVIDIA H200)",
    ]
    rows = [line for line in tables[0].splitlines() if line.startswith("|")]
    assert len({row.count(" | ") for row in rows}) == 1
    assert rows[1].count("---") == rows[0].count(" | ") + 1
    assert rows[-1].endswith("| oom: out of memory |")


@pytest.mark.parametrize("output", FORMATS)
def test_nothing_to_show_is_fine(output: str) -> None:
    assert "a problem" in render([], output, problems=["a problem"], terminal=PIPE)


def test_an_unknown_format_is_refused(baseline: Make) -> None:
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
    baseline: Make, flops: float, moved: float, expected: list[str]
) -> None:
    cost = {"flops": flops, "bytes_moved": moved, "tflops": flops / 39e6, "gbps": moved / 39e3}
    row = baseline(**cost, dtype="bfloat16", roofline_fraction=0.97, environment=CEILINGS)
    lines = render([row], "table", terminal=PIPE).splitlines()
    assert "rate  roof" in lines[3] and " ".join(expected) in " ".join(lines[5].split())
    assert "rate" not in render([baseline()], "table", terminal=PIPE), "nothing is declared"


def test_a_rate_from_a_busy_cpu_is_not_shown(baseline: Make) -> None:
    load = {"load": {"cores": 2, "before": 1.9, "rounds": [], "performance_states": [], "foreign_processes": []}}
    environment = json.dumps({"observed": {"ceilings": {"copy_gbps": 10.0, "bfloat16_tflops": 1.0}, **load}})
    row = baseline(device_kind="cpu", flops=1.0, bytes_moved=1e6, gbps=9.0, tflops=1.0, environment=environment)
    assert "9.000 GB/s" not in render([row], "table", terminal=PIPE)


def test_who_returns_the_same_memory_is_marked(baseline: Make, variant: Make) -> None:
    said = "returns the same memory in each call"
    records = [baseline(reuses_output=False), variant("fused", reuses_output=True), variant("slow")]
    assert render(records, "table", terminal=PIPE).count(said) == 1
    assert render(records, "markdown").count(said) == 1


@pytest.mark.parametrize(
    ("consumes", "said"), [(("a", "b"), "overwrites its inputs a, b"), (("z",), "overwrites its input z")]
)
def test_an_input_that_is_lost_is_said_beside_the_latency(
    consumes: tuple[str, ...], said: str, baseline: Make, variant: Make
) -> None:
    row = variant("fused", consumes=consumes)
    for shape in ("table", "markdown"):
        assert render([baseline(), row], shape, terminal=PIPE).count(said) == 1
    assert json.loads(render([baseline(), row], "json"))["records"][1]["consumes"] == list(consumes)


def test_what_the_autotuner_chose_stands_below_the_row(baseline: Make, variant: Make) -> None:
    row = variant("fused", autotuned=("norm: BLOCK=64, num_warps=4", "add: BLOCK=8, num_warps=1 (in 1 of 3 rounds)"))
    said = "autotuned norm: BLOCK=64, num_warps=4; add: BLOCK=8, num_warps=1 (in 1 of 3 rounds)"
    assert render([baseline(), row], "table", terminal=PIPE).count(said) == 1
    assert said.replace("_", "\\_") in render([baseline(), row], "markdown")


@pytest.mark.parametrize(
    ("precisions", "said"),
    [
        (("ieee", "ieee"), "IEEE float32, where torch by itself lets convolutions use TF32; --tf32 allows it for both"),
        (("tf32", "tf32"), "TF32 allowed for both, where torch by itself allows it for convolutions alone; --no-tf32"),
        (("ieee", "tf32"), "TF32 allowed in 1 of 2 records, IEEE float32 in the others, by the axis tf32 or the run's"),
        ((None, None), None),
    ],
)
def test_the_precision_of_float32_is_one_line(
    baseline: Make, variant: Make, precisions: tuple[str | None, str | None], said: str | None
) -> None:
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


def test_where_replays_and_launches_tell_different_stories_both_speedups_are_said(
    baseline: Make, variant: Make
) -> None:
    told = replace(variant("fused", device_timer="graph_replay"), device_speedup=4.1, stream_speedup=5.7)
    for output in ("table", "markdown"):
        text = render([baseline(), told], output, terminal=PIPE)
        assert text.count("4.100x by kernels alone, 5.700x as eager code launches them") == 1
    compiled = replace(told, mode="compile", device_speedup=5.7, stream_speedup=4.1)
    assert "as compile code launches them" not in render([baseline(), compiled], "table", terminal=PIPE)
    assert "4.100x as compiled code launches them" in render([baseline(), compiled], "table", terminal=PIPE)
    for alike in (
        replace(told, stream_speedup=4.4),
        replace(told, stream_speedup=None),
        replace(told, device_timer="spin"),
    ):
        assert "by kernels alone" not in render([baseline(), alike], "table", terminal=PIPE)


def test_a_speedup_of_launches_is_told_where_one_alone_is_replayed(baseline: Make, variant: Make) -> None:
    launched = replace(variant("own_graph", device_timer="spin"), device_speedup=0.97, stream_speedup=0.97)
    text = render([baseline(), launched], "table", terminal=PIPE)
    assert "the speedup is of the calls' own launches: baseline and variant cannot both be replayed" in text


LOAD = {"cores": 2, "before": 2.0, "rounds": [1.0], "performance_states": [], "foreign_processes": []}
LOADED = json.dumps({"observed": {"load": LOAD}})


@pytest.mark.parametrize("output", ["table", "markdown"])
def test_the_headline_is_withheld_and_nothing_else(baseline: Make, variant: Make, output: str) -> None:
    changes = {"device_kind": "cpu", "environment": LOADED}
    pair = [baseline(**changes), variant("fused", **changes)]
    text = render(pair, output)
    assert "withheld" in text and "2.000x" not in text and "1.980" not in text
    assert "41.00 us?" in text
    assert "2.0 of 2 cores are busy with other work: latencies of this run are not to be believed" in text
    assert expanded(pair[1])["speedup"] == pytest.approx(2.0), "what is stored stays as it is"


def test_an_idle_host_and_a_gpu_are_shown_as_ever(baseline: Make, variant: Make) -> None:
    for changes in ({"device_kind": "cuda", "environment": LOADED}, {"device_kind": "cpu"}):
        text = render([baseline(**changes), variant("fused", **changes)], "table")
        assert "2.000x" in text and "withheld" not in text and "us?" not in text


def test_the_answer_of_a_run_of_many_pairs(baseline: Make, variant: Make, ended: Make) -> None:
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


def test_of_many_rows_on_a_loaded_host_the_sound_ones_are_shown(baseline: Make, variant: Make, ended: Make) -> None:
    loaded = [variant(f"v{n}", device_kind="cpu", environment=LOADED) for n in range(50)]
    sound = [baseline(device_kind="cpu"), ended("fused", "failed", "why", device_kind="cpu", environment=LOADED)]
    assert [*believed([*loaded, *sound])] == sound and [*believed(loaded[:5])] == loaded[:5]
    lines = answer([*loaded, *sound])
    assert sum("2.0 of 2 cores are busy" in line for line in lines) == 1 and lines[1].startswith("Not shown: 50 of 52")
    assert "Largest speedups: none that is to be believed" in lines


@pytest.mark.parametrize("output", ["table", "markdown"])
def test_short_words_are_explained_once_below_the_first_table_that_has_them(
    baseline: Make, variant: Make, output: str
) -> None:
    pairs = [
        make(*name, operator=operator, case=f"{operator}[n=1]", device_kind="cpu", environment=environment)
        for operator, environment in (("first", LOADED), ("second", LOADED))
        for make, name in ((baseline, ()), (variant, ("fused",)))
    ]
    text = render(pairs, output)
    places = [text.index(f"{word}: ") for word in MEANINGS if word != "oracle ratio"]
    assert text.index("first") < places[0] < text.index("second")
    assert all(text.count(meaning) == 1 for meaning in list(MEANINGS.values())[:3])
    quiet = render([baseline(device_kind="cpu", ops_per_call=None)], "table")
    assert MEANINGS["?"] not in quiet and "ops: " not in quiet and "±: " in quiet
