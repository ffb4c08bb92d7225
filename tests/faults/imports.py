"""Files of other tools with anything in any place: imported as far as they make sense, or refused in a sentence; others go on."""

import copy
import json
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pairbench.features.exchange.importing import NOT_IMPORTED, import_runs
from pairbench.features.exchange.pytest_benchmark import KEY, ROUND_SIZES, extra_info_of, machine_info_of, run_info_of
from pairbench.store.reader import read_run, read_samples
from tests.builders import ended, make_run
from tests.faults.seen import Seen
from tests.in_process import call_main

DATA = Path(__file__).parents[1] / "features" / "exchange" / "data"
_ASV = next((DATA / "asv" / "box").glob("68433e35-*"))

JUNK: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.sampled_from([1e15, 1e300, -1e300, 5e-324, 10**400, 2**63, -(2**63) - 1])
    | st.text(max_size=8)
    | st.sampled_from(["", "x", "a[b]::c", "\ud800", "\x1b]0;x\x07", "::error::x", "../../x", "x" * 300])
    | st.sampled_from(["2026-11-21T00:00", "0001-01-01", "9999-12-31T23:59:59+14:00", f"20240101T000000-{'a' * 16}"])
    | st.lists(st.none() | st.integers() | st.floats() | st.text(max_size=3), max_size=3)
    | st.dictionaries(st.text(max_size=4), st.none() | st.integers() | st.text(max_size=3), max_size=2)
    | st.just([[]])
    | st.just({"suite": 7})
)


def benchmark_document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DATA / "pytest-benchmark-5.3.1.json").read_text())
    record = make_run(rounds=2)[1]
    document["machine_info"][KEY] = machine_info_of(record)
    document["benchmarks"] = document["benchmarks"][:4]
    for benchmark in document["benchmarks"]:
        benchmark["stats"]["data"] = benchmark["stats"].get("data", [])[:4]
    document["benchmarks"][0]["extra_info"] = extra_info_of(record) | {ROUND_SIZES: [2, 2]}
    document[KEY] = {"run": run_info_of(record), "not_measured": [extra_info_of(ended(record, "failed"))]}
    return document


def asv_document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_ASV.read_text())
    return document


BENCHMARKS: dict[str, Any] = json.loads((DATA / "asv" / "benchmarks.json").read_text())


# Settings of hypothesis under which it tries something new each time, however long that takes.
fuzzing = partial(settings, database=None, deadline=None, suppress_health_check=list(HealthCheck))


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place of a document as its holder and its key there."""
    keys: Any = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in list(keys):
        yield node, key
        yield from places(node[key])


@st.composite
def damaged(draw: st.DrawFn, document: dict[str, Any]) -> dict[str, Any]:
    """Return a document of which some places hold something else, or nothing, or their neighbour twice."""
    broken = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        known = list(places(broken))
        if not known:  # nothing is left
            break
        holder, key = known[draw(st.integers(0, len(known) - 1))]
        match draw(st.sampled_from(["junk", "junk", "junk", "gone", "twice"])):
            case "gone":
                del holder[key]
            case "twice" if isinstance(holder, list):
                holder.insert(0, copy.deepcopy(holder[key]))
            case _:
                holder[key] = copy.deepcopy(draw(JUNK))
    return broken


def import_fuzzed(examples: int, *, shown_each: int = 50) -> Seen:
    """Import so many damaged files, each beside a good one, and show some of what came of it."""
    found = Seen()

    @fuzzing(max_examples=examples // 2, phases=[Phase.generate, Phase.shrink])
    @given(st.data())
    def each(tool: str, data: st.DataObject) -> None:
        good = benchmark_document() if tool == "pytest-benchmark" else asv_document()
        bad = data.draw(damaged(good))
        if tool == "pytest-benchmark":
            good[KEY]["run"]["run_id"] = "20240102T000000-900d00"
        benchmarks = data.draw(st.just(BENCHMARKS) | damaged(BENCHMARKS)) if tool == "asv" else {}
        pairing = data.draw(st.sampled_from(["", "way:plain"]))
        with tempfile.TemporaryDirectory() as folder:
            _one(found, Path(folder), tool, good, bad, benchmarks, pairing, shown_each)

    # What a power failure leaves is no question here, and waiting for the disk would be most of the time.
    with mock.patch("os.fsync"):
        for tool in ("pytest-benchmark", "asv"):
            each(tool)
    return found


def _one(
    found: Seen,
    folder: Path,
    tool: str,
    good: dict[str, Any],
    bad: dict[str, Any],
    benchmarks: dict[str, Any],
    pairing: str,
    shown_each: int,
) -> None:
    found.counts["files"] += 1
    paths = _write(folder, tool, good, bad, benchmarks)
    rows = import_runs(str(folder / "results"), tool, paths, when="measured", implementation=pairing)
    for row in rows:
        found.counts[row["outcome"]] += 1
        if row["outcome"] == NOT_IMPORTED:
            reason = row["reason"]
            assert any(words in reason for words in ("expected", "cannot", "holds no")), reason
            assert "Traceback" not in reason
    if benchmarks in ({}, BENCHMARKS):
        assert any("good" in row["source"] and row["outcome"] != NOT_IMPORTED for row in rows), rows
    taken = {row["run_id"] for row in rows if row["run_id"]}
    for run_id in taken:
        records = read_run(folder / "results", run_id)
        samples = read_samples(folder / "results", run_id)
        assert records.value and not records.problems and not samples.problems, (records.problems, samples.problems)
    if taken and found.counts["files"] % shown_each == 0:
        found.counts["stores shown"] += 1
        for command in (("show", "--runs"), ("show",), ("compare",), ("dashboard", "-o", "site"), ("export", "csv")):
            said = call_main(folder, *command)
            assert "Traceback" not in said.err, said.err


def _write(
    folder: Path, tool: str, good: dict[str, Any], bad: dict[str, Any], benchmarks: dict[str, Any]
) -> tuple[str, ...]:
    if tool == "pytest-benchmark":
        for name, document in (("bad", bad), ("good", good)):
            (folder / f"{name}.json").write_text(json.dumps(document))
        return str(folder / "bad.json"), str(folder / "good.json")
    machine = folder / "asv" / "box"
    machine.mkdir(parents=True)
    (machine / "machine.json").write_text("{}")
    (folder / "asv" / "benchmarks.json").write_text(json.dumps(benchmarks))
    (machine / "bad.json").write_text(json.dumps(bad))
    (machine / "good.json").write_text(json.dumps(good))
    return (str(folder / "asv"),)
