"""The synchronous client against a real ROUTER socket in a thread."""

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
from reshape.wire.client import SERVER_FILE, Client, endpoint_of
from reshape.wire.codec import encode
from reshape.wire.messages import Done, Failure, ListJobs, Message, Submitted, Wait


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/socket"


def test_request_pairs_answer_by_id_and_drops_others(endpoint: str) -> None:
    def answer(message: Message) -> list[list[bytes]]:
        return [encode(Done(id=message.id + 77)), encode(Submitted(id=message.id, job=5))]

    with service(endpoint, answer), Client(endpoint) as client:
        for _ in range(3):
            question = ListJobs()
            assert client.request(question, 5.0) == Submitted(id=question.id, job=5)


def test_failure_is_raised_with_its_sentence(endpoint: str) -> None:
    with (
        service(endpoint, lambda m: [encode(Failure(id=m.id, message="no job 9"))]),
        Client(endpoint) as client,
        pytest.raises(ReshapeError, match=r"^no job 9$"),
    ):
        client.request(Wait(job=9), 5.0)


def test_no_service_names_endpoint_and_mend(endpoint: str) -> None:
    with Client(endpoint) as client:
        began = time.monotonic()
        with pytest.raises(ServiceUnavailable, match=f"{endpoint}.*reshape serve"):
            client.request(ListJobs(), 0.2)
        assert time.monotonic() - began > 0.15
        with pytest.raises(ServiceUnavailable):
            client.send(ListJobs())


def test_silent_service_is_unavailable(endpoint: str) -> None:
    with (
        service(endpoint, lambda _: []),
        Client(endpoint) as client,
        pytest.raises(ServiceUnavailable, match=r"within 0\.3 s"),
    ):
        client.request(ListJobs(), 0.3)


def test_reconnects_and_forgets_what_nobody_took(endpoint: str) -> None:
    seen: list[Message] = []

    def answer(message: Message) -> list[list[bytes]]:
        seen.append(message)
        return [encode(Done(id=message.id))]

    with Client(endpoint) as client:
        with service(endpoint, answer):
            client.request(ListJobs(job=1), 5.0)
        time.sleep(0.1)
        for _ in range(20):  # given up: a service that comes back must not see them
            with pytest.raises(ServiceUnavailable):
                client.request(ListJobs(job=2), 0.0)
        with service(endpoint, answer):
            assert isinstance(client.request(ListJobs(job=3), 5.0), Done)
    assert [m.job for m in seen if isinstance(m, ListJobs)] == [1, 3]


def test_other_version_is_told(endpoint: str) -> None:
    other = [b"reshape/0", encode(Done())[1]]
    with (
        service(endpoint, lambda _: [other]),
        Client(endpoint) as client,
        pytest.raises(ProtocolError, match=r"reshape/0.*reshape/1.*same release"),
    ):
        client.request(ListJobs(), 5.0)


def test_bad_endpoint() -> None:
    with pytest.raises(ReshapeError, match="'nonsense' is no endpoint"):
        Client("nonsense")


def server_file(directory: Path, **fields: object) -> None:
    (directory / SERVER_FILE).write_text(json.dumps(fields))


def test_endpoint_of_live_service(tmp_path: Path) -> None:
    server_file(tmp_path, endpoint="ipc://x", pid=os.getpid(), started_at=1.5)
    assert endpoint_of(tmp_path) == "ipc://x"


def test_endpoint_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(ServiceUnavailable, match=f"no scheduler service in {tmp_path}/a.*--dir"):
        endpoint_of(tmp_path / "a")


@pytest.mark.parametrize("waited_for", [True, False])  # in a container, pid 1 often waits for none
def test_endpoint_of_dead_service(tmp_path: Path, waited_for: bool) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)
    if waited_for:
        gone.wait()
    server_file(tmp_path, endpoint="ipc://x", pid=gone.pid, started_at=1.5)
    try:
        with pytest.raises(ServiceUnavailable, match=f"process {gone.pid}.*is gone"):
            endpoint_of(tmp_path)
    finally:
        gone.wait()


@pytest.mark.parametrize("fields", [{}, {"endpoint": 3, "pid": 1, "started_at": 0}])
def test_endpoint_of_damaged_file(tmp_path: Path, fields: dict[str, object]) -> None:
    server_file(tmp_path, **fields)
    with pytest.raises(ReshapeError, match=rf"{SERVER_FILE} is damaged"):
        endpoint_of(tmp_path)
