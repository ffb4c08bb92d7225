import json
import math
import pickle
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbench.execute import wire
from pairbench.execute.parent.answers import _EXPECTED, Answers
from pairbench.execute.protocol import DescribedSuite, Ended, TimeCase, VerifyCase
from pairbench.execute.wire import NoMessageError, decode, encode, read_head
from pairbench.model.breakdown import Breakdown, KernelCount, ModuleCalls, WorkTotal
from pairbench.model.case import Claim, make_case
from pairbench.model.environment import Device, Environment
from pairbench.model.outcome import (
    Correctness,
    EntrySamples,
    Launches,
    Profile,
    Status,
    Telemetry,
    TimedRound,
    Verification,
)
from pairbench.model.plan import ImplementationDescription
from tests.builders import described
from tests.execute.made import GPU, about, entry, samples_of, timed_round

ENTRY, OTHER = entry("fast"), entry("other")
ALL = {name: kind for several in _EXPECTED.values() for name, kind in several.items()}


OPERATOR = described(
    implementations=(ImplementationDescription(name="baseline", needs=("cuda",), hash="h"),),
    cases=(make_case("op", {"rows": 4, "half": 0.5, "flag": True, "size": (3, 1), "dtype": "float32"}, "smoke"),),
    costs={"op[rows=4]": (1.0, 2.5)},
    claims=(Claim(source="#1", device="a GPU", speedup=(2, 3.5), cases=[{"rows": 4, "size": (3, 1)}]),),
)
DISTANCES: dict[str, Any] = {one.name: 0.0 for one in fields(Correctness)} | {"mean_abs_error": None}
VERSIONS: dict[str, Any] = dict.fromkeys(("driver", "cuda", "cudnn", "triton"))
VERSIONS |= dict.fromkeys(("torch", "python", "hostname", "cpu"), "x")
TIMES = tuple(1000.0 + number / 7 for number in range(500))
MESSAGES = [
    timed_round(ENTRY, blocks=5, telemetry=Telemetry(throttle_reasons=("hot",))),
    *(
        timed_round(blocks=count, entries=tuple(samples_of(one, *TIMES[:count], **more) for one in (ENTRY, OTHER)))
        for count, more in (
            (500, {"position": (0, 2) * 250, "at_ns": tuple(range(500)), "host_ns": TIMES}),
            # Samples that are not of all blocks.
            (5, {"stream_ns": (1.0,) * 5}),
            (5, {"stream_ns": (None, 1.0, None, None, 2.0)}),
            (5, {"stream_ns": (1.0,) * 200}),
        )
    ),
    DescribedSuite(operators=(OPERATOR,)),
    Ended(entry=None, status=Status.OOM, reason="déjà vu"),
    Verification(
        entry=ENTRY,
        status=Status.VERIFIED,
        correctness=Correctness(
            **{**DISTANCES, "max_abs_error": math.inf, "rel_l2_error": 1e-300, "oracle_ratio": 0.1 + 0.2}
        ),
    ),
    Profile(
        entry=ENTRY,
        launches=Launches(status="exact", kernel_counts=(KernelCount(name="k", count=2, total_ns=3.5),)),
    ),
    Environment(
        **VERSIONS,
        device=replace(GPU, capability=(9, 0), beside=(replace(GPU, selector="cuda:1"),)),
        rest={"a": [1, 2.5, None, {"b": True}]},
    ),
    Breakdown(
        entry=ENTRY,
        calls=1,
        modules=(ModuleCalls(name="m", class_name="M", calls=1),),
        pieces=(WorkTotal(module="m", ops=("add",), count=1, ns=2.0),),
        spots=(),
        whole_ns=2.0,
    ),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_what_is_sent_comes_back_as_it_was(message: Any) -> None:
    found = decode(encode(message), ALL)
    assert found == message and type(found) is type(message)
    assert pickle.dumps(found)


def test_every_answer_to_every_job_can_be_read() -> None:
    """Each field of each dataclass that may come has an annotation that says what it may hold."""
    seen, waiting = set(), list(ALL.values())
    while waiting:
        kind = waiting.pop()
        if kind in seen or not isinstance(kind, type) or not is_dataclass(kind):
            continue
        seen.add(kind)
        for hint in get_type_hints(kind).values():
            wire._reader(hint)
            waiting += [hint, *get_args(hint), *(inner for one in get_args(hint) for inner in get_args(one))]
    assert {Device, EntrySamples, Claim, WorkTotal} <= seen


(ENVIRONMENT,) = [message for message in MESSAGES if isinstance(message, Environment)]
LINEAR, FAILED = np.linspace(1, 2, 40), Ended(entry=None, status=Status.FAILED, reason="")


@pytest.mark.parametrize(
    ("sent", "come"),
    [
        pytest.param(
            samples_of(ENTRY, *LINEAR, at_ns=(np.int64(3),) * 40),
            samples_of(ENTRY, *LINEAR.tolist(), at_ns=(3,) * 40),
            id="NumPy's numbers are numbers",
        ),
        pytest.param(
            replace(ENVIRONMENT, rest={"limit": Path("/x"), "clocks": (1, 2)}),
            replace(ENVIRONMENT, rest={"limit": "/x", "clocks": [1, 2]}),
            id="what a driver says in a class of its own is a text",
        ),
        pytest.param(
            replace(FAILED, reason="a\udcffb"),
            replace(FAILED, reason="a\\udcffb"),
            id="halves of characters are escapes",
        ),
    ],
)
def test_what_no_message_can_hold_comes_in_another_form(sent: Any, come: Any) -> None:
    found = decode(encode(sent), {**ALL, "EntrySamples": EntrySamples})
    assert found == come and getattr(found, "hash", None) == getattr(sent, "hash", None)


def test_what_is_no_data_cannot_be_sent() -> None:
    with pytest.raises(TypeError, match="cannot hold a object"):
        encode(Ended(entry=None, status=Status.OOM, reason=object()))  # type: ignore[arg-type]


def written(name: str, fields: Any, numbers: bytes = b"") -> bytes:
    text = json.dumps([name, fields]).encode()
    return wire._HEAD.pack(wire._MARK, len(text), len(numbers)) + text + numbers


ENDED = {"entry": None, "status": "failed", "reason": "r"}
PACKED = wire._fields(samples_of(ENTRY, 1.0), bytearray())
assert decode(written("EntrySamples", PACKED), {"EntrySamples": EntrySamples}) == samples_of(ENTRY, 1.0)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("os.system", {}),
        ("VerifyCase", {}),
        ("Ended", {}),
        ("Ended", {**ENDED, "more": 1}),
        ("Ended", {**ENDED, "status": "sublime"}),
        ("Ended", {**ENDED, "reason": 3}),
        ("Ended", {**ENDED, "entry": {"implementation": 1, "mode": "eager"}}),
        ("Ended", [ENDED]),
        ("EntrySamples", {**PACKED, "position": [10**30]}),
        ("EntrySamples", {**PACKED, "position": [True]}),
        ("EntrySamples", {**PACKED, "position": {"packed": ["q", 0, 1]}}),
        ("EntrySamples", {**PACKED, "position": {"packed": ["q", -8, 1]}}),
        ("EntrySamples", {**PACKED, "position": {"packed": ["u", 0, 0]}}),
        ("EntrySamples", {**PACKED, "position": {"packed": ["d", 0, 0]}}),
        ("EntrySamples", {**PACKED, "call_ns": {"packed": ["d", 0, 10**12]}}),
        ("EntrySamples", {**PACKED, "call_ns": ["1"]}),
        ("EntrySamples", {**PACKED, "autotuned": {"packed": ["d", 0, 0]}}),
    ],
)
def test_what_the_annotations_do_not_say_is_refused(name: str, fields: Any) -> None:
    with pytest.raises(NoMessageError):
        decode(written(name, fields), {"Ended": Ended, "EntrySamples": EntrySamples})


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[" * 100_000, b"\xff", b"[1" + b"0" * 10_000 + b"]", b'["Ended"]', b"null", b'[["Ended"], {}]'],
)
def test_texts_that_are_no_messages(text: bytes) -> None:
    with pytest.raises(NoMessageError):
        decode(wire._HEAD.pack(wire._MARK, len(text), 0) + text, ALL)


def test_a_head_is_looked_at_as_it_comes() -> None:
    whole = encode(MESSAGES[0])
    assert [read_head(whole[:count]) for count in range(wire._HEAD.size)] == [None] * wire._HEAD.size
    frame = read_head(whole)
    assert frame is not None and frame.size == len(whole)
    for wrong in (b"x", b"paix", wire._HEAD.pack(wire._MARK, 2**31, 0), wire._HEAD.pack(wire._MARK, 0, 2**40)):
        with pytest.raises(NoMessageError):
            read_head(wrong)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damaged_messages_are_refused_or_are_messages(data: st.DataObject) -> None:
    """Whatever a worker writes, its parent has a value of the right type, or a sentence."""
    content = bytearray(encode(data.draw(st.sampled_from(MESSAGES))))
    for place, byte in data.draw(
        st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=4)
    ):
        content[place] = byte
    try:
        found = decode(content, ALL)
    except NoMessageError:
        return
    assert type(found) in ALL.values()
    encode(found)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(PACKED) + sorted(ENDED)), inner),
    max_leaves=8,
)


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(sorted(ALL)), fields=_JSON, numbers=st.binary(max_size=32))
def test_made_up_messages_are_refused_or_are_messages(name: str, fields: Any, numbers: bytes) -> None:
    try:
        found = decode(written(name, fields, numbers), ALL)
    except NoMessageError:
        return
    assert type(found) is ALL[name]


def test_a_field_that_no_message_can_have_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="complex"):
        wire._reader(complex)


def test_samples_travel_as_bytes_and_not_as_text() -> None:
    """5,000 samples of 10 entries: as JSON a round would take some 200 ms to read."""
    message = timed_round(*(entry(f"v{number}") for number in range(10)), blocks=5000)
    encoded = encode(message)
    frame = read_head(encoded)
    assert frame is not None and frame.text < frame.numbers / 20
    assert decode(encoded, ALL) == message


VERIFY = VerifyCase(**about(ENTRY), automatic_impostors=False, declared_impostors=())
TIME = TimeCase(**about(ENTRY), round=0, capturable=())


def a_round(**changes: Any) -> TimedRound:
    """Return a round of five samples of the entry that was asked for; changes are of its samples."""
    return timed_round(blocks=5, entries=(samples_of(ENTRY, *changes.pop("call_ns", (1.0,) * 5), **changes),))


@pytest.mark.parametrize(
    ("job", "answers"),
    [
        (VERIFY, [Verification(entry=OTHER, status=Status.VERIFIED)]),
        (VERIFY, [Verification(entry=ENTRY, status=Status.MEASURED)]),
        (VERIFY, [Ended(entry=OTHER, status=Status.FAILED, reason="")]),
        (VERIFY, [Ended(entry=ENTRY, status=Status.VERIFIED, reason="")]),
        (TIME, [timed_round(OTHER, blocks=5)]),
        (TIME, [timed_round(ENTRY, ENTRY, blocks=5)]),
        (TIME, [timed_round(ENTRY, blocks=0)]),
        (TIME, [a_round(), a_round()]),
        (TIME, [replace(a_round(), stop_reason="bored")]),
        (TIME, [replace(a_round(), entries=())]),
        (TIME, [a_round(position=(0,))]),
        (TIME, [a_round(host_ns=(1.0,))]),
        (TIME, [replace(a_round(), throttled=(False,) * 4)]),
        (TIME, [a_round(call_ns=(1.0, 2.0, -1.0, 3.0, 4.0))]),
        (TIME, [a_round(call_ns=(1.0, 2.0, math.nan, 3.0, 4.0))]),
        (TIME, [a_round(stream_ns=(1.0,))]),
        (TIME, [a_round(stream_ns=(None, -1.0, None, 3.0, 4.0))]),
    ],
)
def test_an_answer_that_was_not_asked_for_or_contradicts_itself(job: Any, answers: list[Any]) -> None:
    checks = Answers(job)
    for answer in answers[:-1]:
        checks.check(answer)
    with pytest.raises(NoMessageError):
        checks.check(answers[-1])


def test_answers_that_fit() -> None:
    Answers(VERIFY).check(Verification(entry=ENTRY, status=Status.VERIFIED))
    Answers(TIME).check(Ended(entry=None, status=Status.FAILED, reason=""))
    Answers(TIME).check(a_round(stream_ns=(None, 1.0, None, None, 2.0)))
