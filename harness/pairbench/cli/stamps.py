"""Names for what is kept in a store: sorted by name they are sorted by time."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt


def stamp(at: "dt.datetime") -> str:
    """Return a name that nothing else has, even if it was made in the same second elsewhere."""
    import secrets  # with what it needs some ten milliseconds, and `pairbench --help` loads this module

    return f"{at:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
