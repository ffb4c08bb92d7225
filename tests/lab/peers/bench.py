"""Put tables of other packages' kernels into docs/measurements/peers.md: which is the fastest where, and whose results are refused.

pairbench results suites/peers --store results/reference --tier real --format json --output build/peers.json
python -m tests.lab.peers.bench build/peers.json
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pairbench.report.units import duration, ratio
from tests.lab.page import Rows, show, write

PAGE = Path(__file__).parents[3] / "docs" / "measurements" / "peers.md"
PACKAGES = {
    "plain": ("baseline",),
    "PyTorch": ("builtin", "by_halves", "recomputed", "checkpointed", "cudnn"),
    "ours": ("triton",),
    "Liger": ("liger", "liger_float32"),
    "FlagGems": ("flag_gems",),
    "FLA": ("fla",),
    "quack": ("quack",),
    "cut-cross-entropy": ("cut_cross_entropy", "cut_cross_entropy_unfiltered"),
    "xFormers": ("xformers",),
    "FlashAttention": ("fa3", "flash_attn_4"),
}
"""Columns of the first table, with the names that their implementations have in the suites."""
FACTS = ("fastest", "faster than PyTorch", "slower than PyTorch", "more memory than PyTorch", "wrong", "failed")

Found = dict[str, dict[str, Any]]
"""The results of one case by implementation."""


def cases_in(document: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, Found]]:
    """Yield each case in which a latency was taken or a result refused: its operator, its label, and its results."""
    for operator in document["results"]:
        for case in operator["cases"]:
            for mode in case["modes"]:
                found = {one["implementation"]: one for one in (mode["baseline"], *mode["variants"]) if one}
                if any(one["status"] != "skipped" for one in found.values()):
                    yield operator, case["label"] or "the only case", found


def time_of(one: dict[str, Any]) -> float | None:
    return (one["device_p50_ns"] or one["call_p50_ns"]) if one["status"] == "measured" else None


def best_of(package: str, found: Found) -> dict[str, Any] | None:
    """Return the fastest measured result of a package, or one that was not measured, or None where it has none."""
    results = [found[name] for name in PACKAGES[package] if name in found and found[name]["status"] != "skipped"]
    return min(results, key=lambda one: time_of(one) or float("inf"), default=None)


def times(document: dict[str, Any]) -> Rows:
    rows = [["operator", "case", *PACKAGES]]
    for operator, label, found in cases_in(document):
        best = {package: best_of(package, found) for package in PACKAGES}
        if measured := [time for one in best.values() if one and (time := time_of(one))]:
            cells = [_cell(one, min(measured)) for one in best.values()]
            rows.append([operator["operator"].removeprefix("peer_"), label, *cells])
    return rows


def _cell(one: dict[str, Any] | None, fastest: float) -> str:
    if one is None:
        return ""
    time = time_of(one)
    if time is None:
        return "wrong" if one["status"] == "mismatched" else str(one["status"])
    text = duration(time) + ("" if one["device_p50_ns"] else " (call)")
    return f"**{text}**" if time == fastest else text


def packages(document: dict[str, Any]) -> Rows:
    """Return in how many cases each package is the fastest, faster or slower than PyTorch's own, takes more memory, or has no result."""
    counts = defaultdict[str, Counter[str]](Counter)
    ratios = defaultdict[str, list[float]](list)
    for _, _, found in cases_in(document):
        best = {package: one for package in PACKAGES if (one := best_of(package, found))}
        measured = {package: time for package, one in best.items() if (time := time_of(one))}
        for package, one in best.items():
            count = counts[package]
            count["cases"] += 1
            count["wrong"] += one["status"] == "mismatched"
            count["failed"] += one["status"] not in ("mismatched", "measured")
            count["fastest"] += package in measured and measured[package] == min(measured.values())
            if package in measured and "PyTorch" in measured and package != "PyTorch":
                times_as_fast = measured["PyTorch"] / measured[package]
                ratios[package].append(times_as_fast)
                count["faster than PyTorch"] += times_as_fast > 1
                count["slower than PyTorch"] += times_as_fast < 1
                count["more memory than PyTorch"] += one["peak_bytes"] > best["PyTorch"]["peak_bytes"]
    rows = [["package", "cases", *FACTS, "speed beside PyTorch's"]]
    for package in PACKAGES:
        seen = ratios[package]
        speeds = f"{ratio(min(seen))} to {ratio(max(seen))}" if seen else ""
        rows.append([package, *(str(counts[package][fact]) for fact in ("cases", *FACTS)), speeds])
    return rows


def refused(document: dict[str, Any]) -> Rows:
    """Return a row for each reason for which results of a package are wrong or failed, with the cases."""
    cases = defaultdict[tuple[str, str, str], list[str]](list)
    for operator, label, found in cases_in(document):
        where = f"`{operator['suite'].rpartition('/')[2]}::{operator['operator']}`"
        for package, names in PACKAGES.items():
            for name in names:
                if name in found and found[name]["status"] not in ("measured", "skipped"):
                    named = package if len(names) == 1 else f"{package} (`{name}`)"
                    cases[named, where, found[name]["reason"].replace("|", "\\|").replace("*", "\\*")].append(label)
    rows = [[package, where, "; ".join(labels), reason] for (package, where, reason), labels in cases.items()]
    return [["package", "operator", "cases", "reason"], *rows]


def tables(document: dict[str, Any]) -> list[tuple[str, Rows]]:
    return [("times", times(document)), ("packages", packages(document)), ("refused", refused(document))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=f"Put the tables of peers into {PAGE.name}.")
    parser.add_argument("results", type=Path, help="what `pairbench results --format json` wrote of suites/peers")
    document = json.loads(parser.parse_args().results.read_text(encoding="utf-8"))
    write(PAGE, show(tables(document)))
