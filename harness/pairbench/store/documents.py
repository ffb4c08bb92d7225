"""Small JSON files beside the runs: accepted levels, states of events, breakdowns and calibrations. Each is written once and never changed.

They are made to be read in a diff: sorted, indented, with a line break at the end. Merging two stores is copying files, as for runs.
"""

import hashlib
import json
import math
import re
import types
import typing
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any

import pyarrow as pa

from pairbench.model.breakdown import KeptBreakdown
from pairbench.model.comparison import Acceptance, Calibration
from pairbench.model.environment import device_slug
from pairbench.model.plain import KINDS, plain
from pairbench.model.record import Series
from pairbench.model.site import Triage
from pairbench.store.files import Reading, Value
from pairbench.store.location import Publish, Store, StoreLocation
from pairbench.store.opened import BROKEN, LARGEST_DOCUMENT, problem_of, read_content

_CHECKSUM = "checksum"
Document = Acceptance | Triage | KeptBreakdown | Calibration
FORMS: dict[type, tuple[str, str, tuple[str, ...]]] = {
    Acceptance: ("accepted", "acceptance 1", ("at",)),
    Triage: ("triage", "triage 1", ("at",)),
    KeptBreakdown: ("breakdowns", "breakdown 1", ("made_at", "breakdown_id")),
    Calibration: ("calibrations", "calibration 1", ("made_at",)),
}
"""The folder of each kind, its name with the version of its format, and the fields that say how old one is."""


def write_document(store: Store, value: Document, publish: Publish | None = None) -> str:
    """Store a value as a JSON file and return its path; `publish` writes the file where given, and makes its folder."""
    location, (folder, kind, _) = StoreLocation.of(store), FORMS[type(value)]
    body = {"pairbench": kind, **plain(value, canonical=True)}
    body = {"pairbench": kind, _CHECKSUM: _checksum(body), **body}
    text = json.dumps(body, indent=2, ensure_ascii=False, allow_nan=False)
    path = f"{location.root}/{folder}/{_name_of(value)}.json"
    if publish is None:
        location.make_folder(path.rpartition("/")[0])
    (publish or location.publish)(path, pa.py_buffer(f"{text}\n".encode()))
    return path


def _name_of(value: Document) -> str:
    match value:
        case KeptBreakdown():
            return f"device={device_slug(value.device_name)}/{value.breakdown_id}"
        case Calibration():
            return f"device={device_slug(value.device_name)}/{value.calibration_id}"
        case Acceptance():
            said: tuple[object, ...] = (value.series, value.run_id, value.reason)
        case Triage():
            said = (value,)
    time = re.sub(r"[-:]|\..*|\+.*", "", value.at)
    return f"{time}-{hashlib.sha256(repr(said).encode()).hexdigest()[:10]}"


def read_documents(store: Store, make: type[Value]) -> Reading[tuple[Value, ...]]:
    """Return all values of a kind, oldest first, then in the order of their paths; none where there is no such store."""
    location, (folder, kind, age) = StoreLocation.of(store), FORMS[make]
    listing = location.listing(folder, ".json")
    values, problems = [], list(listing.problems)
    for path in listing.value:
        try:
            text = read_content(location, path, LARGEST_DOCUMENT).to_pybytes()
            values.append(_document(text, kind, make, location.moved))
        except FileNotFoundError:  # gone since it was listed
            continue
        except BROKEN as error:
            problems.append(problem_of(path, error))
    return Reading(tuple(sorted(values, key=attrgetter(*age))), tuple(problems))


def _document(text: bytes, kind: str, make: type[Value], moved: Mapping[str, str]) -> Value:
    content = json.loads(text)
    if not isinstance(content, dict) or content.get("pairbench") != kind:
        raise ValueError(f'expected a JSON object with "pairbench": "{kind}"')
    if b"\\u" in text:
        json.dumps(content, ensure_ascii=False).encode()  # half a character is no text
    value: Value = _value(make, _renamed(content, moved) if moved else content, "")
    if content.pop(_CHECKSUM, None) not in (None, _checksum(content)):
        remedy = f"where it was changed on purpose, remove {_CHECKSUM!r} from it"
        raise ValueError(f"its content does not fit its checksum; {remedy}")
    return value


def _renamed(content: Any, moved: Mapping[str, str]) -> Any:
    if isinstance(content, list):
        return [_renamed(item, moved) for item in content]
    if not isinstance(content, dict):
        return content
    renamed = {key: _renamed(item, moved) for key, item in content.items()}
    suite = renamed.get("suite")
    return {**renamed, "suite": moved[suite]} if isinstance(suite, str) and suite in moved else renamed


def _checksum(body: dict[str, Any]) -> str:
    return f"crc32 {zlib.crc32(json.dumps(body, sort_keys=True).encode()):08x}"


def _value(hint: Any, content: Any, name: str) -> Any:
    # Raises ValueError where the content does not fit the type.
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        (hint,) = (item for item in inner if item is not types.NoneType)
        return None if content is None else _value(hint, content, name)
    if is_dataclass(hint):
        _checked(content, dict, name)
        hints, prefix = typing.get_type_hints(hint), f"{name}." if name else ""
        known = {item.name: hints[item.name] for item in fields(hint)}
        if missing := sorted(known.keys() - content.keys()):
            raise ValueError(f"{prefix + missing[0]!r} is missing")
        make: Any = hint
        return make(**{key: _value(known[key], content[key], prefix + key) for key in known})
    if origin is tuple:
        return tuple(_value(inner[0], item, name) for item in _checked(content, list, name))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if inner[0] is str:
            return {key: _value(inner[1], item, f"{name}.{key}") for key, item in _checked(content, dict, name).items()}
        # An empty mapping is written the same way whatever its keys are.
        pairs = [_checked(item, dict, name) for item in _checked(content or [], list, name)]
        return {_value(inner[0], pair.get("key"), name): _value(inner[1], pair.get("value"), name) for pair in pairs}
    if hint is float:
        number = float(_checked(content, (int, float), name))
        if not math.isfinite(number):
            raise ValueError(f"{name!r} is {number}, expected a finite number")
        return number
    return _checked(content, hint, name)


def _checked(content: Any, wanted: type | tuple[type, ...], name: str) -> Any:
    if (isinstance(content, bool) and wanted is not bool) or not isinstance(content, wanted):
        raise ValueError(f"{name or 'it'!r} is {content!r:.60}, expected {KINDS.get(wanted, 'a number')}")
    return content


def read_acceptances(store: Store) -> Reading[dict[Series, Acceptance]]:
    """Return the newest acceptance of each series; none where there is no such store."""
    stored, problems = read_documents(store, Acceptance)
    return Reading({acceptance.series: acceptance for acceptance in stored}, problems)


def read_triages(store: Store) -> Reading[tuple[Triage, ...]]:
    """Return all states that events were given, oldest first; none where there is no such store."""
    return read_documents(store, Triage)


def read_breakdowns(store: Store) -> Reading[tuple[KeptBreakdown, ...]]:
    """Return all breakdowns, the newest first; none where there is no such store."""
    stored, problems = read_documents(store, KeptBreakdown)
    return Reading(stored[::-1], problems)


def read_calibrations(store: Store) -> Reading[tuple[Calibration, ...]]:
    """Return all calibrations, oldest first; none where there is no such store."""
    return read_documents(store, Calibration)
