"""Whole pages kept as files: `PAIRBENCH_GOLDEN=write pytest ...` writes them anew, to be read before they are committed."""

import os
from pathlib import Path


def assert_golden(file: Path, text: str) -> None:
    """Compare a page with its file."""
    if os.environ.get("PAIRBENCH_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"{file.name} is another page; if it is right, write it anew"
