"""Where the host's time is judged: relative to the baseline's where that repeats, by itself where the whole host is quiet.

On many hosts a core has two speeds and changes between them every few seconds. It does so for baseline and variant alike, so
the ratio of the two repeats far better than either. Its floor tells how far, and as with every latency no change below twice the
floor counts. The floor of a host's own time tells less, for a few runs may all have had one speed.
"""

import statistics
from collections.abc import Mapping

from pairbench.model.comparison import Floor
from pairbench.model.policy import DEFAULT, Policy
from pairbench.model.series import Series


def own_host_floors(floors: Mapping[Series, Floor], policy: Policy = DEFAULT) -> dict[Series, float]:
    """Return the floors of the host's time by itself, in log units, where it repeats, as it does in most series of the device model.

    One series alone does not tell: that few runs of it agree may be chance.
    """
    by_device: dict[str, dict[Series, float]] = {}
    for series, floor in floors.items():
        if floor.host is not None:
            by_device.setdefault(series.device_name, {})[series] = floor.host
    quiet = [known for known in by_device.values() if statistics.median(known.values()) <= policy.host_floor]
    return {series: floor for known in quiet for series, floor in known.items() if floor <= policy.host_floor}


def relative_host_floors(floors: Mapping[Series, Floor], policy: Policy = DEFAULT) -> dict[Series, float]:
    """Return the floors of the host's time relative to the baseline's, in log units, where that repeats."""
    known = {series: floor.host_relative for series, floor in floors.items() if floor.host_relative is not None}
    return {series: floor for series, floor in known.items() if floor <= policy.host_relative_floor}


def judged_hosts(floors: Mapping[Series, Floor], policy: Policy = DEFAULT) -> frozenset[Series]:
    """Return the series whose host time is judged, as long as their baseline's source stays the same."""
    return frozenset(relative_host_floors(floors, policy).keys() | own_host_floors(floors, policy).keys())
