"""The synchronous client, connected to a real ROUTER socket in a thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from answering import service

from reshape.errors import ProtocolError, ReshapeError, ServiceUnavailable
from reshape.wire.codec import encode
from reshape.wire.connection import SERVER_FILE, Connection, service_in
from scheduler.protocol.client import ServiceConnection
from scheduler.protocol.messages import (
    ChangeJobs,
    Done,
    Failure,
    ListJobs,
    Message,
    Submitted,
    UpdateJob,
    Wait,
    decode,
)


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/socket"


def test_an_answer_is_paired_by_its_id_and_others_are_dropped(endpoint: str) -> None:
    def answer(message: Message) -> list[list[bytes]]:
        return [encode(Done(id=message.id + 77)), encode(Submitted(id=message.id, job=5))]

    with service(endpoint, answer), ServiceConnection(endpoint) as client:
        for _ in range(3):
            question = ListJobs()
            assert client.request(question, 5.0) == Submitted(id=question.id, job=5)


def test_a_failure_is_raised_with_its_message(endpoint: str) -> None:
    with (
        service(endpoint, lambda m: [encode(Failure(id=m.id, message="no job 9"))]),
        ServiceConnection(endpoint) as client,
        pytest.raises(ReshapeError, match=r"^no job 9$"),
    ):
        client.request(Wait(job=9), 5.0)


def test_the_error_without_a_service_names_endpoint_and_fix(endpoint: str) -> None:
    with ServiceConnection(endpoint) as client:
        with pytest.raises(ServiceUnavailable, match=f"{endpoint}.*reshape serve"):
            client.request(ListJobs(), 0.2)
        with pytest.raises(ServiceUnavailable):
            client.send(ListJobs())


def test_a_service_that_does_not_answer_is_unavailable(endpoint: str) -> None:
    with (
        service(endpoint, lambda _: []),
        ServiceConnection(endpoint) as client,
        pytest.raises(ServiceUnavailable, match=r"within 0\.3 s"),
    ):
        client.request(ListJobs(), 0.3)


def test_requests_that_were_given_up_are_not_sent_after_a_reconnection(endpoint: str) -> None:
    seen: list[Message] = []

    def answer(message: Message) -> list[list[bytes]]:
        seen.append(message)
        return [encode(Done(id=message.id))]

    with ServiceConnection(endpoint) as client:
        with service(endpoint, answer):
            client.request(ListJobs(job=1), 5.0)
        time.sleep(0.1)
        for _ in range(20):  # the next service must not receive these
            with pytest.raises(ServiceUnavailable):
                client.request(ListJobs(job=2), 0.0)
        with service(endpoint, answer):
            assert isinstance(client.request(ListJobs(job=3), 5.0), Done)
    assert [m.job for m in seen if isinstance(m, ListJobs)] == [1, 3]


def test_another_version_raises_an_error_that_names_both(endpoint: str) -> None:
    other = [b"reshape/0", encode(Done())[1]]
    with (
        service(endpoint, lambda _: [other]),
        ServiceConnection(endpoint) as client,
        pytest.raises(ProtocolError, match=r"reshape/0.*reshape/2.*same release"),
    ):
        client.request(ListJobs(), 5.0)


def test_oversized_answers_are_not_accepted(endpoint: str) -> None:
    """The second one exceeds the limit of the socket, which does not read it."""
    sizes = [15_000, 25_000]

    def answer(message: Message) -> list[list[bytes]]:
        return [encode(Failure(id=message.id, message="x" * sizes.pop(0)))]

    with service(endpoint, answer), Connection(endpoint, None, decode, 10_000) as client:
        with pytest.raises(ProtocolError, match="at most 10000 are accepted"):
            client.request(ListJobs(), 5.0)
        with pytest.raises(ServiceUnavailable):
            client.request(ListJobs(), 0.5)
        assert not sizes


def test_an_invalid_endpoint_is_refused() -> None:
    with pytest.raises(ReshapeError, match="'nonsense' is not an endpoint"):
        ServiceConnection("nonsense")


def server_file(directory: Path, **fields: object) -> None:
    (directory / SERVER_FILE).write_text(json.dumps(fields))


def test_file_of_a_running_service(tmp_path: Path) -> None:
    server_file(tmp_path, endpoint="ipc://x", pid=os.getpid(), started_at=1.5)
    assert service_in(tmp_path).endpoint == "ipc://x"


def test_endpoint_without_a_service(tmp_path: Path) -> None:
    with pytest.raises(ServiceUnavailable, match=f"no scheduler service in {tmp_path}/a.*--dir"):
        service_in(tmp_path / "a")


@pytest.mark.parametrize("waited_for", [True, False])  # in a container, pid 1 often waits for none
def test_file_of_a_dead_service(tmp_path: Path, waited_for: bool) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)
    if waited_for:
        gone.wait()
    server_file(tmp_path, endpoint="ipc://x", pid=gone.pid, started_at=1.5)
    try:
        with pytest.raises(ServiceUnavailable, match=f"process {gone.pid}.*is gone"):
            service_in(tmp_path)
    finally:
        gone.wait()


@pytest.mark.parametrize("fields", [{}, {"endpoint": 3, "pid": 1, "started_at": 0}])
def test_a_damaged_server_file_is_refused(tmp_path: Path, fields: dict[str, object]) -> None:
    server_file(tmp_path, **fields)
    with pytest.raises(ServiceUnavailable, match=rf"{SERVER_FILE} is damaged.*writes it again"):
        service_in(tmp_path)


def test_a_text_that_is_not_utf_8_is_named() -> None:
    """As of `reshape update 1 --name` with an argument in another encoding."""
    with pytest.raises(ReshapeError, match=r"'\\udcff' is not UTF-8 text"):
        encode(ChangeJobs.one(1, UpdateJob(name="\udcff")))
