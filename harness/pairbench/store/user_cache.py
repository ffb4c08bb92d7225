"""Small values that are kept between commands in the user's cache folder. Whoever loses them loses nothing but time.

A file is JSON, and is read as if it were empty wherever it is anything else.
"""

import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pairbench.model.environment import Environment, HostLoad

_OLD_S = 14 * 24 * 3600
_FORMAT = 1  # the version of the values; those of another version are ignored


def user_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return pairbench's cache folder of the user; a path that cannot exist for a user without a home."""
    chosen = Path(environment.get("XDG_CACHE_HOME") or "")
    if not chosen.is_absolute():  # a relative one is to be ignored, says the rule for these folders
        try:
            chosen = Path("~/.cache").expanduser()
        except RuntimeError:  # as in a container that runs under a number
            chosen = Path(os.devnull)
    return chosen / "pairbench"


def kept_compilations() -> Path | None:
    """Return the cache folder of torch.compile and Triton, after removing entries older than two weeks; None if it cannot be made."""
    return _made(folder := user_folder() / "compiled", folder / "triton", folder / "inductor")


def kept_bytecode() -> Path | None:
    """Return the folder for the bytecode of packages that came without, as in many containers; None if it cannot be there."""
    # Each Python has one of its own. Those that no command has used for two weeks go.
    ours = user_folder() / "bytecode" / hashlib.sha256(f"{sys.prefix} {sys.version}".encode()).hexdigest()[:12]
    return _made(ours, ours.parent)


def _made(folder: Path, *swept: Path) -> Path | None:
    """Make a folder, which is used from now on, and remove the entries of others that are older than two weeks."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
    except OSError:
        return None
    for other in swept:
        with contextlib.suppress(OSError):
            for entry in other.iterdir():
                if time.time() - entry.stat().st_mtime > _OLD_S:
                    shutil.rmtree(entry, ignore_errors=True)
    return folder


class KeptValues:
    """Values by their keys in one file, each a JSON object; the oldest go when there are too many."""

    def __init__(self, file: Path, *, most: int) -> None:
        self._file = file
        self._most = most

    def read(self) -> dict[str, dict[str, Any]]:
        with contextlib.suppress(OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
            content = json.loads(self._file.read_text(encoding="utf-8"))
            if content["format"] == _FORMAT:
                return {key: value for key, value in content["values"].items() if isinstance(value, dict)}
        return {}

    def keep(self, values: Mapping[str, Mapping[str, Any]]) -> None:
        if not values:
            return
        from pairbench.store.files import sweep_temporary, write_whole  # loads pyarrow, which reading does not need

        kept = {key: value for key, value in self.read().items() if key not in values}
        newest = list({**kept, **values}.items())[-self._most :]
        text = json.dumps({"format": _FORMAT, "values": dict(newest)})
        with contextlib.suppress(OSError):  # read-only, or full
            self._file.parent.mkdir(parents=True, exist_ok=True)
            sweep_temporary([self._file.parent])
            write_whole(self._file, text.encode(), durable=False)


class KeptCeilings:
    """The measured ceilings of the roofline by device, driver and version of torch."""

    def __init__(self, folder: Path | None = None) -> None:
        self._values = KeptValues((folder or user_folder()) / "ceilings.json", most=100)

    def put_in(self, environment: Environment) -> Environment | None:
        values = self._values.read().get(_key(environment), {})
        known = {name: float(rate) for name, rate in values.items() if isinstance(rate, int | float) and rate > 0}
        if not known:
            return None
        return environment.observing(ceilings=known)

    def keep(self, environment: Environment, load: HostLoad) -> None:
        """Keep what was measured while nobody else used the device or its host."""
        observed = environment.observed
        undisturbed = not observed.get("foreign_processes") and not load.disturbs(environment.device.kind)
        if undisturbed and (ceilings := observed.get("ceilings")):
            self._values.keep({_key(environment): ceilings})


def _key(environment: Environment) -> str:
    device = environment.device
    versions = (environment.driver, environment.cuda, environment.torch)
    return json.dumps([device.kind, device.name, device.uuid, environment.hostname, *versions])
