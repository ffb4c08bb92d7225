"""What a worker may write to its parent, damaged in any way: the parent has a value that it asked for, or a sentence, and soon."""

import json
import pickle
import socket
import struct
import time
from typing import Any

from hypothesis import Phase, given
from hypothesis import strategies as st

from pairbench.execute.parent.answers import Answers
from pairbench.execute.parent.pool import Line
from pairbench.execute.protocol import Job
from pairbench.execute.wire import NoMessageError, encode
from pairbench.model.outcome import TimedRound, Verification
from tests.execute.test_wire import MESSAGES, TIME, VERIFY
from tests.faults.imports import damaged, fuzzing
from tests.faults.seen import Seen

LONG_S = 5.0
_HEAD = struct.Struct("!4sIQ")
_JOBS: dict[type, Job] = {TimedRound: TIME, Verification: VERIFY}
_WHOLE = [encode(one) for one in MESSAGES]
_GOOD = [(job, encode(next(one for one in MESSAGES if type(one) is kind))) for kind, job in _JOBS.items()]
_EXECUTED: list[str] = []


class Bomb:
    def __reduce__(self) -> Any:
        return _EXECUTED.append, ("executed",)


def tell(examples: int) -> Seen:
    """Write so many damaged messages to a parent's line, each between two good ones."""
    found = Seen()

    @fuzzing(max_examples=examples, phases=[Phase.generate])
    @given(st.data())
    def each(data: st.DataObject) -> None:
        job, good = _GOOD[data.draw(st.integers(0, len(_GOOD) - 1))]
        whole = _WHOLE[data.draw(st.integers(0, len(_WHOLE) - 1))]
        how = data.draw(st.sampled_from([_other_fields, _other_fields, _other_bytes, _cut, _no_message]))
        _one(found, job, good, data.draw(how(whole)))

    each()
    if _EXECUTED:
        found.wrong.append(f"wrong: {len(_EXECUTED)} messages were executed")
    return found


@st.composite
def _other_fields(draw: st.DrawFn, whole: bytes) -> bytes:
    """Return a message of which some fields hold something else."""
    _, n_text, n_numbers = _HEAD.unpack_from(whole)
    text = whole[_HEAD.size : _HEAD.size + n_text]
    changed = json.dumps(draw(damaged({"": json.loads(text)})).get("")).encode()
    return _HEAD.pack(b"pair", len(changed), n_numbers) + changed + whole[_HEAD.size + n_text :]


@st.composite
def _other_bytes(draw: st.DrawFn, whole: bytes) -> bytes:
    """Return a message of which some bytes are others, or are gone, or are there twice; often some of its head."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, _HEAD.size) | st.integers(0, len(content) - 1))
        length = draw(st.integers(0, 8))
        content[place : place + length] = draw(st.binary(max_size=8))
    return bytes(content)


@st.composite
def _cut(draw: st.DrawFn, whole: bytes) -> bytes:
    return whole[: draw(st.integers(0, len(whole) - 1))]


@st.composite
def _no_message(draw: st.DrawFn, whole: bytes) -> bytes:
    """Return bytes that are none, one of them a value that runs when it is unpickled."""
    bomb = pickle.dumps(Bomb())
    framed = [
        bomb,
        struct.pack("!Q", len(bomb)) + bomb,
        struct.pack("!i", len(bomb)) + bomb,
        _HEAD.pack(b"pair", len(bomb), 0) + bomb,
        _HEAD.pack(b"pair", 2**31, 2**60) + whole,
        b"Traceback (most recent call last):\n",
    ]
    return draw(st.binary(max_size=200) | st.sampled_from(framed))


def _one(found: Seen, job: Job, good: bytes, bad: bytes) -> None:
    found.counts["messages"] += 1
    ours, theirs = socket.socketpair()
    began = time.monotonic()
    with ours, theirs:
        theirs.settimeout(LONG_S)
        theirs.sendall(good + bad + good)
        theirs.shutdown(socket.SHUT_WR)
        line, answers, taken = Line(ours), Answers(job), 0
        try:
            while True:
                answer = line.receive(answers.expected, lambda: time.monotonic() > began + LONG_S)
                assert type(answer) in answers.expected.values(), f"a {type(answer)} came"
                answers.check(answer)
                taken += 1
        except NoMessageError:
            found.counts["refused in a sentence"] += 1
        except EOFError:
            found.counts["taken for what they say"] += 1
        except Exception as error:  # noqa: BLE001 (whatever it is, it is what is looked for)
            found.wrong.append(f"a traceback: {type(error).__name__}: {error} for {bad[:80]!r}")
        if not taken:
            found.wrong.append(f"a good message before {bad[:80]!r} is lost")
    if time.monotonic() - began > LONG_S:
        found.wrong.append(f"it hangs: {bad[:80]!r} took {time.monotonic() - began:.0f} s")
