"""What waits in the spool, published into the stores that it was meant for."""

from typing import Any

from pairbench.config import Config
from pairbench.errors import PairbenchError
from pairbench.model.text import HIDDEN
from pairbench.store.location import StoreLocation
from pairbench.store.spool.folder import Waiting, waiting
from pairbench.store.spool.push import push

PUBLISHED, WAITS = "published", "still waits"


def push_waiting(config: Config, *, given: bool) -> list[dict[str, Any]]:
    """Publish what waits, and return a row for each folder of the spool.

    Args:
        config: Whose store is the one that credentials may be in, which are never written down.
        given: Whether that store was named for this command: then everything goes there, wherever it was meant for.
    """
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
