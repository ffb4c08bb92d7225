"""Facts of a site made up for tests: what `analyze` gathers from a store, small, and as hostile as a test wants it."""

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pairbench.analyze.history.trend import make_trend
from pairbench.model.breakdown import KernelCount
from pairbench.model.comparison import Attribution, GateOutcome
from pairbench.model.record import Series
from pairbench.model.site import About, Event, Moved, OverviewRow, RunHead, SeriesFacts, SeriesStatus, SiteFacts
from pairbench.site.paths import Contribution, OperatorFacts, RunFacts
from pairbench.site.summary import overview_rows
from pairbench.stats import Interval
from tests import builders

DEVICE = builders.DEVICE
SUITE = builders.SUITE
CASE = builders.CASES[0]
REPOSITORY = "https://example.org/team/kernels"

HOSTILE = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(2)>'",
    "${alert(3)} {{ 7 * 7 }} {% raw %}",
    "../../../etc/passwd\\..\\x\nnewline\ttab",
    "\u202egnp.exe\u2066 \u2028 </script><!-- \x00 \ud800",
    "x" * 10_000,
)
"""Names that some store may hold."""


def head(number: int = 0, **changes: Any) -> RunHead:
    """Return the run that began so many hours after the first."""
    started = (builders.FIRST + dt.timedelta(hours=number)).isoformat(timespec="milliseconds")
    made = RunHead(
        run_id=builders.run_id_of(number),
        started_at=started,
        device_name=DEVICE,
        device_uuids=("GPU-0",),
        hostname="box",
        commit=builders.sha(number),
        commit_at=started,
        branch="main",
        dirty=False,
        confirms=None,
        environment_hash="f" * 16,
        versions={"driver": "580.1", "cuda": "12.8", "torch": "2.11.0", "triton": "3.6.0", "python": "3.12.3"},
        statuses={"measured": 4},
        timers=("cuda_event",),
    )
    return replace(made, **changes)


def row(operator: str = "rms_norm", **changes: Any) -> OverviewRow:
    made = OverviewRow(
        device_name=DEVICE,
        suite=SUITE,
        operator=operator,
        dtype="bfloat16",
        tier="real",
        mode="eager",
        cases=2,
        variant="fused",
        speedup=Interval(2.0123, 1.987, 2.031),
        least=1.8,
        most=2.25,
        latency="device",
        host_bound=(),
        losing=(),
        statuses={"measured": 4},
        margin=0.75,
        launches_before=(6, 6),
        launches_after=(1, 1),
        spark=(1.9, 1.95, None, 2.0, 2.0123),
        state="unchanged",
        newest_run=builders.run_id_of(1),
    )
    return replace(made, **changes)


def series(case: str = CASE, implementation: str = "fused", mode: str = "eager", **changes: Any) -> Series:
    made = Series(device_name=DEVICE, suite=SUITE, case=case, implementation=implementation, mode=mode)
    return replace(made, **changes)


def moved(of: Series | None = None, **changes: Any) -> Moved:
    made = Moved(
        series=of or series(),
        outcome=GateOutcome.REGRESSION,
        change=1.05,
        before_ns=100_000.0,
        after_ns=105_000.0,
        control=1.001,
        attribution=Attribution.CODE,
        reason="it moved and its control did not",
        kernels=("new 1 x copy_kernel (3.100 us)",),
    )
    return replace(made, **changes)


def event(number: int = 1, **changes: Any) -> Event:
    made = Event(
        key=f"event-{number}",
        kind="moved",
        direction="slower",
        device_name=DEVICE,
        before=head(number - 1),
        after=head(number),
        moved=(moved(),),
        era=(),
        outcome=GateOutcome.REGRESSION,
    )
    return replace(made, **changes)


def series_facts(
    of: Series | None = None, *, level: float = 100_000.0, reach: float = 0.01, **changes: Any
) -> SeriesFacts:
    """Return the newest record of a series: measured, at a median latency in ns; `reach` is that of the speedup's interval."""
    of = of or series()
    variant = of.implementation != "baseline"
    numbers = {
        "p50_ns": level,
        "p50_ns_low": 0.99 * level,
        "p50_ns_high": 1.01 * level,
        "p95_ns": 1.1 * level,
        "device_p50_ns": level,
        "call_p50_ns": 1.2 * level,
        "host_p50_ns": 0.5 * level,
        "first_call_ns": 1e9,
        "n_samples": 500,
        "n_rounds": 5,
        **dict.fromkeys(("launches_per_call", "kernels_per_call", "ops_per_call"), 1 if variant else 6),
        "peak_bytes": 2**20,
        "margin": 0.75 if variant else 1.0,
        "flops": 1e9,
        "bytes_moved": 1e8,
        "tflops": 1e9 / level / 1e3,
        "gbps": 1e8 / level,
        "roofline_fraction": 0.4,
        "remeasured_blocks": 0,
    }
    if variant:
        ends = {"speedup": 2e5, "speedup_low": 2e5 * (1 - reach), "speedup_high": 2e5 * (1 + reach)}
        numbers |= {name: value / level for name, value in ends.items()}
    made = SeriesFacts(
        series=of,
        role="variant" if variant else "baseline",
        tier="real",
        dtype="bfloat16",
        axes={"dtype": "bfloat16", "tokens": 1024},
        run_id=builders.run_id_of(0),
        status="measured",
        reason=None,
        gate_status=SeriesStatus(state="unchanged", change=Interval(1.001, 0.995, 1.007), reason="within the band"),
        numbers=numbers,
        texts={
            "timer": "cuda_event",
            "device_timer": "graph_replay",
            "latency": "device",
            "bound": "device",
            "stop_reason": "precise",
            "launch_status": "exact",
        },
        kernels=(KernelCount(name=f"{of.implementation}_kernel", count=1 if variant else 6, total_ns=0.9 * level),),
        quantiles=tuple(level * (0.98 + 0.0004 * part) for part in range(101)),
    )
    return replace(made, **changes)


def failed(of: Series | None = None, status: str = "failed", reason: str = "RuntimeError: out of luck") -> SeriesFacts:
    nothing: dict[str, Any] = {"numbers": {}, "texts": {}, "kernels": None, "quantiles": ()}
    state = SeriesStatus(state="failed", reason=reason)
    return series_facts(of, status=status, reason=reason, gate_status=state, **nothing)


def case_facts(case: str = CASE, **changes: Any) -> tuple[SeriesFacts, ...]:
    """Return the series of a case: its baseline and one variant."""
    return (
        series_facts(series(case, "baseline"), level=200_000.0, **changes),
        series_facts(series(case, "fused"), **changes),
    )


def run(number: int = 0, facts: Sequence[SeriesFacts] | None = None, **changes: Any) -> RunFacts:
    found = tuple(facts) if facts is not None else tuple(one for case in builders.CASES for one in case_facts(case))
    of_run = head(number, statuses=statuses(found))
    made = RunFacts(
        head=of_run,
        environment={
            "torch": "2.11.0",
            "hostname": "box",
            "cores": 16,
            "flags": {"cudnn": {"benchmark": False}, "matmul.allow_tf32": False},
            "observed": {"load": 0.5},
        },
        series=tuple(replace(one, run_id=of_run.run_id, kernels=None, quantiles=()) for one in found),
        broken=(),
        remeasured_blocks=3,
        throttle_reasons={"sw_power_cap": 2},
        stop_reasons={"precise": 3, "time_cap": 1},
    )
    return replace(made, **changes)


def statuses(facts: Sequence[SeriesFacts]) -> Mapping[str, int]:
    return {status: sum(one.status == status for one in facts) for status in dict.fromkeys(one.status for one in facts)}


def operator(runs: int = 12, *, name: str = "rms_norm", slower_from: int = 6, **changes: Any) -> OperatorFacts:
    """Return an operator of two cases whose variant got slower, by 10 %, in one of some hourly runs."""
    cases = tuple(f"{name}[{case.partition('[')[2]}" for case in builders.CASES)
    made_runs = [
        builders.make_run(number, cases=cases, slower={"fused": 1.1} if number >= slower_from else None)
        for number in range(runs)
    ]
    records = [record for records in made_runs for record in records]
    facts = tuple(one for case in cases for one in case_facts(case))
    trends = tuple(
        make_trend([record for record in records if record.case == one.series.case], one.series) for one in facts
    )
    made = OperatorFacts(
        device_name=DEVICE,
        suite=SUITE,
        operator=name,
        about=About(summary="Root mean square norm over the last axis.", source="transformers", path=SUITE, line=12),
        series=facts,
        trends=trends,
        ceilings={"copy_gbps": 4000.0, "float32_tflops": 50.0, "bfloat16_tflops": 800.0},
        contribution=Contribution(rows=overview_rows(zip(facts, trends, strict=True))),
        events=(event(slower_from, moved=(moved(facts[1].series, change=1.1),)),),
    )
    return replace(made, **changes)


def site(runs: int = 3, **changes: Any) -> SiteFacts:
    heads = tuple(head(number) for number in reversed(range(runs)))
    losing = row("silu", state="regression", speedup=Interval(0.91, 0.9, 0.92), losing=(CASE,))
    made = replace(empty(), repository=REPOSITORY, runs=heads, rows=(row(), losing), events=(event(2), event(1)))
    return replace(made, **changes)


def empty() -> SiteFacts:
    """Return a site of a store that holds nothing."""
    return SiteFacts(store="results", repository=None, runs=(), rows=(), events=(), problems=())


def only_failures() -> SiteFacts:
    """Return a site of a store in which nothing could be measured."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("variant", "speedup", "least", "most", "margin", "launches_before", "launches_after")
    )
    bad = row(**nothing, statuses={"failed": 2}, state="failed", spark=())
    return replace(empty(), runs=(head(0, statuses={"failed": 2}, timers=()),), rows=(bad,))


def hostile(name: str) -> SiteFacts:
    """Return a site in which everything that has a name has this one."""
    of = series(f"{name}[n=1]", name, name, device_name=name, suite=name)
    runs = tuple(
        head(
            number, device_name=name, hostname=name, branch=name, commit=name, versions={"driver": name}, timers=(name,)
        )
        for number in (1, 0)
    )
    return SiteFacts(
        store=name,
        repository=name,
        runs=runs,
        rows=(row(name, device_name=name, suite=name, dtype=name, variant=name, losing=(of.case,), spark=(math.nan, 1.0)),),
        events=(
            event(
                1, device_name=name, before=runs[1], after=runs[0], era=(f"driver {name} -> {name}",),
                moved=(moved(of, reason=name, kernels=(name,), accepted=name), moved(of, reason=name, kernels=(name,))),
            ),
        ),
        problems=(name,),
    )  # fmt: skip


def hostile_run(name: str) -> RunFacts:
    """Return the older run of that site, in which one series of two failed for a reason that is hostile, too."""
    of = series(f"{name}[n=1]", name, name, device_name=name, suite=name)
    made = run(0, [series_facts(of, texts={"timer": name}), failed(of, reason=name)])
    return replace(
        made,
        head=replace(hostile(name).runs[1], statuses=made.head.statuses),
        environment={name: {name: name}, "other": name},
        broken=((name, name),),
        throttle_reasons={name: 1},
        stop_reasons={name: 1},
    )
