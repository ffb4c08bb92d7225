"""Rows to store: plain ones to tell apart, and any that the types allow; and readers of them."""

import json
import typing
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from pairbench.model.breakdown import KernelBuild, KernelCount
from pairbench.model.record import Record, Samples
from pairbench.store.files import Reading
from pairbench.store.location import StoreLocation
from pairbench.store.opened import OpenedFile
from pairbench.store.reader import RunIndex, read_frame
from pairbench.store.schema import IDENTITY
from pairbench.store.writer import RunWriter
from tests.builders import make_run, make_samples

_NUMBER, _TEXT = st.none() | st.integers(0, 99), st.text(max_size=12)
_KNOWN = dict.fromkeys(("registers", "shared_bytes", "warps", "spills", "stages"), _NUMBER)
_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: _TEXT,
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(),
    bool: st.booleans(),
    KernelBuild: st.builds(KernelBuild, name=_TEXT, code=st.none() | _TEXT, **_KNOWN),
    KernelCount: st.builds(KernelCount, name=_TEXT, count=st.integers(0, 99), total_ns=st.floats()),
}


def _strategy(hint: Any) -> st.SearchStrategy[Any]:
    if hint in _SCALARS:
        return _SCALARS[hint]
    options = [inner for inner in typing.get_args(hint) if inner is not type(None)]
    if typing.get_origin(hint) is tuple:
        return st.lists(_strategy(options[0]), max_size=3).map(tuple)
    return st.none() | _strategy(options[0])


def any_row(row_type: type[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for rows of every value that the annotations allow, and a store takes."""
    hints = typing.get_type_hints(row_type)
    columns = {item.name: _strategy(hints[item.name]) for item in fields(row_type)}
    columns |= {name: _OBJECTS for name in ("axes", "environment") if name in columns}
    dataset = "records" if row_type is Record else "samples"
    texts = [name for name in IDENTITY[dataset] if hints[name] is str]
    columns |= {name: st.text(min_size=1, max_size=12) for name in texts}
    columns["run_id"] = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,9}", fullmatch=True)
    return st.builds(row_type, **columns).map(_beside if row_type is Samples else lambda row: row)


_OBJECTS = st.dictionaries(st.text(max_size=4), st.integers(), max_size=2).map(json.dumps)


def _beside(row: Samples) -> Samples:
    """Return samples with a value of each kind for each."""
    lists = {name: value for name, value in vars(row).items() if isinstance(value, tuple)}
    cut: dict[str, Any] = {name: value[: min(map(len, lists.values()))] for name, value in lists.items()}
    return replace(row, **cut)


def record(run_id: str = "20260102T030405-aaaa", **changes: Any) -> Record:
    plain: dict[str, Any] = {
        "call_p50_ns": 12345.5,
        "call_p95_ns": float("nan"),
        "round_p50_ns": (12345.0, 12345.5, 12346.0),
        "kernels": (KernelCount(name="rms<bf16>", count=1, total_ns=9000.0),),
        "peak_bytes": 2**40,
    }
    return replace(make_run()[1], run_id=run_id, **{**plain, **changes})


def open_run(store: Any, run_id: str = "run-1", **more: Any) -> RunWriter:
    return RunWriter(store, run_id=run_id, device_slug="cpu", month="2026-01", **more)


def samples(run_id: str = "20260102T030405-aaaa", **changes: Any) -> Samples:
    return make_samples(replace(make_run()[1], run_id=run_id), **changes)


def before_opening(monkeypatch: pytest.MonkeyPatch, call: Callable[[str], object]) -> None:
    """Have a function called with the path of each file, just before it is opened."""
    real = OpenedFile.__init__

    def late(self: OpenedFile, place: StoreLocation, path: str, dataset: str) -> None:
        call(path)
        real(self, place, path, dataset)

    monkeypatch.setattr(OpenedFile, "__init__", late)


def by_index(store: Path) -> Reading[Any]:
    index = RunIndex.of_store(store)
    heads = list(index)
    found = index.records(heads)
    keys = index.keys(heads, ("case", "implementation"))
    assert Counter(row.run_id for row in found.value) == {run_id: len(rows) for run_id, rows in keys.items()}
    return Reading(found.value, tuple(dict.fromkeys((*index.problems, *found.problems))))


def by_frame(store: Path) -> Reading[Any]:
    frame, problems = read_frame(store)
    return Reading(list(frame.itertuples()), problems)
