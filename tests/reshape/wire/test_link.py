"""The connection between a job and its service, with a real ROUTER socket in a thread."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from answering import service

from reshape.wire import link
from reshape.wire.codec import encode
from reshape.wire.identity import Identity
from reshape.wire.link import Link
from scheduler.protocol.messages import Abandon, Connect, Failure, GroupReady, Message


@pytest.fixture
def who(tmp_path: Path) -> Identity:
    return Identity(
        server=f"ipc://{tmp_path}/socket", job=3, group=1, token="t", folder=tmp_path, role="join"
    )


def test_a_joining_group_waits_for_its_port_without_limit(
    who: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the group is accelerated, so that hours pass before the service answers."""
    clock = SimpleNamespace(monotonic=lambda: 1e6 * time.monotonic())
    monkeypatch.setattr(link, "time", clock)
    received: list[Message] = []

    def answer(message: Message) -> list[list[bytes]]:
        received.append(message)
        return [encode(Connect(id=message.id, port="port"))] if len(received) >= 5 else []

    connection = Link(who)
    with service(who.server, answer):
        assert connection.wait_for_port(2) == Connect(id=5, port="port")
    connection.close()
    assert all(isinstance(each, GroupReady) and each.size == 2 for each in received)


@pytest.mark.parametrize(
    "reply", [Abandon(id=1, why="not needed"), Failure(id=1, message="not needed")]
)
def test_a_joining_group_ends_at_the_request_of_the_service(who: Identity, reply: Message) -> None:
    connection = Link(who)
    with service(who.server, lambda _: [encode(reply)]):
        answer = connection.wait_for_port(2)
    connection.close()
    assert isinstance(answer, Abandon)
    assert answer.why == "not needed"
