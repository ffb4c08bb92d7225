"""What devices were measured to be capable of, in the user's cache folder: measuring it takes up to a second."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from pairbench.model.environment import Environment
from pairbench.store.user_cache import KeptValues, user_folder

_MOST = 100
_KEY = "ceilings"


class KeptCeilings:
    """The measured ceilings of the roofline by device, driver and version of torch."""

    def __init__(self, folder: Path | None = None) -> None:
        """Read nothing yet.

        Args:
            folder: Where such things are kept; the user's cache folder where it is not given.
        """
        self._values = KeptValues((folder or user_folder()) / "ceilings.json", most=_MOST)

    def put_in(self, environment: Environment) -> Environment | None:
        """Return an environment with the ceilings that are kept for it; None where none are."""
        values = self._values.read().get(_key(environment), {})
        known = {name: float(rate) for name, rate in values.items() if isinstance(rate, int | float) and rate > 0}
        if not known:
            return None
        observed = {**_observed(environment), _KEY: known}
        return replace(environment, rest={**environment.rest, "observed": observed})

    def keep(self, environment: Environment) -> None:
        """Keep the ceilings of an environment, if it has some."""
        if ceilings := _observed(environment).get(_KEY):
            self._values.keep({_key(environment): ceilings})


def _observed(environment: Environment) -> dict[str, Any]:
    observed: dict[str, Any] = environment.rest.get("observed", {})
    return observed


def _key(environment: Environment) -> str:
    device = environment.device
    versions = (environment.driver, environment.cuda, environment.torch)
    return json.dumps([device.kind, device.name, device.uuid, environment.hostname, *versions])
