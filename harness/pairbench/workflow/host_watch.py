"""Whether other work on a host disturbs what is measured there: said once, before anything is timed where it is known by then."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from pairbench.execute.parent.case_state import CaseState
from pairbench.execute.parent.host_load import LoadMeter, count_cores
from pairbench.model.environment import Device, Environment
from pairbench.model.load import HostLoad


class HostWatch:
    """Watches a host from the moment it is made. What it found before anything is timed is `before`, from `begin` on."""

    def __init__(self, device: Device, notify: Callable[[str], None]) -> None:
        self._device = device
        self._notify = notify
        self._meter = LoadMeter()
        self._said = False
        self.before = HostLoad(cores=count_cores(), before=None)

    def begin(self, environment: Environment) -> HostLoad:
        """Say what computes beside what is about to be timed.

        Args:
            environment: What probing the device found, which took long enough to tell how busy others are.

        Returns:
            How busy they are.
        """
        self.before = replace(self.before, before=self._meter.foreign_cores())
        self._say(self.before)
        _warn_of_processes(environment, self._notify)
        return self.before

    def during(self, states: Iterable[CaseState], foreign_cores: Iterable[float | None]) -> HostLoad:
        """Return the load with what was seen while cases were timed.

        Args:
            states: The cases.
            foreign_cores: Processors that others kept busy during each round of timing.
        """
        readings = [timed.telemetry for state in states for timed in state.rounds]
        return replace(
            self.before,
            rounds=tuple(foreign_cores),
            performance_states=tuple(sorted({state for item in readings for state in item.performance_states})),
            foreign_processes=tuple(sorted({pid for item in readings for pid in item.foreign_processes})),
        )

    def end(self, load: HostLoad) -> None:
        """Say it where the load began only after the beginning."""
        self._say(load)

    def _say(self, load: HostLoad) -> None:
        if not self._said and (why := load.disturbs(self._device.kind)):
            self._said = True
            self._notify(f"pairbench: {self._device.selector}: {why}")


def _warn_of_processes(environment: Environment, notify: Callable[[str], None]) -> None:
    observed = environment.rest.get("observed", {})
    processes = {
        environment.device.selector: observed.get("foreign_processes"),
        **observed.get("foreign_processes_beside", {}),
    }
    for selector, foreign in processes.items():
        if foreign:
            notify(f"pairbench: processes {foreign} compute on {selector} too; latencies will be far too long")
