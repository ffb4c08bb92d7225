"""`pairbench store`: the spool published, and old samples removed; a row for each of them."""

import datetime as dt
import re
from typing import Any

from pairbench.config import Config
from pairbench.errors import EmptyStoreError, PairbenchError, UsageError
from pairbench.model.plain import HIDDEN
from pairbench.store.location import FOLDERS, StoreLocation
from pairbench.store.upkeep import OldSamples, old_samples, remove
from pairbench.store.writer import Waiting, push

PUBLISHED, WAITS = "published", "still waits"


def push_waiting(config: Config, one: Waiting, *, given: bool) -> dict[str, Any]:
    """Publish a folder of the spool, to the configured store if that was `given`, and return a row for it."""
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
    return row | {"store": location.address, "outcome": PUBLISHED, "files": done.value}


def prune_store(config: Config, *, older: str, sure: bool) -> tuple[list[OldSamples], list[str]]:
    """Return the samples older than an age, and which of them could not be removed; without `sure` none is."""
    age = re.fullmatch(r"([1-9]\d{0,4})([dwy])", older)
    if age is None:
        raise UsageError(f"--older {older!r} is no age, expected days, weeks or years, such as 90d, 12w or 1y")
    days = int(age[1]) * {"d": 1, "w": 7, "y": 365}[age[2]]
    location = store_with_files(config)
    samples = old_samples(location, dt.datetime.now(dt.UTC) - dt.timedelta(days=days))
    return samples, remove(location, samples) if sure else []


def store_with_files(config: Config) -> StoreLocation:
    location = StoreLocation.of(config.store)
    if not any(location.listing(folder, "").value for folder in FOLDERS):
        advice = "make some with `pairbench run`, or name another store with --store"
        raise EmptyStoreError(f"store {location.name!r} has no file; {advice}")
    return location
