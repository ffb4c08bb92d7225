"""Breakdowns as tests want them in a store."""

from dataclasses import replace

from pairbench.model.breakdown import Breakdown, Idle, KeptBreakdown, ModuleCalls, SourceLine, WorkTotal
from pairbench.model.plan import Entry


def kept(
    name: str = "net", number: int = 1, *, device: str = "NVIDIA H200", suite: str = "suites/norm.py"
) -> KeptBreakdown:
    """Return a case's breakdowns in which every text of a suite's is `name`."""
    spot = SourceLine(
        what="cast",
        op="aten::_to_copy",
        detail="float32 -> bfloat16",
        file=f"{name}.py",
        line=3,
        function=name,
        code=name,
        modules=(name,),
        count=2,
        bytes=2048,
    )
    part = Breakdown(
        entry=Entry(implementation="baseline", mode="eager"),
        calls=5,
        modules=(ModuleCalls(name=name, class_name=name, calls=1),),
        pieces=(
            WorkTotal(module=name, ops=("mm",), kernel=name, count=3, launches=3, ns=30_000.0),
            WorkTotal(module=name, ops=("to",), kernel="cast", spot=0, count=1, launches=1, ns=10_000.0),
        ),
        spots=(spot,),
        idle=Idle(span_ns=80_000.0, busy_ns=40_000.0, starved_ns=20_000.0, after_sync_ns=0.0),
        whole_ns=40_000.0,
    )
    return KeptBreakdown(
        breakdown_id=f"202601{number:02}T000000-aaaaaa",
        made_at=f"2026-01-{number:02}T00:00:00.000+00:00",
        device_name=device,
        environment_hash="f" * 16,
        versions={"torch": "2.11.0"},
        commit="0" * 40,
        suite=suite,
        operator=name,
        case=f"{name}[n=1]",
        parts=(part, replace(part, entry=Entry(implementation="fused", mode="graph"))),
    )
