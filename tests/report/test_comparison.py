"""What `compare` prints in each format, and what it may not do to GitHub: long comments, and annotations that are commands of somebody else."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbench.model.comparison import (
    Attribution,
    Calibration,
    Change,
    Comparison,
    EraChange,
    GateOutcome,
    Judgement,
    KernelChange,
    Side,
)
from pairbench.report.comparison import LIMIT, annotations, render_comparison, to_markdown
from pairbench.report.comparison_words import headline, kernel_name, metric
from pairbench.report.render import FORMATS, Terminal
from pairbench.stats import Interval
from tests.report.conftest import median

MakeChange = Callable[..., Change]
MakeComparison = Callable[..., Comparison]
PIPE = Terminal()

KERNEL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
    "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
SHORT = "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, array<char*, 3ul> >"
HOSTILE = "a|b`c*_[link](x)<script>&#;~$\n::error::\x1b[2J\x07\u202e" + "x" * 10_000


def launches(reference: int = 1, current: int = 3) -> Judgement:
    return Judgement(
        metric="launches_per_call",
        outcome=GateOutcome.REGRESSION,
        reference=reference,
        current=current,
        reason="two launches more",
    )


def test_the_first_line_is_the_verdict(change: MakeChange, comparison: MakeComparison) -> None:
    changes = [change(f"v{number}") for number in range(2)]
    changes += [change("fast", 0.9, GateOutcome.IMPROVEMENT)]
    changes += [change(f"u{number}", 1.0, GateOutcome.UNCHANGED) for number in range(1037)]
    changes += [change(f"x{number}", 1.0, GateOutcome.UNDECIDED) for number in range(4)]
    text = render_comparison(comparison(*changes), "table", terminal=PIPE)
    expected = "2 regressions, 1 improvement, 1,037 unchanged, 4 undecided against 5 runs of main (abc1234..def5678)"
    assert text.splitlines()[0] == expected
    assert text.splitlines()[1:5] == [
        "  2 regressions: geometric mean of P50 +3.00%, +3.00% to +3.00%",
        "  1 improvement: P50 -10.00%",
        "  all 1,044 compared: geometric mean of P50 +0.00%, -10.00% to +3.00%",
        "current: run 20260107T000000-bbbb (latest, 1234567)",
    ]
    assert "u1036" not in text, "unchanged ones are only counted where there are many"


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ([], "nothing was compared against"),
        ([GateOutcome.NEW, GateOutcome.NEW], "nothing was compared: 2 new against"),
        ([GateOutcome.UNCHANGED, GateOutcome.MISSING], "no regression, 1 unchanged, 1 missing against"),
        ([GateOutcome.FAILED, GateOutcome.UNCHANGED], "1 failed, 1 unchanged against"),
        ([GateOutcome.REGRESSION], "1 regression against"),
    ],
)
def test_a_headline_never_sounds_better_than_it_is(
    change: MakeChange, comparison: MakeComparison, outcomes: list[GateOutcome], words: str
) -> None:
    changes = [change(f"v{number}", outcome=outcome) for number, outcome in enumerate(outcomes)]
    assert headline(comparison(*changes)).startswith(words)


def test_sides(comparison: MakeComparison) -> None:
    assert headline(comparison(reference=Side(asked="main", runs=()))).endswith("against no run (main)")
    assert headline(comparison(reference=Side(asked="a", runs=("a",)))).endswith("against run a")
    two = Side(asked="last:2", runs=("a", "b"), commits=("c" * 40, "c" * 40))
    assert headline(comparison(reference=two)).endswith("against 2 runs of last:2 (ccccccc)")


def test_a_regression_says_all_that_is_known(change: MakeChange, comparison: MakeComparison) -> None:
    kernels = (
        KernelChange(name=KERNEL, what="new", reference_count=0, current_count=2, reference_ns=0, current_ns=3100),
        KernelChange(name="old", what="gone", reference_count=1, current_count=0, reference_ns=900, current_ns=0),
        KernelChange(name="rms", what="slower", reference_count=1, current_count=1, reference_ns=3e3, current_ns=4e3),
        KernelChange(name="c", what="more often", reference_count=1, current_count=4, reference_ns=1, current_ns=4),
    )
    one = change(
        attribution=Attribution.CODE,
        control=Interval(1.001, 0.999, 1.003),
        kernels=kernels,
        implementation_changed=True,
        confirmed=True,
        reason="P50 rose beyond the minimum effect",
    )
    lines = render_comparison(comparison(one), "table", terminal=PIPE).splitlines()[2:]
    assert lines[3] == "Regressions (1)"
    header = "implementation reference current change interval minimum floor control attribution"
    assert lines[4].split() == header.split()
    assert lines[5] == "  suites/norm.py::rms_norm[dtype=bfloat16,tokens=4096] (NVIDIA H200)"
    row = "fused 41.00 us 42.23 us +3.00% +2.70% to +3.30% 2.0% 0.41% +0.10% code"
    assert lines[6].split() == row.split()
    slower = "slower rms (3.000 us -> 4.000 us)"
    assert [line.strip() for line in lines[7:10]] == [
        "P50 rose beyond the minimum effect",
        f"kernels: new 2 x {SHORT} (3.100 us); gone 1 x old (900.0 ns); {slower}; more often c (1 -> 4 a call)",
        "its source changed; confirmed by a second measurement",
    ]


def test_what_decided_is_first_and_the_median_always_there(change: MakeChange, comparison: MakeComparison) -> None:
    one = change()
    unmoved = Judgement(metric="peak_bytes", outcome=GateOutcome.UNCHANGED, reference=2048.0, current=2048.0, reason="")
    more = Judgement(metric="peak_bytes", outcome=GateOutcome.REGRESSION, reference=2048, current=4096, reason="")
    text = render_comparison(
        comparison(change(judgements=(launches(), unmoved, more, *one.judgements))), "table", terminal=PIPE
    )
    rows = text.splitlines()[8:11]
    assert rows[0].split() == ["fused", "launches", "1", "3", "+2"]
    assert rows[1].split() == ["peak", "memory", "2.000", "KiB", "4.000", "KiB", "+100%"]
    assert rows[2].split()[:3] == ["P50", "41.00", "us"]
    assert "2.000 KiB  2.000 KiB" not in text


def test_on_a_gpu_the_device_has_the_short_names_and_a_host_that_moved_its_row(
    change: MakeChange, comparison: MakeComparison
) -> None:
    of_device = median(1.001, GateOutcome.UNCHANGED, "device_p50_ns")
    of_call = median(1.4, GateOutcome.UNCHANGED, "call_p50_ns")
    of_host = median(1.3, GateOutcome.UNCHANGED, "host_p50_ns")
    text = render_comparison(comparison(change(judgements=(of_device, of_call, of_host))), "table", terminal=PIPE)
    told = [line for line in text.splitlines() if "41.00 us" in line]
    assert [line.split("41.00")[0].split()[-2:] for line in told] == [["fused", "P50"], ["host", "P50"]]
    still = replace(of_host, change=Interval(1.001, 0.99, 1.01))
    text = render_comparison(comparison(change(judgements=(of_device, of_call, still))), "table", terminal=PIPE)
    assert "host P50" not in text
    assert metric(of_call, of=change(judgements=(of_call,))) == "P50"
    assert metric(of_call, of=change(judgements=(of_device, of_call))) == "call P50"


def test_a_changed_environment_is_a_heading_of_its_own(change: MakeChange, comparison: MakeComparison) -> None:
    driver = (EraChange(field="driver", reference="580.1", current="580.2"),)
    torch = (EraChange(field="torch", reference="2.11", current=None),)
    changes = [change("a", era=driver), change("b", era=torch), change("c"), change("d", era=driver)]
    for output in ("table", "markdown"):
        text = render_comparison(comparison(*changes), output, terminal=PIPE).replace("&gt;", ">")
        head, _, body = text.partition("Regressions (4)")
        assert "environment changed: driver 580.1 -> 580.2, torch 2.11 -> none, in 3 of 4 series" in head
        first = body.index("environment changed: driver 580.1 -> 580.2")
        second = body.index("environment changed: torch 2.11 -> none")
        assert body.count("environment changed") == 2
        start, end = ("\n    ", " ") if output == "table" else ("\\]-", "-eager")
        places = [body.index(f"{start}{name}{end}") for name in ("c", "a", "d", "b")]
        assert places == sorted(places)
        assert places[0] < first < places[1] < places[2] < second < places[3]


def test_the_largest_change_is_first_and_exact_ones_before_it(change: MakeChange, comparison: MakeComparison) -> None:
    changes = [change("a", 1.03), change("b", 1.5), change("c", math.nan), change("d", judgements=(launches(),))]
    text = render_comparison(comparison(*changes), "table", terminal=PIPE)
    assert [line.split()[0] for line in text.splitlines() if line.startswith("    ") and line[4] in "abcd"] == [
        *("d", "b", "a", "c"),
    ]


def test_names_stand_under_their_reason(change: MakeChange, comparison: MakeComparison) -> None:
    timers = "timers differ: cuda_event and do_bench"
    changes = [
        change("x", None, GateOutcome.INCOMPARABLE, reason=timers),
        change("y", None, GateOutcome.INCOMPARABLE, reason="modes differ"),
        change("z", None, GateOutcome.INCOMPARABLE, reason=timers),
        change("gone", None, GateOutcome.MISSING, reason="the current run has no such series"),
    ]
    lines = [line.strip() for line in render_comparison(comparison(*changes), "table", terminal=PIPE).splitlines()]
    place = lines.index("Incomparable (3)")
    assert lines[place + 1] == timers
    assert [line.split("-")[1] for line in lines[place + 2 : place + 4]] == ["x", "z"]
    assert lines[place + 4] == "modes differ"
    assert lines.index("Missing (1)") < place


def test_accepted_levels_show_their_reason(change: MakeChange, comparison: MakeComparison) -> None:
    one = change("wide", 1.2, GateOutcome.UNCHANGED, accepted="takes odd sizes too")
    for output in ("table", "markdown"):
        text = render_comparison(comparison(one), output, terminal=PIPE)
        assert "Accepted on purpose (1)" in text and "accepted: takes odd sizes too" in text
        assert "Unchanged" not in text


def test_measured_false_alarms_stand_beside_the_verdicts(change: MakeChange, comparison: MakeComparison) -> None:
    calibration = Calibration(
        calibration_id="x",
        made_at="2026-11-20T12:00:00+00:00",
        device_name="NVIDIA H200",
        environment_hash="f",
        runs=("r",) * 6,
        comparisons=5,
        judged=3000,
        alarms=0,
        floors={},
    )
    both = comparison(change(), change(device_name="A CPU"), calibrations=(calibration,))
    for output in ("table", "markdown"):
        text = render_comparison(both, output, terminal=PIPE).replace("&lt;", "<").replace("\\", "")
        assert "measured false alarms on NVIDIA H200: 0 of 3,000 (<= 0.10%), 2026-11-20, 6 runs" in text
        assert "measured false alarms on A CPU: none known" in text and "`pairbench calibrate` measures them" in text


def test_long_lists_end_with_a_count_and_bad_news_do_not(change: MakeChange, comparison: MakeComparison) -> None:
    bad = [change(f"bad{number:03}") for number in range(100)]
    open_ = [change(f"open{number:03}", 1.01, GateOutcome.UNDECIDED) for number in range(100)]
    new = [change(f"new{number:03}", None, GateOutcome.NEW) for number in range(100)]
    text = render_comparison(comparison(*bad, *open_, *new), "table", terminal=PIPE)
    assert text.count(" bad") == 100
    assert text.count(" open") == 40 and text.count("-new") == 40
    assert text.count("and 60 more; --format json lists them") == 2


@pytest.mark.parametrize("width", [50, 80, 90])
def test_a_terminal_gets_what_fits(change: MakeChange, comparison: MakeComparison, width: int) -> None:
    text = render_comparison(
        comparison(change(control=Interval(1, 1, 1), attribution=Attribution.ENVIRONMENT)),
        "table",
        terminal=Terminal(width=width, color=True),
    )
    plain = render_comparison(
        comparison(change(control=Interval(1, 1, 1), attribution=Attribution.ENVIRONMENT)),
        "table",
        terminal=Terminal(width=width),
    )
    assert max(map(len, plain.splitlines())) <= width
    assert "Left out for want of width: floor" in plain.replace("\n", " ") and "+3.00%" in plain
    assert "\x1b[31m" in text and "\x1b" not in plain


@pytest.mark.parametrize("output", FORMATS)
def test_hostile_names_come_out_as_text(change: MakeChange, comparison: MakeComparison, output: str) -> None:
    kernels = (
        KernelChange(name=HOSTILE, what="new", reference_count=0, current_count=1, reference_ns=0, current_ns=math.nan),
    )
    era = (EraChange(field=HOSTILE, reference=HOSTILE, current=None),)
    whole = comparison(
        change(HOSTILE, reason=HOSTILE, kernels=kernels, era=era, accepted=HOSTILE, suite=HOSTILE, case=HOSTILE),
        change(HOSTILE, None, GateOutcome.MISSING, reason=HOSTILE, mode=HOSTILE, device_name=HOSTILE),
        reference=Side(asked=HOSTILE, runs=("r",), commits=(HOSTILE,)),
        problems=(HOSTILE,),
    )
    text = render_comparison(whole, output, terminal=PIPE)
    assert "\x1b" not in text
    if output == "json":
        document = json.loads(text)
        assert document["changes"][0]["series"]["implementation"] == HOSTILE
        return
    assert "\u202e" not in text
    assert not any(line.startswith("::error") for line in text.splitlines())
    if output == "markdown":
        assert "<script" not in text
        assert "](x)" not in text.replace("\\]", "")
        rows = [line.replace("\\|", "").count("|") for line in text.splitlines() if line.startswith("|")]
        assert len(set(rows)) == 1


def test_json_has_everything(change: MakeChange, comparison: MakeComparison) -> None:
    unchanged = [change(f"u{number}", 1.0, GateOutcome.UNCHANGED) for number in range(100)]
    endless = change("wild", judgements=(launches(),), control=Interval(math.inf, 0, math.nan))
    text = render_comparison(comparison(endless, *unchanged, problems=("a problem",)), "json")
    document = json.loads(text, parse_constant=pytest.fail)
    assert document["outcomes"]["unchanged"] == 100 and document["outcomes"]["failed"] == 0
    assert len(document["changes"]) == 101 and document["problems"] == ["a problem"]
    first: dict[str, Any] = document["changes"][0]
    assert first["name"].endswith("-wild-eager") and first["outcome"] == "regression"
    assert first["control"] == {"estimate": None, "low": 0, "high": None}
    assert (document["exit_code"], document["exit_code_strict"]) == (1, 1)
    assert document["verdict"].startswith("1 regression, 100 unchanged")
    unmoved = {"series": 100, "known": 100, "geometric_mean": 1.0, "smallest": 1.0, "largest": 1.0}
    nothing = {"series": 1, "known": 0, "geometric_mean": None, "smallest": None, "largest": None}
    assert document["moves"] == {"regression": nothing, "all": pytest.approx(unmoved)}


def test_a_long_change_of_environment_is_one_line_and_said_once(change: MakeChange, comparison: MakeComparison) -> None:
    era = tuple(EraChange(field=f"flags.{place}", reference="1", current="2") for place in range(9))
    whole = comparison(change("a", era=era), change("b", 1.0, GateOutcome.UNDECIDED, era=era), change("n", None))
    for output in ("table", "markdown"):
        text = render_comparison(whole, output, terminal=PIPE).replace("&gt;", ">").replace("\\", "")
        (line,) = [line for line in text.splitlines() if "environment changed" in line]
        assert line.endswith("flags.3 1 -> 2, and 5 more fields, in 2 of 3 series")


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (KERNEL, SHORT),
        ("rms_norm_kernel", "rms_norm_kernel"),
        ("void (anonymous namespace)::softmax<float>(float*)", "softmax<float>"),
        ("void a::b<c::d>::e(f::g)", "b<d>::e"),
        ("(", "("),
        ("", ""),
    ],
)
def test_kernel_names_lose_what_tells_nothing(name: str, short: str) -> None:
    assert kernel_name(name) == short


def test_long_kernel_names_keep_both_ends() -> None:
    name = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_x"
    short = kernel_name(name, 40)
    assert len(short) == 40 and short.startswith("sm90_xmma_gemm") and short.endswith("_k_off_x")


def test_a_suite_that_could_not_be_loaded_is_named(change: MakeChange, comparison: MakeComparison) -> None:
    one = change("", None, GateOutcome.FAILED, case="", mode="", reason="the suite could not be loaded: SyntaxError")
    for output in ("table", "markdown"):
        text = render_comparison(comparison(one), output, terminal=PIPE)
        assert "suites/norm.py (NVIDIA H200)" in text and "could not be loaded: SyntaxError" in text
        assert "::" not in text


GITHUB = 65_536

COMMAND = re.compile(r"::(error|warning|notice) ((?:\w+=[^,:]*,?)*)::(.*)")


@pytest.mark.parametrize("number", [1, 100, 5000])
def test_markdown_fits_a_comment_and_says_what_does_not(
    change: MakeChange, comparison: MakeComparison, number: int
) -> None:
    changes = [change(f"bad{place}", reason="a reason of some length " * 10) for place in range(number)]
    changes += [change(f"new{place}", None, GateOutcome.NEW) for place in range(number)]
    text = render_comparison(comparison(*changes), "markdown")
    assert len(text.encode()) <= LIMIT < GITHUB
    assert text.count("<details>") == text.count("</details>")
    shown = text.count("-bad") + text.count("-new")
    left_out = re.search(r"([\d,]+) of ([\d,]+) series are left out", text)
    if number < 5000:
        assert left_out is None and shown == 2 * number
    else:
        assert left_out is not None
        assert int(left_out[1].replace(",", "")) == len(changes) - shown
        assert "--format json" in text.splitlines()[-1]


@given(limit=st.integers(2000, 20_000), bad=st.integers(0, 40), new=st.integers(0, 40), problems=st.integers(0, 60))
def test_a_limit_holds(
    change: MakeChange, comparison: MakeComparison, limit: int, bad: int, new: int, problems: int
) -> None:
    changes = [change(f"bad{place}") for place in range(bad)]
    changes += [change(f"new{place}", None, GateOutcome.NEW) for place in range(new)]
    whole = comparison(*changes, problems=tuple(f"file {place} is broken" for place in range(problems)))
    text = to_markdown(whole, limit=limit)
    assert len(text.encode()) <= limit
    assert text.startswith("### pairbench: ")
    assert text.count("<details>") == text.count("</details>")
    shown = text.count("-bad") + text.count("-new")
    assert ("series are left out" in text) == (shown < bad + new)


def test_bad_news_are_in_sight_and_the_rest_is_folded(change: MakeChange, comparison: MakeComparison) -> None:
    text = render_comparison(comparison(change("bad"), change("u", 1.0, GateOutcome.UNDECIDED)), "markdown")
    assert text.index("-bad-") < text.index("<details><summary>Undecided (1)</summary>") < text.index("-u-")


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Read workflow commands as a runner does."""
    found = []
    for line in text.splitlines():
        match = COMMAND.fullmatch(line)
        assert match, line
        given_ = dict(part.split("=", 1) for part in match[2].split(",") if part)
        found.append((match[1], {key: unescape(value, ":,") for key, value in given_.items()}, unescape(match[3])))
    return found


def unescape(text: str, more: str = "") -> str:
    for letter in f"{more}\r\n%":
        text = text.replace(f"%{ord(letter):02X}", letter)
    return text


def test_annotations_say_what_fails_and_what_nobody_can_tell(change: MakeChange, comparison: MakeComparison) -> None:
    changes = [
        change("slow", 1.03, era=(EraChange(field="driver", reference="1", current="2"),)),
        change("broken", None, GateOutcome.FAILED, reason="timeout: more than 300 s"),
        change("gone", None, GateOutcome.MISSING, reason="the current run has none"),
        change("other", None, GateOutcome.INCOMPARABLE, reason="timers differ"),
        change("suspect", 1.05, GateOutcome.UNDECIDED),
        change("vague", 1.01, GateOutcome.UNDECIDED),
        change("faster", 0.9, GateOutcome.UNDECIDED),
        change("fine", 1.0, GateOutcome.UNCHANGED),
        change("good", 0.9, GateOutcome.IMPROVEMENT),
        change("new", None, GateOutcome.NEW),
    ]
    found = commands(annotations(comparison(*changes)))
    assert [(level, given_["title"]) for level, given_, _ in found] == [
        ("error", "failed: rms_norm broken"),
        ("error", "regression: rms_norm slow"),
        ("warning", "undecided: rms_norm suspect"),
        ("warning", "missing: rms_norm gone"),
        ("warning", "incomparable: rms_norm other"),
        ("notice", "pairbench"),
    ]
    assert found[1][1]["file"] == "suites/norm.py"
    assert found[1][2].splitlines() == [
        "suites/norm.py::rms_norm[dtype=bfloat16,tokens=4096]-slow-eager (NVIDIA H200)",
        "P50 41.00 us -> 42.23 us (+3.00%)",
        "environment changed: driver 1 -> 2",
        "P50 moved",
        "not measured a second time",
    ]
    assert found[-1][2].startswith("1 failed, 1 regression")


@pytest.mark.parametrize(("number", "lines"), [(10, 10), (11, 10), (500, 10)])
def test_annotations_stop_where_github_would(
    change: MakeChange, comparison: MakeComparison, number: int, lines: int
) -> None:
    found = commands(annotations(comparison(*(change(f"v{place}") for place in range(number)))))
    errors = [message for level, _, message in found if level == "error"]
    assert len(errors) == lines
    assert errors[-1].startswith(f"and {number - 9} more") == (number > 10)


@given(st.text() | st.text("%:,\r\n=;\x1b\u2028 a", max_size=20))
def test_no_name_can_be_another_command(change: MakeChange, comparison: MakeComparison, name: str) -> None:
    one = Judgement(
        metric=name, outcome=GateOutcome.FAILED, reference=name, current=name, change=Interval(2, 1, 3), reason=name
    )
    whole = comparison(
        change(name, outcome=GateOutcome.FAILED, suite=name, case=name, reason=name, judgements=(one,)),
        change(name, None, GateOutcome.MISSING, suite=f"{name}.py", device_name=name, accepted=name),
    )
    text = annotations(whole)
    assert [level for level, _, _ in commands(text)] == ["error", "warning", "notice"]
    assert text.isascii() or not re.search(r"[\x00-\x09\x0b-\x1f\x85\u2028\u2029]", text)


@pytest.mark.parametrize("suite", ["/etc/ops.py", "../ops.py", "ops", "x" * 400 + ".py"])
def test_only_files_of_the_checkout_are_marked(change: MakeChange, comparison: MakeComparison, suite: str) -> None:
    (error, _) = commands(annotations(comparison(change(suite=suite))))
    assert set(error[1]) == {"title"}
