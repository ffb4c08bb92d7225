"""`pairbench store`: the spool published, old records merged, damage named, old samples removed; a row for each of them."""

import datetime as dt
import re
from collections.abc import Iterator
from typing import Any

from pairbench.config import Config
from pairbench.errors import EmptyStoreError, PairbenchError, UsageError
from pairbench.model.text import HIDDEN
from pairbench.store.location import FOLDERS, StoreLocation
from pairbench.store.upkeep import DAMAGED, Checked, Merged, OldSamples, check, compact, old_samples, remove
from pairbench.store.writer import Waiting, push, waiting

PUBLISHED, WAITS = "published", "still waits"


def push_waiting(config: Config, *, given: bool) -> list[dict[str, Any]]:
    """Publish the spool, all of it to the store that was `given` if there is one, and return a row for each of its folders."""
    return [_pushed(one, config, given=given) for one in list(waiting())]


def _pushed(one: Waiting, config: Config, *, given: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"folder": str(one.folder), "store": one.store, "outcome": WAITS, "files": len(one.files)}
    try:
        location = StoreLocation.of(config.store)
        if not given and location.address != one.store:
            # Its credentials were not written down; those of the environment may do.
            location = StoreLocation.of(one.store.replace(HIDDEN, ""))
        done = push(one, location)
    except PairbenchError as error:
        return row | {"reason": str(error)}
    except BlockingIOError:
        return row | {"reason": f"{one.folder}: another process publishes it"}
    if done.problems:
        return row | {"reason": "; ".join(done.problems)}
    return row | {"store": location.address, "outcome": PUBLISHED, "files": done.files}


def compact_store(config: Config, *, keep: int) -> Iterator[Merged]:
    yield from compact(_store_with_files(config), keep=keep)


def check_store(config: Config) -> tuple[Checked, list[dict[str, Any]]]:
    """Return the result of reading the whole store, and a row for each finding, damage first."""
    checked = check(_store_with_files(config))
    rows = [{"what": one.what, "file": one.path, "reason": one.reason} for one in checked.findings]
    return checked, sorted(rows, key=lambda row: (row["what"] != DAMAGED, row["what"], row["file"]))


def prune_store(config: Config, *, older: str, sure: bool) -> tuple[list[OldSamples], list[str]]:
    """Return the samples older than an age, and which of them could not be removed; without `sure` none is."""
    age = re.fullmatch(r"([1-9]\d{0,4})([dwy])", older)
    if age is None:
        raise UsageError(f"--older {older!r} is no age, expected days, weeks or years, such as 90d, 12w or 1y")
    days = int(age[1]) * {"d": 1, "w": 7, "y": 365}[age[2]]
    location = _store_with_files(config)
    samples = old_samples(location, dt.datetime.now(dt.UTC) - dt.timedelta(days=days))
    return samples, remove(location, samples) if sure else []


def _store_with_files(config: Config) -> StoreLocation:
    location = StoreLocation.of(config.store)
    if not any(location.listing(folder, "").paths for folder in FOLDERS):
        raise EmptyStoreError(
            f"store {location.name!r} has no file; make some with `pairbench run`, or name another store with --store"
        )
    return location
