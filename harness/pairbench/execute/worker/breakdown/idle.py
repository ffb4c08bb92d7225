"""When and why a GPU stood still during a call: intervals in, durations out."""

from pairbench.execute.worker.breakdown.trace import Activity, Window
from pairbench.model.breakdown import Idle

_CLOCKS_NS = 5_000.0
"""How far the host's and the device's times in a trace may be apart."""


def busy_ns(activities: list[Activity]) -> float:
    """Return how long at least one of some activities was running."""
    total = end = 0.0
    for activity in sorted(activities, key=lambda item: item.start):
        total += max(0.0, activity.end - max(activity.start, end))
        end = max(end, activity.end)
    return total


def idle_of(window: Window) -> Idle | None:
    """Return what the device did from the first to the last activity of a call; None where there was none.

    The time before the first one is left out: it is there because the device is waited for before each recorded call, and a
    caller who goes on without waiting never has it.
    """
    activities = sorted(window.activities, key=lambda item: item.start)
    if not activities:
        return None
    waits = [wait.end for wait in window.waits()]
    starved = after_sync = 0.0
    end = activities[0].end
    for activity in activities[1:]:
        gap = activity.start - end
        # Launched before the device ran dry: the gap is the device's own, some hundred nanoseconds a kernel.
        if gap > 0 and activity.launch is not None and activity.launch.start > end:
            starved += gap
            if any(end - _CLOCKS_NS <= wait <= activity.start for wait in waits):
                after_sync += gap
        end = max(end, activity.end)
    return Idle(
        span_ns=end - activities[0].start, busy_ns=busy_ns(activities), starved_ns=starved, after_sync_ns=after_sync
    )
