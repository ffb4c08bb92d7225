"""Small JSON files beside the runs: what people decide and what is known of a device. One each, never changed.

Made to be read in a diff: sorted, indented, with a line break at the end. Merging two stores is copying files, as for runs.

New levels that were accepted on purpose: `<store>/accepted/<time>-<hash>.json`, reviewable in a diff.

Where calls spent their time, as far as somebody kept it: `<store>/breakdowns/device=<slug>/<breakdown_id>.json`.

What comparing a device with itself has shown: `<store>/calibrations/device=<slug>/<calibration_id>.json`.

What devices were measured to be capable of, in the user's cache folder: measuring it takes up to a second.
"""

import hashlib
import json
import math
import re
import types
import typing
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from pairbench.model.breakdown import KeptBreakdown
from pairbench.model.comparison import Acceptance, Calibration
from pairbench.model.environment import Environment, device_slug
from pairbench.model.plain import plain
from pairbench.model.record import Series
from pairbench.store.files.conform import UnsoundError
from pairbench.store.files.opened import BROKEN, LARGEST_DOCUMENT, read_content
from pairbench.store.location import StoreLocation
from pairbench.store.reading import Reading, problem_of, renamed_series
from pairbench.store.user_cache import KeptValues, user_folder

Value = TypeVar("Value")

_CHECKSUM = "checksum"


def write_document(
    location: StoreLocation, path: str, kind: str, value: Any, publish: Callable[[str, pa.Buffer], None] | None = None
) -> str:
    """Store a value as a JSON file and return where it lies.

    Args:
        location: The store.
        path: Below its root.
        kind: What it is, with the version of its format, such as `acceptance 1`.
        value: A dataclass of texts, numbers, tuples, mappings and dataclasses.
        publish: What makes the file appear, and its folder; the store itself where not given.

    Raises:
        StoreError: the folder cannot be made.
        StoreFailedError: there is no space or permission.
    """
    body = {"pairbench": kind, **plain(value, canonical=True)}
    checked = {"pairbench": kind, _CHECKSUM: _checksum(body), **body}
    text = json.dumps(checked, indent=2, ensure_ascii=False, allow_nan=False)
    whole, content = f"{location.root}/{path}", pa.py_buffer(f"{text}\n".encode())
    if publish is not None:
        publish(whole, content)
        return whole
    location.make_folder(whole.rpartition("/")[0])
    location.publish(whole, content)
    return whole


def read_documents(location: StoreLocation, folder: str, kind: str, make: type[Value]) -> Reading[tuple[Value, ...]]:
    """Return all values of a kind in a folder and those below, in the order of their paths; none where there is no folder.

    Raises:
        StoreFailedError: the store cannot be listed, or does not give a file.
    """
    listing = location.listing(folder, ".json")
    values, problems = [], list(listing.problems)
    for path in listing.paths:
        try:
            values.append(_document(read_content(location, path, LARGEST_DOCUMENT).to_pybytes(), kind, make))
        except FileNotFoundError:  # gone since it was listed
            continue
        except (UnsoundError, *BROKEN) as error:
            problems.append(problem_of(path, error))
    return Reading(tuple(values), tuple(problems))


def _document(text: bytes, kind: str, make: type[Value]) -> Value:
    """Return what a document says.

    Raises:
        ValueError, RecursionError: it is none, or none of that kind, or something in it has changed since it was written.
    """
    content = json.loads(text)
    if not isinstance(content, dict) or content.get("pairbench") != kind:
        raise ValueError(f'expected a JSON object with "pairbench": "{kind}"')
    if b"\\u" in text:
        json.dumps(content, ensure_ascii=False).encode()  # half a character is no text
    value: Value = _value(make, content, "")
    told = content.pop(_CHECKSUM, None)
    if told is not None and told != _checksum(content):
        raise ValueError(
            f"its content does not fit its checksum; where it was changed on purpose, remove {_CHECKSUM!r} from it"
        )
    return value


def _checksum(body: dict[str, Any]) -> str:
    """Return the checksum of a document, however it is indented."""
    return f"crc32 {zlib.crc32(json.dumps(body, sort_keys=True).encode()):08x}"


def _value(hint: Any, content: Any, name: str) -> Any:
    """Return the value that JSON content was made of.

    Raises:
        ValueError: it does not fit.
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        (hint,) = (item for item in inner if item is not types.NoneType)
        return None if content is None else _value(hint, content, name)
    if is_dataclass(hint):
        return _dataclass(hint, _checked(content, dict, name), name)
    if origin is tuple:
        return tuple(_value(inner[0], item, name) for item in _checked(content, list, name))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if inner[0] is str:
            return {key: _value(inner[1], item, f"{name}.{key}") for key, item in _checked(content, dict, name).items()}
        # An empty mapping does not say what its keys would have been.
        pairs = [_checked(item, dict, name) for item in _checked(content or [], list, name)]
        return {_value(inner[0], pair.get("key"), name): _value(inner[1], pair.get("value"), name) for pair in pairs}
    if hint is float:
        number = float(_checked(content, (int, float), name))
        if not math.isfinite(number):
            raise ValueError(f"{name!r} is {number}, expected a finite number")
        return number
    return _checked(content, hint, name)


def _dataclass(hint: Any, content: dict[str, Any], name: str) -> Any:
    hints = typing.get_type_hints(hint)
    known = {item.name: hints[item.name] for item in fields(hint)}
    if missing := sorted(known.keys() - content.keys()):
        raise ValueError(f"{_inside(name, missing[0])!r} is missing")
    return hint(**{key: _value(known[key], content[key], _inside(name, key)) for key in known})


def _inside(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _checked(content: Any, wanted: type | tuple[type, ...], name: str) -> Any:
    if (isinstance(content, bool) and wanted is not bool) or not isinstance(content, wanted):
        words = {str: "a text", int: "a whole number", dict: "an object", list: "a list", bool: "true or false"}
        expected = words.get(wanted, "a number") if isinstance(wanted, type) else "a number"
        raise ValueError(f"{name or 'it'!r} is {content!r:.60}, expected {expected}")
    return content


_FOLDER = "accepted"
_KIND = "acceptance 1"


def write_acceptance(store: str | Path | StoreLocation, acceptance: Acceptance) -> str:
    """Store an acceptance and return where it lies.

    Raises:
        StoreError: the folder cannot be made.
        StoreFailedError: there is no space or permission.
    """
    what = hashlib.sha256(repr((acceptance.series, acceptance.run_id, acceptance.reason)).encode()).hexdigest()
    when = re.sub(r"[-:]|\..*|\+.*", "", acceptance.at)
    return write_document(StoreLocation.of(store), f"{_FOLDER}/{when}-{what[:10]}.json", _KIND, acceptance)


def read_acceptances(store: str | Path | StoreLocation) -> Reading[dict[Series, Acceptance]]:
    """Return the newest acceptance of each series; none where there is no such store.

    Raises:
        StoreFailedError: the store cannot be listed.
    """
    location = StoreLocation.of(store)
    found, problems = read_documents(location, _FOLDER, _KIND, Acceptance)
    here = (replace(one, series=renamed_series(one.series, location.moved)) for one in found)
    return Reading({one.series: one for one in sorted(here, key=lambda one: one.at)}, problems)


_BREAKDOWNS = "breakdowns"
_BREAKDOWN_KIND = "breakdown 1"


def write_breakdown(store: str | Path | StoreLocation, kept: KeptBreakdown) -> str:
    """Store the breakdowns of a case and return where they lie.

    Raises:
        StoreError: the folder cannot be made.
        StoreFailedError: there is no space or permission.
    """
    return write_document(
        StoreLocation.of(store),
        f"{_BREAKDOWNS}/device={device_slug(kept.device_name)}/{kept.breakdown_id}.json",
        _BREAKDOWN_KIND,
        kept,
    )


def read_breakdowns(store: str | Path | StoreLocation) -> Reading[tuple[KeptBreakdown, ...]]:
    """Return all that were kept, the newest first; none where there is no such store.

    Raises:
        StoreFailedError: the store cannot be listed.
    """
    location = StoreLocation.of(store)
    found, problems = read_documents(location, _BREAKDOWNS, _BREAKDOWN_KIND, KeptBreakdown)
    here = (replace(kept, suite=location.moved.get(kept.suite, kept.suite)) for kept in found)
    return Reading(tuple(sorted(here, key=lambda kept: (kept.made_at, kept.breakdown_id), reverse=True)), problems)


_CALIBRATIONS = "calibrations"
_CALIBRATION_KIND = "calibration 1"


def write_calibration(
    store: str | Path | StoreLocation,
    calibration: Calibration,
    publish: Callable[[str, pa.Buffer], None] | None = None,
) -> str:
    """Store a calibration and return where it lies.

    Args:
        store: A folder or a URL.
        calibration: What is stored.
        publish: What makes the file appear, and its folder; the store itself where not given.

    Raises:
        StoreError: the folder cannot be made.
        StoreFailedError: there is no space or permission.
    """
    path = f"{_CALIBRATIONS}/device={device_slug(calibration.device_name)}/{calibration.calibration_id}.json"
    return write_document(StoreLocation.of(store), path, _CALIBRATION_KIND, calibration, publish)


def read_calibrations(store: str | Path | StoreLocation) -> Reading[tuple[Calibration, ...]]:
    """Return all calibrations, oldest first; none where there is no such store.

    Raises:
        StoreFailedError: the store cannot be listed.
    """
    location = StoreLocation.of(store)
    found, problems = read_documents(location, _CALIBRATIONS, _CALIBRATION_KIND, Calibration)
    here = (
        replace(one, floors={renamed_series(series, location.moved): floor for series, floor in one.floors.items()})
        for one in found
    )
    return Reading(tuple(sorted(here, key=lambda one: one.made_at)), problems)


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
