"""Finds a Chromium that is installed: nothing is downloaded here."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

WHOLE = ("chromium", "chromium-browser", "google-chrome")
"""What readers have."""
NAMES = ("chromium-headless-shell", *WHOLE)
"""The first is the same engine without a window: whole browsers also draw tabs and menus that nobody sees, in as much time again."""
ARGUMENTS = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
"""Whatever a page tries, no name resolves, and of all addresses only this machine's own is reached: nothing can leave it."""


def find_chromium(own: str | None = None, names: Sequence[str] = NAMES) -> str:
    """Return the path of a browser: PAIRBENCH_CHROMIUM, else the first on the PATH, else Playwright's own."""
    asked = os.environ.get("PAIRBENCH_CHROMIUM")
    if asked and not Path(asked).is_file():
        raise FileNotFoundError(f"PAIRBENCH_CHROMIUM is {asked!r}, expected the path of a browser")
    for path in (asked, *map(shutil.which, names), own):
        if path and Path(path).is_file():
            return path
    raise FileNotFoundError(
        f"no browser: put one of {', '.join(names)} on the PATH, name one by PAIRBENCH_CHROMIUM, or run "
        "`playwright install chromium`"
    )
