"""One line of `pairbench doctor`."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Whether one thing that measuring depends on is available."""

    name: str
    state: str
    """State of the thing: `ok`, `limited`, `missing` or `unknown`."""
    detail: str
    advice: str | None = None
    """What to do, or what will be missing from records; None where nothing is."""
