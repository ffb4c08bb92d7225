"""Stores that the sites under test are made from: one in which much happens, the small ones, and a hostile one."""

import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from pairbench.analyze.compare.exact import acceptance_of
from pairbench.model.breakdown import KernelCount
from pairbench.model.record import Record, Samples, Series
from pairbench.store.documents import write_document
from pairbench.store.writer import write_run
from tests.breakdowns_made import kept
from tests.builders import DEVICE, FIRST, SUITE, ended, make_run, make_samples, write_runs

OLDER = "NVIDIA A100"
RMS = ("rms_norm[dtype=bfloat16,tokens=1024]", "rms_norm[dtype=bfloat16,tokens=4096]")
SILU = "silu[dtype=float32,n=65536]"
GONE = "gelu[dtype=float32,n=65536]"
IMPLEMENTATIONS = ("baseline", "fused", "naive")
RUNS = 30
STEP, DRIVER = 15, 20
"""The run from which one variant is slower, and that from which the driver is another."""
CEILINGS = {"copy_gbps": 4000.0, "float32_tflops": 60.0, "bfloat16_tflops": 800.0}
REPOSITORY = "https://example.org/team/kernels"

SCRIPT = "window.pwned=1"
HOSTILE = (
    f"<script>{SCRIPT}</script>",
    f'"><img src=x onerror="{SCRIPT}">',
    f"'><svg/onload={SCRIPT}>",
    f"</script><script>{SCRIPT}</script><!--",
    f"</title></textarea></style><iframe srcdoc='<script>parent.{SCRIPT}</script>'>",
    f"javascript:{SCRIPT}",
    f"${{{SCRIPT}}} {{{{ {SCRIPT} }}}} {{% raw %}} `{SCRIPT}`",
    f"';{SCRIPT};//\\' & \" \\u003cscript\\u003e",
    f'<a href="javascript:{SCRIPT}">x</a><b onclick={SCRIPT}>%s %n',
    "../../../../outside/x.html",
    "..\\..\\outside\\x & 'y' \"z\"",
    "/etc/passwd\nsecond line\ttab\rreturn\u2028separator",
    "\u202etxt.exe\u2066 \u200b\u0007\u001b]0;x",
    "x" * 10_000,
    "<" * 4_000 + f"script>{SCRIPT}" + '"' * 4_000,
)
"""What a name may hold."""
_ON_DEVICE = 0.91
"""The part of a call's latency that the device needs."""


def eventful(store: Path) -> None:
    """Write a store in which every kind of thing has happened that a page shows."""
    for day in range(RUNS):
        slower = {"naive": 3.0}
        slower |= {f"{RMS[0]}-fused": 1.1} if day >= STEP else {}
        slower |= {f"{SILU}-fused": 1.3} if day == RUNS - 1 else {}
        records = make_run(24 * day, cases=(*RMS, SILU), implementations=IMPLEMENTATIONS, slower=slower)
        if day >= DRIVER:
            records = tuple(replace(record, driver="580.2", environment_hash="e" * 16) for record in records)
        if day == RUNS - 1:
            failed = make_run(24 * day, cases=[GONE], implementations=("baseline", "fused"))
            records += (failed[0], ended(failed[1], "failed", "died of SIGSEGV in round 2"))
        _write(store, whole(records), samples=day == RUNS - 1)
    for day in range(3):
        older = make_run(24 * day + 1, cases=RMS, implementations=IMPLEMENTATIONS, slower={"naive": 0.9})
        records = tuple(replace(record, device_name=OLDER, branch="topic") for record in older)
        _write(store, whole(_asked_otherwise(records) if day == 2 else records))
    write_document(store, kept("rms_norm", device=DEVICE, suite=SUITE))


def _asked_otherwise(records: Sequence[Record]) -> Iterator[Record]:
    """Yield records without the last, and with one of another definition: what comparing runs has names for."""
    for record in records[:-1]:
        other = (record.case, record.implementation) == (RMS[0], "fused")
        yield replace(record, definition_hash="other") if other else record


def accept_step(store: Path) -> None:
    """Accept the level that one variant of `eventful` has had since its step."""
    records = whole(make_run(24 * STEP, cases=RMS, implementations=IMPLEMENTATIONS, slower={f"{RMS[0]}-fused": 1.1}))
    accept(store, records, RMS[0], "needs less memory")


def accept(store: Path, records: Iterable[Record], case: str, reason: str) -> None:
    """Accept the level of the variant `fused` in a run."""
    record = next(one for one in records if (one.case, one.implementation) == (case, "fused"))
    series = Series.of(record)
    assert series is not None
    write_document(store, acceptance_of(series, [record], run_id=record.run_id, at=record.started_at, reason=reason))


def single(store: Path) -> None:
    _write(store, whole(make_run(0)), samples=True)


def failures(store: Path) -> None:
    for day in range(2):
        _write(store, [_never_ran(record) for record in make_run(24 * day)])


def _never_ran(record: Record) -> Record:
    counts = [name for name in vars(record) if name.endswith("_per_call") or "error" in name]
    changes: dict[str, Any] = dict.fromkeys([*counts, "kernels", "margin", "peak_bytes", "launch_status"])
    return replace(ended(record, "failed", "no kernel image is available"), **changes)


def hostile(store: Path) -> None:
    """Write a store in which everything that comes from outside is hostile, with a step so that there is an event."""
    for day in range(12):
        slower = {"fused": 1.2} if day >= 8 else {}
        for device, name in enumerate((DEVICE, HOSTILE[1])):
            found: list[Record] = []
            for place, text in enumerate(HOSTILE):
                records = make_run(24 * day + device, cases=[f"{text}[n=1]"], slower=slower)
                found += [_hostile(record, text, HOSTILE[(place + 1) % len(HOSTILE)], name) for record in records]
            _write(store, found, slug=f"device-{device}", samples=day == 11)
    for number, text in enumerate(HOSTILE, start=1):
        write_document(store, kept(text, number, device=HOSTILE[1], suite=text))


def _hostile(record: Record, text: str, other: str, device_name: str) -> Record:
    changes: dict[str, Any] = dict.fromkeys(("branch", "hostname", "cpu", "cudnn", "torch", "device_uuid"), other)
    record = replace(
        record,
        **changes,
        device_name=device_name,
        suite=text,
        operator=text,
        axes=json.dumps({text: other}),
        dtype=text,
        implementation=record.implementation if record.role == "baseline" else other,
        reason=other,
        environment=json.dumps({text: {other: text}, "observed": {"ceilings": CEILINGS}}),
        kernels=(KernelCount(name=text, count=1, total_ns=9e4), KernelCount(name=other, count=2, total_ns=1e4)),
        stop_reason=text,
        throttle_reasons=other,
    )
    return ended(record, "failed", text) if record.role == "variant" and len(text) > 5_000 else record


def whole(records: Iterable[Record]) -> list[Record]:
    """Return records with what the builders leave out and the charts show."""
    return [_filled(record) for record in records]


def _filled(record: Record) -> Record:
    axes = dict(re.findall(r"(\w+)=(\w+)", record.case or ""))
    size = float(axes.get("tokens") or axes.get("n") or 1) * 2**14
    environment = {"flags": {"matmul.allow_tf32": False}, "observed": {"ceilings": CEILINGS}}
    record = replace(record, axes=json.dumps(axes), dtype=axes["dtype"], environment=json.dumps(environment))
    if record.call_p50_ns is None:
        return record
    device = _ON_DEVICE * record.call_p50_ns
    return replace(
        record,
        speedup_low=record.speedup and 0.99 * record.speedup,
        speedup_high=record.speedup and 1.01 * record.speedup,
        device_timer="graph_replay",
        device_p50_ns=device,
        device_p50_ns_low=record.call_p50_ns_low and _ON_DEVICE * record.call_p50_ns_low,
        device_p50_ns_high=record.call_p50_ns_high and _ON_DEVICE * record.call_p50_ns_high,
        device_p95_ns=1.02 * device,
        device_round_p50_ns=tuple(_ON_DEVICE * value for value in record.round_p50_ns or ()),
        device_round_p95_ns=tuple(_ON_DEVICE * value for value in record.round_p95_ns or ()),
        device_speedup=record.speedup,
        device_speedup_low=record.speedup and 0.99 * record.speedup,
        device_speedup_high=record.speedup and 1.01 * record.speedup,
        bound="device",
        host_p50_ns=5_000.0,
        bytes_moved=size,
        flops=4 * size,
        gbps=size / device,
        tflops=4 * size / device / 1e3,
        roofline_fraction=min(1.0, size / CEILINGS["copy_gbps"] / device),
    )


def _write(store: Path, records: Sequence[Record], *, slug: str = "", samples: bool = False) -> None:
    if not samples and not slug:
        write_runs(store, records)
        return
    slug = slug or records[0].device_name.lower().replace(" ", "-")
    raw = [one for record in records if samples for one in _samples(record)]
    with mock.patch("os.fsync"):
        write_run(
            store, run_id=records[0].run_id, device_slug=slug, month=f"{FIRST:%Y-%m}", records=records, samples=raw
        )


def _samples(record: Record) -> Iterator[Samples]:
    rng = random.Random(record.implementation)
    for number, p50 in enumerate(record.round_p50_ns or ()):
        calls = tuple(p50 * rng.lognormvariate(0, 0.01) for _ in range(50))
        device = tuple(_ON_DEVICE * value for value in calls)
        told = {"timer": record.timer, "stop_reason": record.stop_reason}
        yield make_samples(record, calls, round=number, host_ns=None, device_ns=device, **told)
