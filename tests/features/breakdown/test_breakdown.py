import json
from dataclasses import replace
from pathlib import Path

import pytest

from pairbench.features.breakdown.breakdown import PROFILED, render_breakdown, sentences, tree_rows
from pairbench.model.breakdown import Breakdown, CaseBreakdown, DeviceWait, Idle, ModuleCalls, NotInspected, WorkTotal
from pairbench.model.case import Case
from pairbench.model.environment import Device
from pairbench.model.plan import Entry
from tests.breakdowns_made import kept
from tests.builders import described
from tests.golden import assert_golden

BASELINE = Entry(implementation="baseline", mode="eager")
FUSED = Entry(implementation="fused", mode="graph")
OPERATOR = described(suite="suites/net.py", path="/somewhere/net.py", name="net", implementations=())
CAST = replace(
    kept("net").parts[0].spots[0],
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


def case(*parts: Breakdown | NotInspected) -> CaseBreakdown:
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
        *("the whole call", "· net.blocks", "· · 0", "· · 1")
    ]


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


def test_every_format_has_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    failed = NotInspected(entry=FUSED, reason="cannot be captured as a CUDA graph: [item]", bad=False)
    found = case(PART, failed)
    faster = replace(PART, entry=FUSED, pieces=(piece(40_000.0, ops=("mm",)),))
    for output in ("table", "markdown"):
        page = render_breakdown(case(PART, faster, failed), output)
        assert_golden(Path(__file__).parent / "golden" / f"breakdown.{output}.txt", page)
    assert "side by side, in us" not in render_breakdown(case(PART), "table")
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
