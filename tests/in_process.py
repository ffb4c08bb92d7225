"""Commands of pairbench in the process of the test: without workers they take as long as what they do."""

import contextlib
import io
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairbench.cli.app import main


@dataclass(frozen=True)
class Said:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document that it printed."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


def call_main(folder: Path, *arguments: str) -> Said:
    """Run a command in a folder, which is best no checkout."""
    before, argv = Path.cwd(), sys.argv
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    os.chdir(folder)
    sys.argv = ["pairbench", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as end:
                code = end.code
    finally:
        os.chdir(before)
        sys.argv = argv
    return Said(code if isinstance(code, int) else int(code is not None), out.getvalue(), err.getvalue())
