"""The checksum of a file: every single bit is under it, other tools do not see it, and files without it are read as before."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairbench.store.documents import read_acceptances, write_acceptance
from pairbench.store.opened import check_seal, sealed
from pairbench.store.reader import read_run
from pairbench.store.schema import UnsoundError
from tests.builders import make_run, write_runs
from tests.faults.damaged import ACCEPTANCE, SERIES


def small() -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1, 2, 3]}), sink)
    return sink.getvalue()


def test_every_bit_is_under_it() -> None:
    content = sealed(small()).to_pybytes()
    assert check_seal(pa.py_buffer(content))
    for place in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            try:
                known = check_seal(pa.py_buffer(bytes(changed)))
            except UnsoundError:
                continue
            # Of the mark itself, or of the length that leads to it: then nothing else has changed, or there is no footer.
            assert not known
            try:
                table = pq.read_table(pa.BufferReader(bytes(changed)))
            except (OSError, pa.ArrowException):
                continue
            assert table.column("a").to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 7, b"\xff" * 100, b"PAR1" + b"\xff\xff\xff\xff" + b"PAR1"])
def test_what_is_no_parquet_has_none(content: bytes) -> None:
    assert not check_seal(pa.py_buffer(content))


def test_other_tools_read_the_file_as_any_other(tmp_path: Path) -> None:
    write_runs(tmp_path, make_run(0))
    (path,) = (tmp_path / "records").rglob("*.parquet")
    assert check_seal(pa.py_buffer(path.read_bytes()))
    assert len(pd.read_parquet(path)) == 4
    assert pq.read_table(path, partitioning=None, page_checksum_verification=True).num_rows == 4


def test_a_file_that_another_tool_wrote_is_read_without_one(tmp_path: Path) -> None:
    write_runs(tmp_path, make_run(0))
    (path,) = (tmp_path / "records").rglob("*.parquet")
    pq.write_table(pq.read_table(path, partitioning=None), path)
    assert not check_seal(pa.py_buffer(path.read_bytes()))
    assert read_run(tmp_path).value == make_run(0)


def test_a_page_that_was_changed_in_a_file_without_one(tmp_path: Path) -> None:
    """Parquet's own checksum of the page finds it."""
    write_runs(tmp_path, make_run(0))
    (path,) = (tmp_path / "records").rglob("*.parquet")
    pq.write_table(pq.read_table(path, partitioning=None), path, write_page_checksum=True, compression="none")
    content = bytearray(path.read_bytes())
    place = content.index(b"rms_norm[dtype=bfloat16,tokens=1024]")
    content[place + 5] ^= 1
    path.write_bytes(content)
    with pytest.raises(Exception, match=r"parquet: cannot be read, left out: .*"):
        read_run(tmp_path)


def test_a_document_that_was_changed_is_named(tmp_path: Path) -> None:
    path = Path(write_acceptance(tmp_path, ACCEPTANCE))
    text = path.read_text()
    path.write_text(text.replace("120000.0", "130000.0"))
    value, (problem,) = read_acceptances(tmp_path)
    assert value == {} and "does not fit its checksum; where it was changed on purpose, remove 'checksum'" in problem
    lines = [line for line in path.read_text().splitlines() if '"checksum"' not in line]
    path.write_text("\n".join(lines))
    assert read_acceptances(tmp_path).value[SERIES].p50_ns == 130_000.0
    path.write_text(text.replace("  ", "\t"))
    assert read_acceptances(tmp_path) == ({SERIES: ACCEPTANCE}, ()), "how it is indented is no matter"
