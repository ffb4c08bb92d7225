"""Stores with one thing wrong in them, each made from the same sound store: what a disk, a copy or a hostile hand may leave."""

import contextlib
import json
import os
import random
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pairbench.model.comparison import Floor
from pairbench.model.record import Series
from pairbench.model.site import Triage
from pairbench.store.documents import write_document
from pairbench.store.schema import VERSION_KEY
from pairbench.store.writer import write_run
from tests.breakdowns_made import kept
from tests.builders import CASES, DEVICE, make_acceptance, make_calibration, make_run, run_id_of
from tests.site.stores import _samples, whole

RUNS = 5
LAST = run_id_of(RUNS - 1)  # the run that is damaged; all others are sound
SERIES = Series(device_name=DEVICE, suite="suites/norm.py", case=CASES[0], implementation="fused", mode="eager")

Damage = Callable[[Path], object]


def make_store(store: Path) -> None:
    """Write the sound store: five runs with samples, a calibration, an acceptance, the state of an event and a breakdown."""
    for number in range(RUNS):
        records = whole(make_run(number, slower={"fused": 1.2} if number == RUNS - 1 else {}))
        write_run(
            store,
            run_id=records[0].run_id,
            device_slug="nvidia-h200",
            month="2024-01",
            records=records,
            samples=[one for record in records for one in _samples(record)],
        )
    write_document(store, ACCEPTANCE)
    write_document(store, TRIAGE)
    write_document(store, CALIBRATION)
    write_document(store, kept())


_ACCEPTED = {"p50_ns": 120_000.0, "exact": {"kernels_per_call": 1}, "run_id": run_id_of(2)}
ACCEPTANCE = make_acceptance(SERIES, **_ACCEPTED, at="2024-01-02T03:04:05+00:00", reason="slower on purpose")
TRIAGE = Triage(
    event="0123456789ab",
    state="filed",
    url="https://example.org/issues/1",
    until=None,
    note="0.01 s",
    at="2024-01-02T03:04:05.678+00:00",
)
_FLOORS = {SERIES: Floor(p50=0.01, p95=0.02, runs=2, source="calibration")}
CALIBRATION = make_calibration(_FLOORS, calibration_id="20240101T000000-bbbb", runs=(run_id_of(0), run_id_of(1)))


def file_of(store: Path, dataset: str = "records") -> Path:
    (path,) = (store / dataset).rglob(f"{LAST}.parquet")
    return path


def bytes_of(change: Callable[[bytes], bytes], dataset: str = "records") -> Damage:
    return lambda store: file_of(store, dataset).write_bytes(change(file_of(store, dataset).read_bytes()))


def table_of(change: Callable[[pa.Table], pa.Table], dataset: str = "records", **options: Any) -> Damage:
    def damage(store: Path) -> None:
        path = file_of(store, dataset)
        pq.write_table(change(pq.ParquetFile(path).read()), path, **options)

    return damage


def column(name: str, values: Callable[[int], Any], dataset: str = "records") -> Damage:
    def change(table: pa.Table) -> pa.Table:
        found = values(len(table))
        return _with(table, name, found if isinstance(found, pa.Array) else pa.array(found))

    return table_of(change, dataset)


def each(name: str, value: Any, dataset: str = "records") -> Damage:
    """Return what puts one value into each row of a column, as a value of the column's type where it can be one."""
    return table_of(lambda table: _with(table, name, [value] * len(table)), dataset)


def without(name: str, dataset: str = "records") -> Damage:
    return table_of(lambda table: table.drop_columns([name]), dataset)


def no_text(count: int) -> pa.Array:
    offsets = pa.array([3 * place for place in range(count + 1)], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), count, [None, offsets, pa.py_buffer(b"a\xff\xfe" * count)])


def nested(depth: int = 100_000) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def beside(name: str | bytes, content: bytes = b"PAR1") -> Damage:
    def damage(store: Path) -> None:
        folder = os.fsencode(file_of(store).parent)
        Path(os.fsdecode(folder + b"/" + (name if isinstance(name, bytes) else name.encode()))).write_bytes(content)

    return damage


def instead(make: Callable[[Path], object]) -> Damage:
    def damage(store: Path) -> None:
        path = file_of(store)
        path.unlink()
        make(path)

    return damage


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(path.parent):  # a socket's path is short
        made.bind(path.name)


def _loop(store: Path) -> None:
    (file_of(store).parent / "again").symlink_to(store / "records")


def _folder_without_text(store: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(store) + b"/records/device=\xff"))
    folder.mkdir()
    (folder / "x.parquet").write_bytes(b"PAR1")


def _parts(store: Path, *, whole: bytes | None = None) -> None:
    path = file_of(store)
    table = pq.ParquetFile(path).read()
    for number in range(2):
        pq.write_table(table[2 * number : 2 * number + 2], path.with_name(f"{LAST}.part-{number:06d}.parquet"))
    if whole is None:
        path.unlink()
    elif whole:
        path.write_bytes(whole)


def _twice(store: Path) -> None:
    path = file_of(store)
    other = store / "records" / "device=other" / "month=2024-01"
    other.mkdir(parents=True)
    (other / path.name).write_bytes(path.read_bytes())


def _under_another_name(store: Path) -> None:
    path = file_of(store)
    path.rename(path.with_name("kept-by-hand.parquet"))


def _version(text: bytes) -> Damage:
    def change(table: pa.Table) -> pa.Table:
        return table.append_column("of_tomorrow", pa.array([1] * len(table))).replace_schema_metadata(
            {VERSION_KEY: text}
        )

    return table_of(change)


def _kernels(value: Any) -> Damage:
    kind = pa.list_(pa.struct([("name", pa.string()), ("count", pa.int64()), ("total_ns", pa.float64())]))
    return column("kernels", lambda count: pa.array([value] * count, kind))


def _all_texts(value: str) -> Damage:
    def change(table: pa.Table) -> pa.Table:
        for name in table.column_names:
            keep = name in ("axes", "environment", "run_id")
            if pa.types.is_string(table.schema.field(name).type) and not keep:
                table = _with(table, name, pa.array([value] * len(table)))
        return table

    return table_of(change)


def _junk(count: int) -> bytes:
    return random.Random(count).randbytes(count)


def _with(table: pa.Table, name: str, values: list[Any] | pa.Array) -> pa.Table:
    """Return a table with other values in a column, as values of its type where they are in a list."""
    place = table.column_names.index(name)
    array = values if isinstance(values, pa.Array) else pa.array(values, table.schema.field(name).type)
    return table.set_column(place, name, array)


NUMBERS = {"nan": float("nan"), "negative": -5.0, "infinite": float("inf"), "zero": 0.0, "huge": 1e300}

_FILES: dict[str, Damage] = {
    "an empty file": bytes_of(lambda _: b""),
    "half a file": bytes_of(lambda content: content[: len(content) // 2]),
    "without the end of its footer": bytes_of(lambda content: content[:-40]),
    "nothing but a mark": bytes_of(lambda _: b"PAR1"),
    "zeros among its pages": bytes_of(lambda content: content[:4] + bytes(800) + content[804:]),
    "zeros in its footer": bytes_of(lambda content: content[:-900] + bytes(200) + content[-700:]),
    "a footer that is too long": bytes_of(lambda content: content[:-8] + b"\xff\xff\xff\x7f" + content[-4:]),
    "noise": bytes_of(lambda content: _junk(len(content))),
    "noise in parquet's clothes": bytes_of(lambda content: b"PAR1" + _junk(5000) + b"\x10\x00\x00\x00PAR1"),
    "a text": bytes_of(lambda _: b"run_id,status\n1,measured\n"),
    "a parquet file of somebody else": table_of(lambda _: pa.table({"run_id": ["x"], "case": ["y"]})),
    "a folder": instead(Path.mkdir),
    "a link to nowhere": instead(lambda path: path.symlink_to("/nowhere/at/all")),
    "a link to itself": instead(lambda path: path.symlink_to(path.name)),
    "a pipe": instead(os.mkfifo),
    "a socket": instead(_socket),
    "a link back up": _loop,
    "a file name that is no UTF-8": beside(b"20240101T0\xff.parquet"),
    "a folder's name that is no UTF-8": _folder_without_text,
    "a file name with commands in it": beside("\x1b]0;x\x07\n::error::boo.parquet"),
    "a file name of 250 letters": beside("x" * 242 + ".parquet"),
    "parts of a run that was killed": _parts,
    "parts beside a broken one": partial(_parts, whole=b"PAR1"),
    "parts beside their sound one": partial(_parts, whole=b""),
    "a run that is there twice": _twice,
    "a file that was renamed": _under_another_name,
    "a newer schema": _version(b"99"),
    "a version that is no number": _version(b"new"),
    "no rows": table_of(lambda table: table[:0]),
    "a row group for each row": table_of(lambda table: table, row_group_size=1),
    "each row twice": table_of(lambda table: pa.concat_tables([table, table])),
    "each row twice, with other values": table_of(
        lambda table: pa.concat_tables([table, _with(table, "call_p50_ns", [5.0] * len(table))])
    ),
    "a column twice": table_of(lambda table: table.append_column("case", table.column("case"))),
}
_COLUMNS: dict[str, Damage] = {
    "texts that are no UTF-8: case": column("case", no_text),
    "texts that are no UTF-8: reason": column("reason", no_text),
    "texts that are no UTF-8: device_name": column("device_name", no_text),
    "one run_id is null": column("run_id", lambda count: pa.array([None, *[LAST] * (count - 1)], pa.string())),
    **{
        f"null: {name}": each(name, None)
        for name in (
            "run_id",
            "suite",
            "device_name",
            "status",
            "started_at",
            "environment",
            "environment_hash",
            "axes",
        )
    },
    **{f"missing: {name}": without(name) for name in ("run_id", "status", "started_at", "environment", "case", "mode")},
    "a text for a number": column("call_p50_ns", lambda count: ["fast"] * count),
    "a number for a text": column("case", lambda count: list(range(count))),
    "a struct for a number": column("call_p50_ns", lambda count: [{"a": 1}] * count),
    "a list of texts for one of numbers": column("round_p50_ns", lambda count: [["a"]] * count),
    "a list with nothing in a place": each("round_p50_ns", [1.0, None]),
    "an empty list of rounds": each("round_p50_ns", []),
    "no JSON in axes": each("axes", "{"),
    "a list in axes": each("axes", "[1]"),
    "axes nested deeply": each("axes", nested()),
    "axes with objects in them": each("axes", '{"tokens": {"a": [1, null]}}'),
    "no JSON in environment": each("environment", "oops"),
    "environment nested deeply": each("environment", nested()),
    "an environment of odd values": each("environment", '{"flags": 3, "observed": [1], "packages": "x"}'),
    "observed of odd values": each(
        "environment", '{"observed": {"ceilings": 3, "host_load": "x", "requested": [1], "foreign_processes": {}}}'
    ),
    **{f"{word} latencies": each("call_p50_ns", value) for word, value in NUMBERS.items()},
    **{f"{word} rounds": each("round_p50_ns", [value, value]) for word, value in NUMBERS.items()},
    **{f"{word} speedups": each("speedup", value) for word, value in NUMBERS.items()},
    "fewer rounds than none": each("n_rounds", -(2**63)),
    "more samples than there are": each("n_samples", 2**63 - 1),
    "an unknown status": each("status", "sublime"),
    "an unknown role": each("role", "spectator"),
    "an unknown mode": each("mode", "telepathy"),
    "a case that is no key": each("case", "]x["),
    "no time in started_at": each("started_at", "yesterday"),
    "a start without a zone": each("started_at", "2024-01-01T00:00"),
    "a start in the year 9999": each("started_at", "9999-12-31T23:59:59+00:00"),
    "a kernel that is nothing": _kernels([None]),
    "a kernel without a name": _kernels([{"name": None, "count": 1, "total_ns": 1.0}]),
    "a text for kernels": column("kernels", lambda count: ["k"] * count),
    "empty texts": _all_texts(""),
    "texts with commands in them": _all_texts("\x1b[31m\x07\r\n::warning::x\u202e\u2028"),
    "long texts": _all_texts("x" * 200_000),
    "texts with markup": _all_texts("<script>1</script>[red]`|`"),
}
_SAMPLES: dict[str, Damage] = {
    "half a file of samples": bytes_of(lambda content: content[: len(content) // 2], "samples"),
    "no samples": lambda store: file_of(store, "samples").unlink(),
    "samples of unlike lengths": each("throttled", [True], "samples"),
    "no latency in a sample": each("call_ns", [1.0, None], "samples"),
    "null for the samples": each("call_ns", None, "samples"),
    "texts for samples": column("call_ns", lambda count: [["a"]] * count, "samples"),
    "no block in a sample": each("block", None, "samples"),
    "samples without a suite": each("suite", None, "samples"),
    "samples of no number": column("call_ns", lambda count: [[float("nan")] * 50] * count, "samples"),
}


def _document(folder: str, change: Callable[[Path], object]) -> Damage:
    def damage(store: Path) -> None:
        (path,) = (store / folder).rglob("*.json")
        change(path)

    return damage


def _json(**changes: Any) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


_DOCUMENT: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "no JSON": lambda path: path.write_bytes(b"{oops"),
    "no UTF-8": lambda path: path.write_bytes(b'{"pairbench": "\xff"}'),
    "nested deeply": lambda path: path.write_text("[" * 200_000),
    "a list": lambda path: path.write_text("[1, 2]"),
    "of another kind": _json(pairbench="surprise 7"),
    "half a character": _json(reason="\ud800", device_name="\ud800", calibration_id="\ud800"),
    "a number for a text": _json(reason=3, device_name=3, made_at=3),
    "an endless number": lambda path: path.write_text(path.read_text().replace(": 1", f": 1{'0' * 5000}")),
    "infinite": lambda path: path.write_text(path.read_text().replace("0.01", "1e999").replace("120000.0", "1e999")),
    "nothing but its kind": lambda path: path.write_text(
        json.dumps({"pairbench": json.loads(path.read_text())["pairbench"]})
    ),
}
DOCUMENTS = {
    f"{folder}: {name}": _document(folder, change)
    for folder in ("accepted", "triage", "calibrations", "breakdowns")
    for name, change in _DOCUMENT.items()
}


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _file_for(name: str) -> Damage:
    def damage(store: Path) -> None:
        (store / name).rename(store / f".{name}")
        (store / name).write_text("in the way")

    return damage


PLACES: dict[str, Damage] = {
    "a pipe for an acceptance": _document("accepted", _pipe),
    "a file for the folder of acceptances": _file_for("accepted"),
    "a file for the folder of samples": _file_for("samples"),
    "a file for the folder of records": _file_for("records"),
}
DAMAGES: dict[str, Damage] = {**_FILES, **_COLUMNS, **_SAMPLES, **DOCUMENTS, **PLACES}
GOES = frozenset(name for name in PLACES if name.startswith("a file for the folder"))
"""What keeps the store from being listed, which is said with exit code 4."""
