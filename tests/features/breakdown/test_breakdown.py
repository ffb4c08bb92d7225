"""Breakdowns as text: shares that add up, what was found by line, and no word that sells a profiled time as a latency."""

import json
from dataclasses import replace

from pairbench.features.breakdown.breakdown import PROFILED, line_rows, render_breakdown, sentences, tree_rows
from pairbench.model.breakdown import (
    Breakdown,
    CaseBreakdown,
    DeviceWait,
    Idle,
    ModuleCalls,
    NoBreakdown,
    SourceLine,
    WorkTotal,
)
from pairbench.model.case import Case
from pairbench.model.environment import Device
from pairbench.model.plan import Entry
from tests.builders import described

BASELINE = Entry(implementation="baseline", mode="eager")
FUSED = Entry(implementation="fused", mode="graph")
OPERATOR = described(suite="suites/net.py", path="/somewhere/net.py", name="net", implementations=())
CAST = SourceLine(
    what="cast",
    op="aten::_to_copy",
    detail="float32 -> bfloat16",
    file="net.py",
    line=7,
    function="Norm.forward",
    code="return y.to(x.dtype) # | a pipe",
    modules=tuple(f"net.blocks.{place}.norm" for place in range(30)),
    count=30,
    bytes=3 * 2**20,
)
READ = replace(
    CAST, what="sync", op="aten::_local_scalar_dense", detail="", line=9, code="n.item()", modules=("",), bytes=0
)


def piece(ns: float, module: str = "", ops: tuple[str, ...] = ("mul",), spot: int | None = None) -> WorkTotal:
    return WorkTotal(module=module, ops=ops, kernel="k" * 100, spot=spot, count=2, launches=2, ns=ns)


PART = Breakdown(
    entry=BASELINE,
    calls=5,
    modules=tuple(ModuleCalls(name=name, class_name="Block", calls=1) for name in ("net.blocks.0", "net.blocks.1")),
    pieces=(
        piece(30_000.0, "net.blocks.0", ("mm",)),
        piece(60_000.0, "net.blocks.1", ("mm",)),
        piece(10_000.0, ops=("to", "_to_copy"), spot=0),
    ),
    spots=(CAST, READ),
    waits=(DeviceWait(name="cudaStreamSynchronize", module="", ops=("item",), spot=1, count=30),),
    idle=Idle(span_ns=200_000.0, busy_ns=100_000.0, starved_ns=50_000.0, after_sync_ns=20_000.0),
    whole_ns=100_000.0,
)


def case(*parts: Breakdown | NoBreakdown) -> CaseBreakdown:
    return CaseBreakdown(
        operator=OPERATOR,
        case=Case(operator="net", axes=(("dtype", "bfloat16"),), tier="real"),
        device=Device(selector="cuda:0", kind="cuda", name="NVIDIA H200"),
        parts=parts,
    )


def test_the_tree_says_shares_of_the_whole() -> None:
    rows = tree_rows(PART)
    assert [(row["module"], row["calls"], row["share_%"], row["kernels"], row["mostly"]) for row in rows] == [
        ("the whole call", 1, 100.0, 6, "matmul 90%, copy 10%"),
        ("· net.blocks.0-1", 2, 90.0, 4, "matmul 100%"),
    ]
    assert [row["module"] for row in tree_rows(PART, expand=True)] == [
        *("the whole call", "· net.blocks", "· · 0", "· · 1"),
    ]


def test_lines_are_named_with_what_they_cost() -> None:
    wait, cast = line_rows(PART)
    assert wait["what"] == "sync" and wait["line"] == "net.py:9" and wait["share_%"] is None
    assert cast == {
        "what": "cast",
        "from_to": "float32 -> bfloat16",
        "line": "net.py:7",
        "code": CAST.code,
        "module": "net.blocks.*.norm",
        "count": 30,
        "bytes": "3.000 MiB",
        "share_%": 10.0,
    }


def test_idle_time_is_told_as_an_upper_limit() -> None:
    said = " ".join(sentences(PART))
    assert "Launch-bound: 25% of the time" in said and "(10% after a wait for the device)" in said
    assert "an upper limit" in said and "The parts add up to 100%" in said and "quickest of 5" in said


def test_doubts_are_told() -> None:
    said = " ".join(sentences(replace(PART, whole_ns=50_000.0, notes=("Something odd.",))))
    assert "200% of the time that the device was busy; more means that kernels ran side by side" in said
    assert said.endswith("Something odd.")
    unknown = replace(PART, pieces=(*PART.pieces, replace(piece(100_000.0), ops=(), known=False)))
    assert "Of 50% it is not known which module launched it." in sentences(unknown)
    nobody = DeviceWait(name="cudaDeviceSynchronize", module="", ops=(), spot=None, count=2)
    assert "2 waits for the device in the trace belong to no line that is known." in sentences(
        replace(PART, waits=(nobody,))
    )


def test_every_format_has_every_part() -> None:
    failed = NoBreakdown(entry=FUSED, reason="cannot be captured as a CUDA graph: [item]", bad=False)
    found = case(PART, failed)
    for output in ("table", "markdown"):
        text = render_breakdown(found, output)
        assert "NVIDIA H200" in text and "cannot be captured" in text and "kinds of work" in text
        assert "net.py:7" in text and "cast" in text and "latency" in text
    assert r"\| a pipe" in render_breakdown(found, "markdown")
    document = json.loads(render_breakdown(found, "json"))["breakdown"]
    assert document["case"] == "net[dtype=bfloat16]" and document["note"] == PROFILED
    first, second = document["implementations"]
    assert first["idle"]["starved_ns"] == 50_000 and first["modules"]["children"][0]["ns"] == 90_000
    assert first["lines"][1]["spot"]["line"] == 7 and second == {
        "implementation": "fused",
        "mode": "graph",
        "reason": failed.reason,
    }
    assert "/somewhere" not in json.dumps(document)


def test_several_are_put_side_by_side() -> None:
    faster = replace(PART, entry=FUSED, pieces=(piece(40_000.0, ops=("mm",)),))
    text = render_breakdown(case(PART, faster), "table")
    side = text[text.index("side by side, in us") :].split("\n")
    (product,) = [line.split() for line in side if line.strip().startswith("matmul")]
    assert product == ["matmul", "90", "40"]
    (total,) = [line.split() for line in side if line.strip().startswith("sum")]
    assert total == ["sum", "100", "40"]
    assert "side by side, in us" not in render_breakdown(case(PART), "table")
