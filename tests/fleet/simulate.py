"""A fleet of 500 hosts and 100,000 units, simulated with the real line of units and with the times that many workers here have shown.

Hosts measure; one command hands out units, one at a time, and looks at all hosts once a second; one scheduler passes messages. Both are
servers with one line. What is asked is which of them, or the hosts, keeps the others waiting.
"""

import datetime as dt
import heapq
import time
from dataclasses import dataclass

from pairbench.features.fleet.drive import Waiting
from pairbench.model.unit import Host, Unit
from tests.fleet.fleet import offer


@dataclass(frozen=True)
class Costs:
    """Processor seconds, as `tests.fleet.many` measures them."""

    command_s: float  # seconds of the command for a unit: taken, sent, and its answer read
    look_s: float  # seconds of the command for a look at one host, once a second
    scheduler_s: float  # seconds of the scheduler for a unit, what its workers say meanwhile included


@dataclass(frozen=True)
class Simulated:
    unit_s: float
    hours: float
    hosts_busy: float  # the part of the time that hosts measure
    command_busy: float
    scheduler_busy: float


def hosts_of(count: int) -> list[Host]:
    return [
        Host(name=f"host{number}", address=f"tcp://{number}", offers=(offer(f"GPU-{number}"),))
        for number in range(count)
    ]


def lining_up(hosts: int, units: int) -> float:
    """Return the seconds to line units up and to take all of them, which is what the command decides by."""
    fleet = hosts_of(hosts)
    several = [Unit(operators=(f"ops.py::op{number}",), device="nvidia-h200") for number in range(units)]
    began = time.perf_counter()
    waiting = Waiting(several, {}, {host.offers[0].identity for host in fleet}, dt.datetime.now(dt.UTC))
    taken = 0
    while waiting.take(fleet[taken % hosts]) is not None:
        taken += 1
    assert taken == units
    return time.perf_counter() - began


def simulate(hosts: int, units: int, unit_s: float, costs: Costs) -> Simulated:
    left, now, command_free, busy = units, 0.0, 0.0, 0.0
    share = costs.look_s * hosts  # of every second of the command
    assert share < 1, "looking at the hosts is all that the command does"
    command = costs.command_s / (1 - share)
    back = [(0.0, number) for number in range(hosts)]  # when each host asks for its next unit
    scheduler_free = 0.0
    while left:
        now, number = heapq.heappop(back)
        scheduler_free = max(scheduler_free, now) + costs.scheduler_s
        command_free = max(command_free, scheduler_free) + command
        left -= 1
        busy += unit_s
        heapq.heappush(back, (command_free + unit_s, number))
    end = max(at for at, _ in back)
    return Simulated(
        unit_s=unit_s,
        hours=end / 3600,
        hosts_busy=busy / (end * hosts),
        command_busy=units * command / end + share,
        scheduler_busy=units * costs.scheduler_s / end,
    )
