"""Where the host's time is judged: relative to the baseline's where that repeats, by itself where the whole host is quiet."""

import statistics
from collections.abc import Mapping

from pairbench.model.comparison import Floor
from pairbench.model.policy import DEFAULT, Policy
from pairbench.model.series import Series


def quiet_hosts(floors: Mapping[Series, Floor], policy: Policy = DEFAULT) -> frozenset[str]:
    """Return the device models beside which the host's time repeats in most series.

    One series alone does not tell: that few runs of it agree may be chance.
    """
    hosts: dict[str, list[float]] = {}
    for series, floor in floors.items():
        if floor.host is not None:
            hosts.setdefault(series.device_name, []).append(floor.host)
    return frozenset(name for name, known in hosts.items() if statistics.median(known) <= policy.host_floor)


def judged_hosts(floors: Mapping[Series, Floor], policy: Policy = DEFAULT) -> frozenset[Series]:
    """Return the series whose host time repeats well enough to be judged, beside a baseline that has not changed."""
    quiet = quiet_hosts(floors, policy)

    def repeats(series: Series, floor: Floor) -> bool:
        if floor.host_relative is not None and floor.host_relative <= policy.host_floor:
            return True
        return floor.host is not None and floor.host <= policy.host_floor and series.device_name in quiet

    return frozenset(series for series, floor in floors.items() if repeats(series, floor))
