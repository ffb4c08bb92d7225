"""Files of pytest-benchmark: a folder for each device, the environment in each file, and no comparison of unlike devices."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from pairbench.errors import UsageError
from pairbench.model.environment import Device

_UNSTEADY = ("hz_actual", "hz_actual_friendly")
"""The CPU's clock in the moment: with it no two files come from equal machines."""


def of_device(storage: str, device: Device) -> str:
    """Return where a device's files belong: by itself pytest-benchmark keeps those of all GPUs in one series.

    Args:
        storage: As `--benchmark-storage` has it, a path or a URI; one that is no folder is returned as it is.
        device: The device.
    """
    scheme, separator, path = storage.rpartition("://")
    if scheme not in ("", "file"):
        return storage
    return f"{scheme}{separator}{PurePosixPath(path) / device.slug}"


def describe_machine(machine_info: dict[str, Any], columns: Mapping[str, Any]) -> None:
    """Put an environment into what pytest-benchmark says of the machine, and take out what is never twice the same."""
    from pairbench.integrations.pytest_benchmark.fields import KEY, steady

    machine_info[KEY] = steady(columns)
    for name in _UNSTEADY:
        if isinstance(machine_info.get("cpu"), dict):
            machine_info["cpu"].pop(name, None)


def refuse_unlike(machine_info: Mapping[str, Any], compared: Mapping[str, Any]) -> None:
    """Refuse a file of another device.

    Raises:
        UsageError: it is one.
    """
    from pairbench.integrations.pytest_benchmark.fields import KEY

    ours, theirs = machine_info.get(KEY), compared.get("machine_info", {}).get(KEY)
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return
    here, there = (side.get("device_name") for side in (ours, theirs))
    if here != there:
        raise UsageError(
            f"--benchmark-compare: the file of {compared.get('datetime', 'unknown time')} was measured on {there}, this is "
            f"{here}; only runs of one device model can be compared"
        )
