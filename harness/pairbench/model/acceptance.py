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
    """`p50_ns` and `p95_ns` are latencies of the call."""
    device_p50_ns: float | None = None
    device_p95_ns: float | None = None
    host_p50_ns: float | None = None
    """`device_p50_ns`, `device_p95_ns` and `host_p50_ns` are those of the device and of the host; None on a CPU, and in what was
    accepted before they were judged."""
    exact: Mapping[str, float] = field(default_factory=dict)
    """The accepted counts, `peak_bytes` and `margin`, by the column of the record."""
    run_id: str
    """The run that had this level."""
    at: str
    """When it was accepted: ISO 8601, UTC."""
    reason: str

    @property
    def latencies(self) -> dict[str, float]:
        """The accepted latencies in ns, by the column of the record."""
        known = {
            "call_p50_ns": self.p50_ns,
            "call_p95_ns": self.p95_ns,
            "device_p50_ns": self.device_p50_ns,
            "device_p95_ns": self.device_p95_ns,
            "host_p50_ns": self.host_p50_ns,
        }
        return {column: value for column, value in known.items() if value is not None}
