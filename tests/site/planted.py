"""A store whose history is known: 40 runs on one device and 20 on another, with every kind of event planted in it."""

import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pairbench.model.record import Record
from tests.builders import ended, make_run, write_runs
from tests.site.stores import accept, whole

H200, H100 = "NVIDIA H200", "NVIDIA H100"
RUNS = 40
LATE, BACK = 12, 22
"""The run from which silu is 10 % slower on the H200, and that from which it is not any more."""
DRIVER, BESIDE = 15, 20
"""The run with another driver, which makes all 2 % faster, and that from which conv is 5 % slower: five runs later."""
BROKEN, MENDED = 17, 18
"""The run in which gelu fails on the H200, and that in which it works again."""
ACCEPTED = 24
"""The run from which softmax is 8 % slower on the H200, which was accepted."""
MORE = 30
"""The run from which rms_norm launches three kernels instead of one, on both devices, and takes no longer."""
OPS, FEWER = 8, 14
"""The run from which conv dispatches more operators on the H200, and that from which it dispatches as few as before."""
OPERATORS = ("conv", "gelu", "rms_norm", "silu", "softmax")
AXIS = (64, 4096)


def case(operator: str, tokens: int = AXIS[0]) -> str:
    return f"{operator}[dtype=bfloat16,tokens={tokens}]"


CASES = tuple(case(operator, tokens) for operator in OPERATORS for tokens in AXIS)
SUITE = "suites/norm.py"


def run_number(day: int, device: str = H200) -> int:
    return 24 * day + (device == H100)


OWNER, AUTHOR = "@team/convolutions", "Ada Ä."
COMMITS = 3
"""Number of commits between two runs of a device whose runs follow each other day by day."""


def planted(store: Path) -> None:
    """Write the store, and beside it the suite's file, which says who looks after conv."""
    suite = store.parent / SUITE
    suite.parent.mkdir(exist_ok=True)
    suite.write_text(f'OWNER = "{OWNER}"\nconv = Operator("conv", baseline=plain, owner=OWNER)\n', encoding="utf-8")
    for day in range(RUNS):
        write_runs(store, made(day, H200))
        if day % 2 == 0:
            write_runs(store, made(day, H100))
    accept(store, made(ACCEPTED, H200), case("softmax"), "exact where the maximum is infinite")


def made(day: int, device: str) -> Sequence[Record]:
    here = device == H200
    slower = {f"{case('silu')}-fused": 1.1} if here and LATE <= day < BACK else {}
    slower |= {f"{case('conv', tokens)}-fused": 1.05 for tokens in AXIS} if here and day >= BESIDE else {}
    slower |= {f"{case('softmax')}-fused": 1.08} if here and day >= ACCEPTED else {}
    newer = here and day >= DRIVER
    records = make_run(run_number(day, device), cases=CASES, slower=slower, device_name=device)
    if not here:  # the same commit, an hour later on the other machine
        commit = make_run(run_number(day), cases=CASES[:1])[0]
        records = tuple(replace(one, commit=commit.commit, commit_at=commit.commit_at, hostname="b") for one in records)
    # The runs of one day have something in common, which the control shares.
    common = random.Random(f"{day} {device}").gauss(1, 0.001) * (0.98 if newer else 1.0) * (1 if here else 1.6)
    scaled = whole(_scaled(one, common, newer=newer) for one in records)
    return [_of_commit(_changed(one, day, here), day) for one in scaled]


def _of_commit(record: Record, day: int) -> Record:
    return replace(
        record,
        commit_subject=f"Change number {day} (#{1000 + day})",
        commit_author=AUTHOR,
        commit_number=100 + COMMITS * day,
        pull_request=1000 + day,
    )


def _scaled(record: Record, factor: float, *, newer: bool) -> Record:
    columns = [name for name in vars(record) if name.startswith("call_p") and getattr(record, name) is not None]
    changes = {name: getattr(record, name) * factor for name in columns}
    changes |= {
        name: tuple(factor * value for value in getattr(record, name)) for name in ("round_p50_ns", "round_p95_ns")
    }
    if newer:
        changes |= {"driver": "580.2", "environment_hash": "e" * 16}
    return replace(record, **changes)


def _changed(record: Record, day: int, here: bool) -> Record:
    if record.implementation == "baseline":
        return record
    operator, first = str(record.operator), record.case == case(str(record.operator))
    if operator == "rms_norm" and first and day >= MORE:
        return replace(record, launches_per_call=3, kernels_per_call=3)
    if operator == "conv" and first and here and OPS <= day < FEWER:
        return replace(record, ops_per_call=4)
    if operator == "gelu" and first and here and day == BROKEN:
        return ended(record, "failed", "died of SIGSEGV in round 2")
    return record


FAMILIES = ("attention", "conv", "decode", "gemm", "loss", "moe", "norm", "optimizer", "rope", "vae")


def many(store: Path) -> None:
    """Write a store of 300 operators of ten families, one of which is far faster than all others, and a suite of self-tests."""
    records: list[Record] = []
    for number in range(300):
        name = f"operator_{number:03}"
        factor = 1 / 3_000 if number == 7 else 2.0 ** ((number % 60) / 12 - 3.5)
        made = whole(make_run(0, cases=[case(name)], slower={"fused": factor}))
        suite = "selftest/planted.py" if number % 100 == 99 else f"suites/{FAMILIES[number % 10]}/{name}.py"
        tier = "headline" if number % 3 else "real"
        records += [replace(record, suite=suite, tier=tier) for record in made]
    write_runs(store, records)


SIZES = (16, 64, 256, 1024, 4096)
CROSSES = 128
"""The number of tokens at which the variant of `scaling` is as fast as the baseline, near enough."""


def scaling(store: Path) -> None:
    """Write a store of an operator whose variant loses where there are few tokens, and of which another one is skipped at times."""
    records: list[Record] = []
    for tokens in SIZES:
        factors = {
            "baseline": (tokens / 1000) ** 0.5,
            "fused": 2 * (tokens / 1000) ** 0.5 / (tokens / CROSSES) ** 0.5,
            "naive": 4 * (tokens / 1000) ** 0.5,
        }
        made = whole(
            make_run(0, cases=[case("scan", tokens)], implementations=("baseline", "fused", "naive"), slower=factors)
        )
        made = [replace(one, axes=f'{{"dtype": "bfloat16", "tokens": {tokens}}}') for one in made]
        tier = "headline" if tokens == SIZES[-1] else "real"
        records += [
            ended(one, "skipped", "needs 64 tokens") if (one.implementation, tokens) == ("naive", SIZES[0]) else one
            for one in (replace(one, tier=tier) for one in made)
        ]
    write_runs(store, records)


def two_dtypes(store: Path) -> None:
    """Write a store of an operator in two dtypes, each with a roof of its own."""
    cases = [f"scan[dtype={dtype},tokens={tokens}]" for dtype in ("bfloat16", "float32") for tokens in AXIS]
    write_runs(store, whole(make_run(0, cases=cases, implementations=("baseline", "fused", "naive"))))


LONG, SHORT = 400, 100
"""Number of runs of `long` on the H200 and on the H100: 500 in all."""
STEPPED, SLOWED, TAKEN_BACK, CRASHED = 120, 250, 320, 381
"""The runs of `long` from which rms_norm launches more on both devices, silu is 6 % slower on the H200, silu is as fast as before,
and the one in which silu crashes on the H200."""


def long(store: Path) -> None:
    """Write a store of 500 runs on two devices, in which little has happened: one step is still there, and two events have ended."""
    cases = [case("rms_norm"), case("silu")]
    for day in range(LONG):
        for device in (H200, H100) if day % (LONG // SHORT) == 0 else (H200,):
            here = device == H200
            slower = {f"{case('silu')}-fused": 1.06} if here and SLOWED <= day < TAKEN_BACK else {}
            records = make_run(run_number(day, device), cases=cases, slower=slower, device_name=device)
            commit = make_run(run_number(day), cases=cases[:1])[0]
            # By itself, for whoever writes a run lists those that are there, and then among the others.
            alone = store.parent / "alone"
            write_runs(
                alone,
                [
                    _of_long(replace(one, commit=commit.commit, commit_at=commit.commit_at), day, here)
                    for one in whole(records)
                ],
            )
            shutil.copytree(alone, store, dirs_exist_ok=True, copy_function=shutil.move)
            shutil.rmtree(alone)


def _of_long(record: Record, day: int, here: bool) -> Record:
    if record.implementation == "baseline":
        return record
    if record.operator == "rms_norm" and day >= STEPPED:
        return replace(record, launches_per_call=3, kernels_per_call=3)
    if record.operator == "silu" and here and day == CRASHED:
        return ended(record, "failed", "died of SIGSEGV in round 2")
    return record
