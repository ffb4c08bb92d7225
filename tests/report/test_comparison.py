import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbench.model.comparison import (
    Attribution,
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
from tests.builders import make_calibration
from tests.golden import assert_golden
from tests.report.shown import change, comparison, median

PIPE = Terminal()
GOLDEN = Path(__file__).parent / "golden"

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


KERNELS = (
    KernelChange(name=KERNEL, what="new", reference_count=0, current_count=2, reference_ns=0, current_ns=3100),
    KernelChange(name="old", what="gone", reference_count=1, current_count=0, reference_ns=900, current_ns=0),
    KernelChange(name="rms", what="slower", reference_count=1, current_count=1, reference_ns=3e3, current_ns=4e3),
    KernelChange(name="c", what="more often", reference_count=1, current_count=4, reference_ns=1, current_ns=4),
)


def peak(current: int, outcome: GateOutcome) -> Judgement:
    return Judgement(metric="peak_bytes", outcome=outcome, reference=2048, current=current, reason="")


def everything() -> Comparison:
    """Return a comparison with changes of every kind; their names say what the page has to show of them."""
    driver = (EraChange(field="driver", reference="580.1", current="580.2"),)
    torch = (EraChange(field="torch", reference="2.11", current=None),)
    known: dict[str, Any] = dict(attribution=Attribution.CODE, control=Interval(1.001, 0.999, 1.003), kernels=KERNELS)
    moved = (peak(2048, GateOutcome.UNCHANGED), peak(4096, GateOutcome.REGRESSION), *change().judgements)
    timers = "timers differ: cuda_event and do_bench"
    calibration = make_calibration({}, runs=("r",) * 6, judged=3000, made_at="2026-11-20T12:00:00+00:00")
    return comparison(
        change("all_known", reason="P50 rose", implementation_changed=True, confirmed=True, **known),
        change("largest", 1.5),
        change("no_number_so_last", math.nan),
        change("exact_so_first", judgements=(launches(), *moved)),
        change("other_driver", era=driver),
        change("other_torch", era=torch),
        change("other_driver_too", device_name="A CPU", era=driver),
        change("", None, GateOutcome.FAILED, case="", mode="", reason="the suite could not be loaded: SyntaxError"),
        change("timed_out", None, GateOutcome.FAILED, reason="timeout: more than 300 s", implementation_changed=False),
        change("fast", 0.9, GateOutcome.IMPROVEMENT),
        change("suspect_so_a_warning", 1.05, GateOutcome.UNDECIDED),
        change("vague_so_none", 1.01, GateOutcome.UNDECIDED),
        change("faster_so_none", 0.9, GateOutcome.UNDECIDED),
        change("accepted", 1.2, GateOutcome.UNCHANGED, accepted="takes odd sizes too"),
        *(change(f"only_counted{number}", 1.0, GateOutcome.UNCHANGED) for number in range(20)),
        *(change(f"timer{number}", None, GateOutcome.INCOMPARABLE, reason=timers) for number in range(2)),
        change("mode", None, GateOutcome.INCOMPARABLE, reason="modes differ"),
        change("gone", None, GateOutcome.MISSING, reason="the current run has no such series"),
        change("new", None, GateOutcome.NEW),
        calibrations=(calibration,),
        problems=("bad.parquet: broken",),
    )


@pytest.mark.parametrize("output", ["table", "markdown", "annotations"])
def test_each_kind_of_change_has_its_place(output: str) -> None:
    found = everything()
    text = annotations(found) if output == "annotations" else render_comparison(found, output, terminal=PIPE)
    assert_golden(GOLDEN / f"compare.{output}.txt", text)


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ([], "nothing was compared against"),
        ([GateOutcome.NEW, GateOutcome.NEW], "nothing was compared: 2 new against"),
        ([GateOutcome.UNCHANGED, GateOutcome.MISSING], "no regression, 1 unchanged, 1 missing against"),
        ([GateOutcome.FAILED, GateOutcome.UNCHANGED], "1 failed, 1 unchanged against"),
        ([GateOutcome.REGRESSION], "1 regression against"),
        ([GateOutcome.UNCHANGED] * 1037, "no regression, 1,037 unchanged against"),
    ],
)
def test_a_headline_never_sounds_better_than_it_is(outcomes: list[GateOutcome], words: str) -> None:
    changes = [change(f"v{number}", outcome=outcome) for number, outcome in enumerate(outcomes)]
    assert headline(comparison(*changes)).startswith(words)


def test_sides() -> None:
    assert headline(comparison(reference=Side(asked="main", runs=()))).endswith("against no run (main)")
    assert headline(comparison(reference=Side(asked="a", runs=("a",)))).endswith("against run a")
    two = Side(asked="last:2", runs=("a", "b"), commits=("c" * 40, "c" * 40))
    assert headline(comparison(reference=two)).endswith("against 2 runs of last:2 (ccccccc)")


def test_on_a_gpu_the_device_has_the_short_names_and_a_host_that_moved_its_row() -> None:
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


def test_long_lists_end_with_a_count_and_bad_news_do_not() -> None:
    bad = [change(f"bad{number:03}") for number in range(100)]
    open_ = [change(f"open{number:03}", 1.01, GateOutcome.UNDECIDED) for number in range(100)]
    new = [change(f"new{number:03}", None, GateOutcome.NEW) for number in range(100)]
    text = render_comparison(comparison(*bad, *open_, *new), "table", terminal=PIPE)
    assert text.count(" bad") == 100
    assert text.count(" open") == 40 and text.count("-new") == 40
    assert text.count("and 60 more; --format json lists them") == 2


@pytest.mark.parametrize("width", [50, 80, 90])
def test_a_terminal_gets_what_fits(width: int) -> None:
    whole = comparison(change(control=Interval(1, 1, 1), attribution=Attribution.ENVIRONMENT))
    text, plain = (
        render_comparison(whole, "table", terminal=Terminal(width=width, color=color)) for color in (True, False)
    )
    assert max(map(len, plain.splitlines())) <= width
    assert "Left out for want of width: floor" in plain.replace("\n", " ") and "+3.00%" in plain
    assert "\x1b[31m" in text and "\x1b" not in plain


@pytest.mark.parametrize("output", FORMATS)
def test_hostile_names_come_out_as_text(output: str) -> None:
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


def test_json_has_everything() -> None:
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


def test_a_long_change_of_environment_is_one_line_and_said_once() -> None:
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
def test_kernel_names_lose_what_tells_nothing_and_keep_both_ends(name: str, short: str) -> None:
    assert kernel_name(name) == short
    long = f"sm90_xmma_gemm_{'x' * 100}_k_off_x"
    assert len(kernel_name(long, 40)) == 40 and re.match("sm90_xmma_gemm.*_k_off_x", kernel_name(long, 40))


GITHUB = 65_536

COMMAND = re.compile(r"::(error|warning|notice) ((?:\w+=[^,:]*,?)*)::(.*)")


def test_markdown_fits_a_comment() -> None:
    changes = [change(f"bad{place}", reason="a reason of some length " * 10) for place in range(1000)]
    text = render_comparison(comparison(*changes), "markdown")
    assert LIMIT / 2 < len(text.encode()) <= LIMIT < GITHUB and "--format json" in text.splitlines()[-1]


@given(limit=st.integers(2000, 20_000), bad=st.integers(0, 40), new=st.integers(0, 40), problems=st.integers(0, 60))
def test_a_limit_holds_and_what_does_not_fit_is_counted(limit: int, bad: int, new: int, problems: int) -> None:
    changes = [change(f"bad{place}") for place in range(bad)]
    changes += [change(f"new{place}", None, GateOutcome.NEW) for place in range(new)]
    whole = comparison(*changes, problems=tuple(f"file {place} is broken" for place in range(problems)))
    text = to_markdown(whole, limit=limit)
    assert len(text.encode()) <= limit
    assert text.startswith("### pairbench: ")
    assert text.count("<details>") == text.count("</details>")
    left_out = re.search(r"(\d+) of \d+ series are left out", text)
    assert bad + new - text.count("-bad") - text.count("-new") == (int(left_out[1]) if left_out else 0)


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


@pytest.mark.parametrize(("number", "lines"), [(10, 10), (11, 10), (500, 10)])
def test_annotations_stop_where_github_would(number: int, lines: int) -> None:
    found = commands(annotations(comparison(*(change(f"v{place}") for place in range(number)))))
    errors = [message for level, _, message in found if level == "error"]
    assert len(errors) == lines
    assert errors[-1].startswith(f"and {number - 9} more") == (number > 10)


@given(st.text() | st.text("%:,\r\n=;\x1b\u2028 a", max_size=20))
def test_no_name_can_be_another_command(name: str) -> None:
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
def test_only_files_of_the_checkout_are_marked(suite: str) -> None:
    (error, _) = commands(annotations(comparison(change(suite=suite))))
    assert set(error[1]) == {"title"}
