"""Breakdowns in a store: they come back as they were, the newest first, and a broken one does not hide the others."""

from dataclasses import replace
from pathlib import Path

from pairbench.model.breakdown import Breakdown, DeviceWait, Idle, KeptBreakdown, ModuleCalls, SourceLine, WorkTotal
from pairbench.model.plan import Entry
from pairbench.store.documents import read_breakdowns, write_breakdown

PART = Breakdown(
    entry=Entry(implementation="baseline", mode="eager"),
    calls=5,
    modules=(ModuleCalls(name="net", class_name="Net", calls=1),),
    pieces=(
        WorkTotal(module="net", ops=("to", "_to_copy"), kernel="copy", spot=0, count=2, launches=2, ns=12.5),
        WorkTotal(module="", ops=(), kernel=None, known=False, count=1, ns=3.0),
    ),
    spots=(
        SourceLine(
            what="cast",
            op="aten::_to_copy",
            detail="float32 -> bfloat16",
            file="net.py",
            line=3,
            function="f",
            code="x.to(y)",
            modules=("net",),
            count=2,
            bytes=64,
        ),
    ),
    waits=(DeviceWait(name="cudaStreamSynchronize", module="net", ops=("item",), spot=None, count=1),),
    idle=Idle(span_ns=20.0, busy_ns=15.5, starved_ns=4.0, after_sync_ns=0.0),
    whole_ns=15.5,
    notes=("A note.",),
)
KEPT = KeptBreakdown(
    breakdown_id="20260101T000000-aaaaaa",
    made_at="2026-01-01T00:00:00.000+00:00",
    device_name="NVIDIA H200",
    environment_hash="f" * 16,
    versions={"torch": "2.11.0"},
    commit=None,
    suite="suites/net.py",
    operator="net",
    case="net[n=1]",
    parts=(PART, replace(PART, idle=None, waits=(), notes=())),
)


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    path = write_breakdown(tmp_path, KEPT)
    assert path == str(tmp_path / "breakdowns/device=nvidia-h200/20260101T000000-aaaaaa.json")
    assert read_breakdowns(tmp_path) == ((KEPT,), ())
    assert read_breakdowns(tmp_path / "nowhere") == ((), ())


def test_the_newest_is_first_and_a_broken_one_is_named(tmp_path: Path) -> None:
    later = replace(KEPT, breakdown_id="20260102T000000-bbbbbb", made_at="2026-01-02T00:00:00.000+00:00")
    for kept in (KEPT, later):
        write_breakdown(tmp_path, kept)
    (tmp_path / "breakdowns" / "device=nvidia-h200" / "half.json").write_text('{"pairbench": "breakdown 1"')
    found = read_breakdowns(tmp_path)
    assert found.value == (later, KEPT)
    assert len(found.problems) == 1 and "half.json" in found.problems[0]
