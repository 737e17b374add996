"""The public bytes of a handshake: recorded lengths, cut at every byte, and what is none."""

from __future__ import annotations

import pytest
from handshakes import GREETING, HELLO, INITIATE, SHORT_INITIATE, WELCOME

from scheduler.service.gate_connections import Handshake


def handshake(*parts: bytes) -> Handshake:
    made = Handshake()
    for part in parts:
        assert made.add(part)
    return made


def test_lengths() -> None:
    assert (len(GREETING), len(HELLO), len(INITIATE), len(WELCOME)) == (64, 202, 301, 234)


@pytest.mark.parametrize("initiate", [INITIATE, SHORT_INITIATE])
def test_initiate_is_held_back_until_it_is_complete(initiate: bytes) -> None:
    sent = GREETING + HELLO + initiate
    made, parts = Handshake(), list[bytes]()
    for number in range(len(sent)):
        assert made.add(sent[number : number + 1])
        assert made.has_signature == (number >= 9)
        assert made.is_complete == (number == len(sent) - 1)
        parts.append(made.to_pass())
    assert b"".join(parts) == GREETING + HELLO
    assert [len(part) for part in parts if part] == [10, 1, 53, 202], "whole steps"
    assert made.initiate() == initiate
    assert made.initiate() == made.to_pass() == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n",
        b"\xff" + bytes(9),
        GREETING + b"\x04\x26\x05READY",
        GREETING + HELLO + b"\x04\x20\x07MESSAGE",
        GREETING + HELLO + b"\x00",
        GREETING + HELLO + b"\x06" + b"\xff" * 8 + b"\x08INITIATE",
        GREETING + HELLO + INITIATE + b"x",
    ],
    ids=["HTTP", "signature", "no HELLO", "message", "no command", "long", "more"],
)
def test_what_is_no_handshake(sent: bytes) -> None:
    assert not Handshake().add(sent)
    made = Handshake()
    assert not all(made.add(sent[number : number + 1]) for number in range(len(sent)))


def test_the_answer_of_the_service_is_recognised() -> None:
    for name, result in ((b"READY", True), (b"ERROR", False)):
        made, answer = handshake(GREETING), WELCOME + b"\x04\x41\x05" + name + bytes(60)
        results = [made.answer(answer[at : at + 1]) for at in range(len(answer))]
        assert results[len(WELCOME) + 7] is result
        assert set(results[: len(WELCOME) + 7]) == {None}
