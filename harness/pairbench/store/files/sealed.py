"""A checksum of a whole parquet file, where no reader of parquet looks: between its pages and its footer.

Parquet's own checksums are of the bytes of its pages. A bit that flips in the header of a page, or in the footer, whose statistics
stand for values, passes them. Files that were written without this one are read as before.
"""

import zlib

import pyarrow as pa

from pairbench.store.files.conform import UnsoundError

_MARK = b"pairbench:crc32:"
_SIZE = 4
"""Bytes of the checksum behind the mark."""
SEAL = len(_MARK) + _SIZE
"""Bytes of both."""
_END = 8
"""Bytes behind the footer: its length, and parquet's own mark."""


def sealed(content: pa.Buffer) -> pa.Buffer:
    """Return the content of a parquet file with its checksum."""
    view = memoryview(content)
    footer = _footer(view)
    pages, rest = view[:footer], view[footer:]
    checksum = zlib.crc32(rest, zlib.crc32(pages)).to_bytes(_SIZE, "little")
    return pa.py_buffer(b"".join((pages, _MARK, checksum, rest)))


def check_seal(content: pa.Buffer) -> bool:
    """Return whether a file has a checksum.

    Raises:
        UnsoundError: it has one, and something in it has changed since.
    """
    view = memoryview(content)
    footer = _footer(view)
    begin = footer - len(_MARK) - _SIZE
    if begin < 0 or view[begin : begin + len(_MARK)] != _MARK:
        return False
    if zlib.crc32(view[footer:], zlib.crc32(view[:begin])) != int.from_bytes(view[footer - _SIZE : footer], "little"):
        raise UnsoundError("its content does not fit its checksum: it was changed, or the disk has changed it")
    return True


def _footer(view: memoryview) -> int:
    """Return where the footer begins; a negative place where there is none."""
    return len(view) - _END - int.from_bytes(view[-_END : -_END + 4], "little") if len(view) >= _END else -1
