"""The connection between a job and its service, with a real ROUTER socket in a thread."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from answering import service

from reshape.wire import link
from reshape.wire.codec import encode
from reshape.wire.identity import Identity
from reshape.wire.link import Link
from scheduler.protocol.messages import (
    Abandon,
    AtResizePoint,
    Connect,
    Done,
    Facts,
    Failure,
    GroupReady,
    Message,
)


@pytest.fixture
def who(tmp_path: Path) -> Identity:
    return Identity(
        server=f"ipc://{tmp_path}/socket", job=3, group=1, token="t", folder=tmp_path, role="join"
    )


def test_a_joining_group_waits_for_its_port_without_limit(
    who: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the group is accelerated, so that hours pass before the service answers."""
    clock = SimpleNamespace(monotonic=lambda: 1e6 * time.monotonic(), sleep=lambda _: None)
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


def test_a_joining_group_does_not_compute_while_its_access_file_is_gone(
    who: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job on several hosts names its service by a file, which may be written again."""
    who = msgspec.structs.replace(who, server=str(who.folder / "access.json"))
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(link, "time", SimpleNamespace(monotonic=time.monotonic, sleep=nap))
    with pytest.raises(KeyboardInterrupt):
        Link(who).wait_for_port(2)
    assert sum(naps) >= 0.5


def test_messages_of_a_job_whose_service_is_away_are_as_many_as_their_names(who: Identity) -> None:
    connection = Link(who)
    received: list[Message] = []

    def answer(message: Message) -> list[list[bytes]]:
        received.append(message)
        return [encode(Done(id=message.id))] if isinstance(message, Facts) else []

    for step in range(1000):
        connection.facts({"residual": 1.0 / (step + 1), "step": step})
        connection.facts({"verified": True})
        connection.ask(
            AtResizePoint(
                job=3,
                token="t",
                epoch=0,
                size=1,
                registered_bytes=0,
                iteration=step,
                iteration_s=1.0,
            )
        )
    with service(who.server, answer):
        connection.close()
    facts = [message.facts for message in received if isinstance(message, Facts)]
    assert facts == [{"residual": 0.001, "step": 999}, {"verified": True}]


def test_an_answer_to_any_sending_of_a_message_confirms_it(who: Identity) -> None:
    """The service confirms the first sending when the job has repeated it."""
    connection = Link(who)
    received: list[int] = []

    def answer(message: Message) -> list[list[bytes]]:
        if not isinstance(message, Facts):
            return []
        received.append(message.id)
        return [encode(Done(id=received[0]))] if len(received) == 3 else []

    with service(who.server, answer):
        connection.facts({"verified": True})
        while len(received) < 3:
            connection.ask(
                AtResizePoint(
                    job=3,
                    token="t",
                    epoch=0,
                    size=1,
                    registered_bytes=0,
                    iteration=1,
                    iteration_s=1.0,
                )
            )
        connection.close()
    assert len(received) >= 3  # a slow answer may cross a repetition
    assert len(set(received)) == 1
