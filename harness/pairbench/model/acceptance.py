"""A new level of a series that a person has accepted on purpose."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pairbench.model.series import Series


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """What was accepted, when and why. It covers this level, and no further worsening."""

    series: Series
    definition_hash: str | None
    """The definition whose level was accepted; another definition has another level."""
    p50_ns: float | None
    p95_ns: float | None
    exact: Mapping[str, float] = field(default_factory=dict)
    """The accepted counts, `peak_bytes` and `margin`, by the column of the record."""
    run_id: str
    """The run that had this level."""
    at: str
    """When it was accepted: ISO 8601, UTC."""
    reason: str
