"""The encoding of messages; all frames that are not a message raise ProtocolError."""

from __future__ import annotations

from contextlib import suppress
from math import inf, nan
from typing import get_args

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reshape.errors import ProtocolError
from reshape.topology import Topology
from reshape.wire.codec import (
    MAX_ANSWER_BYTES,
    MAX_REQUEST_BYTES,
    PROTOCOL,
    decode_application,
    encode,
)
from reshape.wire.messages import ResizeTimes
from scheduler.protocol import messages as m
from scheduler.protocol.messages import decode, request_of, start_of

QUESTION = m.AtResizePoint(
    id=7, job=1, token="t", epoch=2, size=4, registered_bytes=8, iteration=3, iteration_s=0.5
)
MESSAGES = [
    QUESTION,
    m.Hello(job=1, group=0, token="t", size=4, pid=9, topology=Topology("list", sizes=(2, 4))),
    m.ResizeReport(job=1, token="t", serial=3, ok=True, times=ResizeTimes(move_s=0.25)),
    m.Facts(job=1, token="t", facts={"verified": True, "residual": 1e-300, "name": "\xcb\x7f\xf0"}),
    m.Leave(serial=4, groups=[1, 2]),
    m.ChangeJobs.one(3, m.SignalJob(number=10, to_script=True), "2-4"),
    m.ChangeMachine(change=m.RemovePool("slurm", at_once=True)),
    m.RequestForecast(of=m.Submission(["true"], 1, 60.0)),
    m.Stop(),
]
#: Questions of processes, and how an agent arrives, which changes nothing that would be lost.
OF_PROCESSES_TOO = (m.WaitStep, m.ServerInfo, m.AgentArrival)
#: Nested values of MessagePack, which another peer may send.
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)  # fmt: skip
TYPES = st.sampled_from([type(message).__name__ for message in MESSAGES])
FIELDS = st.sampled_from([name for message in MESSAGES for name in message.__struct_fields__])


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_decode_returns_what_was_encoded(message: m.Message) -> None:
    assert decode(encode(message)) == message


def test_a_message_declares_who_may_send_it_and_what_it_may_do() -> None:
    for kind in get_args(m.Message):
        held = kind.kind == "report"
        assert held or not kind.supersedes, "only what is held can be superfluous"
        assert held == bool(kind.senders & {"agent", "job"}) or kind in OF_PROCESSES_TOO
        assert bool(kind.senders) or kind.kind == "command", "the service sends it"


def test_an_application_accepts_no_message_of_commands() -> None:
    assert decode_application(encode(QUESTION)) == QUESTION
    with pytest.raises(ProtocolError, match="Stop"):
        decode_application(encode(m.Stop()))


def check_decode(frames: list[bytes]) -> None:
    """Decode the frames; the only permitted error is ProtocolError."""
    assert isinstance(request_of(frames), int)
    start_of(frames)
    try:
        message = decode(frames)
    except ProtocolError:
        return
    assert decode(encode(message)) == message


@given(st.lists(st.binary(), max_size=3))
def test_arbitrary_frames_raise_protocol_errors_only(frames: list[bytes]) -> None:
    check_decode(frames)


@given(st.binary())
@example(b"\xdd\xff\xff\xff\xff")
@example(b"\x91" * 100_000)
@example(b"\x82\xa4type\xa6Cancel\xa1x" + b"\x91" * 100_000)
@example(b"\x82\xa4type\xa4Jobs\xa4jobs\xdd\xff\xff\xff\xff")
def test_arbitrary_bodies_raise_protocol_errors_only(body: bytes) -> None:
    check_decode([PROTOCOL, body])


@given(TYPES, st.dictionaries(FIELDS, VALUES))
def test_arbitrary_fields_raise_protocol_errors_only(kind: str, fields: dict[str, object]) -> None:
    check_decode([PROTOCOL, msgspec.msgpack.encode({"type": kind, **fields})])


@given(st.sampled_from(MESSAGES), st.data())
def test_damaged_messages_raise_protocol_errors_only(
    message: m.Message, data: st.DataObject
) -> None:
    body = bytearray(encode(message)[1])
    place = data.draw(st.integers(0, len(body) - 1))
    body[place] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(body)))
    check_decode([PROTOCOL, bytes(body)])
    check_decode([PROTOCOL, bytes(body[:end])])


@pytest.mark.parametrize("value", [nan, inf, -inf])
@pytest.mark.parametrize(
    ("message", "field"),
    [
        (QUESTION, "iteration_s"),
        (MESSAGES[2], "times.move_s"),
        (MESSAGES[3], "facts.residual"),
    ],
)
def test_numbers_that_are_not_finite_are_refused(
    message: m.Message, field: str, value: float
) -> None:
    fields = msgspec.to_builtins(message)
    *outer, name = field.split(".")
    inner = fields[outer[0]] if outer else fields
    inner[name] = value
    text = f"{field} is {value}, expected a finite number|>= 0.0 - at `\\$.{field}`"
    with pytest.raises(ProtocolError, match=text):
        decode([PROTOCOL, msgspec.msgpack.encode(fields)])


def test_whole_numbers_that_no_journal_holds_are_refused() -> None:
    body = encode(QUESTION)[1].replace(b"\xa5epoch\x02", b"\xa5epoch\xcf" + b"\xff" * 8)
    with pytest.raises(ProtocolError, match=f"epoch is {2**64 - 1}, expected at most {2**63 - 1}"):
        decode([PROTOCOL, body])
    largest = msgspec.structs.replace(QUESTION, epoch=2**63 - 1)
    assert decode(encode(largest)) == largest


def test_single_precision_numbers_that_are_not_finite_are_refused() -> None:
    body = encode(QUESTION)[1]
    number = msgspec.msgpack.encode(0.5)
    with pytest.raises(ProtocolError, match="iteration_s is inf"):
        decode([PROTOCOL, body.replace(number, b"\xca\x7f\x80\x00\x00")])


def test_frames_that_are_too_large_are_refused_without_decoding() -> None:
    large = [PROTOCOL, bytes(MAX_REQUEST_BYTES + 1)]
    with pytest.raises(ProtocolError, match=r"has 16777217 bytes, at most 16777216 are accepted"):
        decode(large)
    with pytest.raises(ProtocolError, match="malformed"):
        decode(large, MAX_ANSWER_BYTES)


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([], "0 frames"),
        ([PROTOCOL], "1 frames"),
        ([b"http/1", b""], "not a message of this protocol"),
        ([b"reshape/3", b""], "the peer speaks 'reshape/3', this side speaks 'reshape/2'"),
        ([b"reshape/\xff", b""], "the peer speaks"),
    ],
)
def test_frames_of_another_protocol_are_refused(frames: list[bytes], why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        decode(frames)


@pytest.mark.parametrize("depth", [10, 400, 990, 5000, 2_000_000])
@pytest.mark.parametrize("level", [b"\x91", b"\x81\xa1a"], ids=["list", "mapping"])
@pytest.mark.parametrize("innermost", [b"\x01", b"\xcb\x7f\xf0\0\0\0\0\0\0"], ids=["1", "inf"])
def test_deep_nesting_is_refused_or_decoded(depth: int, level: bytes, innermost: bytes) -> None:
    """Also in a field that is skipped, or that may hold any value."""
    deep = level * depth + innermost
    known = b"\x83\xa4type\xaeForecastResult\xa2id\x05\xa5found" + deep
    unknown = b"\x83\xa4type\xa5Hello\xa2id\x05\xa1x" + deep
    for body in (known, unknown, deep):
        frames = [PROTOCOL, body]
        with suppress(ProtocolError):
            decode(frames)
        assert request_of(frames) in (0, 5)
        assert start_of(frames) is None
