"""What pytest collects: the devices and operators that a worker finds, planned like a run, all tiers of them."""

import functools
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from pairbench.config import Config
from pairbench.errors import SuiteError
from pairbench.execute.parent.pool import WorkerContext
from pairbench.execute.parent.scout import Scout, Survey
from pairbench.model.case import TIERS
from pairbench.model.environment import Device
from pairbench.model.plan import BrokenSuite, OperatorDescription, PlannedCase
from pairbench.plan import Subset, make_plan, tiers_for
from pairbench.workflow.setup import equipment_of, pick_devices, shown


class SuiteLoader:
    """Loads suites as pytest comes to them; one worker does it all, so that torch is imported once."""

    def __init__(self, config: Config, context: WorkerContext, device: str, files: Iterable[Path]) -> None:
        """Start the worker.

        Args:
            config: The settings.
            context: Where workers run.
            device: The device, as `--device` names it.
            files: The suites that pytest will come to, as far as that can be told beforehand: they are loaded meanwhile.
        """
        self._config = config
        self._settings = replace(context.settings, tiers=TIERS)
        self._selector = device
        self._scout = Scout(context)
        self._operators: dict[str, tuple[OperatorDescription, ...]] = {}
        self._thread = ThreadPoolExecutor(1)  # one, for a worker takes one job after the other
        self._devices = self._thread.submit(self._scout.devices)
        self._loading = {path.resolve(): self._load(path) for path in files}

    def _load(self, path: Path) -> Future[tuple[OperatorDescription, ...] | BrokenSuite]:
        return self._thread.submit(self._scout.describe, shown(path, self._config), path.resolve())

    def close(self) -> None:
        """End the worker."""
        self._thread.shutdown(cancel_futures=True)
        self._scout.__exit__()

    @functools.cached_property
    def devices(self) -> tuple[Device, ...]:
        """All devices of the machine, the CPU last."""
        return self._devices.result()

    @functools.cached_property
    def device(self) -> Device:
        """The device that is measured.

        Raises:
            UsageError: there is no such device.
        """
        return pick_devices(self._selector, self.devices)[0]

    def tiers(self) -> tuple[str, ...]:
        """Return the tiers that are run where nobody asks for others."""
        return tiers_for(self.device, self._config.settings, edge=True)

    def plan(self, path: Path) -> tuple[PlannedCase, ...]:
        """Return every case of a suite file.

        Raises:
            SuiteError: it cannot be loaded.
        """
        loaded = (self._loading.get(path.resolve()) or self._load(path)).result()
        if isinstance(loaded, BrokenSuite):
            raise SuiteError(loaded.reason)
        self._operators[shown(path, self._config)] = loaded
        return make_plan(loaded, (), equipment_of(self.device, self.devices), self._settings, Subset()).cases

    def survey(self) -> Survey:
        """Return everything that was loaded."""
        operators = tuple(operator for several in self._operators.values() for operator in several)
        return Survey(devices=self.devices, operators=operators, broken=())
