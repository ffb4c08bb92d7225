"""Which host measures which unit: a series stays on its GPU, and a host has one unit at a time."""

import datetime as dt
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pairbench.model.unit import Host, Offer, Unit

AWAY = dt.timedelta(days=1)
"""How long a GPU may be away before another one of its model takes over its series."""


@dataclass(frozen=True, kw_only=True)
class Last:
    """The device that measured a unit's series last."""

    identity: str
    host: str
    """The name of the machine that it was in."""
    seen: dt.datetime
    """When that device measured anything last, as far as the store tells."""


def requirement(unit: Unit, last: Last | None, present: Collection[str], now: dt.datetime) -> str:
    """Return what a unit needs: the device that measured its series last, or else what it asks for.

    GPUs of one model differ by some percent, so that a series which goes from one to another moves. The pin is soft: a
    device that has been away for a day is given up.

    Args:
        unit: What is to be measured.
        last: The device that measured its series last, of those that it asks for; None for a new series.
        present: The identities of all devices in the fleet.
        now: The time.
    """
    if last is None or (last.identity not in present and now - last.seen >= AWAY):
        return unit.device
    return last.identity


class Waiting:
    """Units that wait for a host, by what they need: what a host takes next is found without looking at all of them."""

    def __init__(
        self, units: Iterable[Unit], last: Mapping[Unit, Last], present: Collection[str], now: dt.datetime
    ) -> None:
        """Put units in line, in their order. See `requirement`."""
        self._last, self._present, self._now = last, present, now
        self._lines: dict[str, deque[Unit]] = {}
        for unit in units:
            self._line(unit).append(unit)

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def _line(self, unit: Unit) -> deque[Unit]:
        need = requirement(unit, self._last.get(unit), self._present, self._now)
        return self._lines.setdefault(need, deque())

    def units(self) -> list[Unit]:
        """Return all that wait."""
        return [unit for line in self._lines.values() for unit in line]

    def put_back(self, unit: Unit) -> None:
        """Take a unit again that came back without a result. It is the next one for what it needs."""
        self._line(unit).appendleft(unit)

    def take(self, host: Host) -> tuple[Unit, Offer] | None:
        """Return the next unit for a host that has none, and the device to measure it on; None if nothing is for it.

        What can be measured nowhere else comes first.
        """
        needs = [(offer.identity, offer) for offer in host.offers]
        needs += [(name, offer) for offer in host.offers for name in (offer.model, offer.kind)]
        for need, offer in needs:
            if line := self._lines.get(need):
                return line.popleft(), offer
        return None

    def missing(self, hosts: Iterable[Host]) -> dict[str, int]:
        """Return how many units wait for what no host has, by what that is."""
        there = {name for host in hosts for offer in host.offers for name in (offer.identity, offer.model, offer.kind)}
        return {need: len(line) for need, line in self._lines.items() if line and need not in there}

    def give_up(self, need: str) -> list[Unit]:
        """Take out the units that wait for something, and return them."""
        return list(self._lines.pop(need, ()))
