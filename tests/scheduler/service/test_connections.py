"""The sockets of a service with real peers: keys, roles and refusals."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path

import msgspec
import pytest
import zmq
from desk import request_handler
from ports import free_port
from waiting import LIMIT_S, wait_until

from reshape.errors import (
    AccessRefused,
    ConfigError,
    ReshapeError,
    ServerUnproven,
    ServiceUnavailable,
)
from reshape.wire.access import AccessFile, AccessRole, read_access
from reshape.wire.codec import PROTOCOL, encode
from reshape.wire.connection import use_keys
from scheduler import Client
from scheduler.config.settings import NodeConfig, ServeConfig
from scheduler.node.access_keys import AccessKeys
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol import messages as m
from scheduler.protocol.client import ServiceConnection, connect
from scheduler.service.assembly import Components
from scheduler.service.connections import Connections
from scheduler.service.driver import Driver
from scheduler.service.limits import MOST_GROWTH_BYTES

JOB = m.Submission(argv=["true"], processors=1, walltime_s=60.0, user="root")
PATIENCE_S = LIMIT_S


class Station:
    """A service without agents, in a thread: connections, requests and a core."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.directory = ServiceDirectory(folder)
        self.directory.create()
        self.keys = AccessKeys(self.directory.path, self.directory.owner)
        self.refused: Counter[str] = Counter()
        self.received = 0  # messages so far
        self._is_bound, self._ends = threading.Event(), threading.Event()

    @property
    def admin(self) -> Path:
        return self.keys.folder / "admin.json"

    def file(self, user: str, role: AccessRole = "user") -> Path:
        """Create an access file."""
        path = self.directory.path / f"{user}-{role}.json"
        self.keys.create(path, role, user)
        return path

    @contextmanager
    def serving(self) -> Iterator[None]:
        thread = threading.Thread(target=self._serve)
        thread.start()
        try:
            assert self._is_bound.wait(PATIENCE_S)
            yield
        finally:
            self._ends.set()
            thread.join()

    def _serve(self) -> None:
        connections = Connections(self.directory, f"127.0.0.1:{self.port}", self.refused)
        sent: list[tuple[bytes, m.Message]] = []
        config = ServeConfig(nodes=(NodeConfig("local", 4),))
        components = Components(self.directory, config, lambda *each: sent.append(each))
        driver = Driver(components)
        handler = request_handler(components, driver, self.refused)
        driver.register_nodes(["local"])
        connections.bind()
        self._is_bound.set()
        while not self._ends.is_set():
            connections.wait(20)
            while (received := connections.receive()) is not None:
                handler.handle(*received)
                self.received += 1
            handler.answer_waiting(driver.run_turn())
            handler.reads.advance()
            components.journal.commit()
            for peer, message in sent:
                with suppress(zmq.ZMQError):  # the peer is gone
                    connections.send(peer, encode(message))
            sent.clear()
        connections.close()
        components.journal.close()

    def counts(self, kind: str, least: int) -> bool:
        """Wait until this many refusals of a kind are counted."""
        return wait_until(lambda: self.refused[kind] >= least, lambda: self.refused)


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    station = Station(tmp_path / "service")
    with station.serving():
        yield station


def ask(service: Path, message: m.Message, timeout: float = PATIENCE_S) -> m.Message:
    with connect(service) as client:
        return client.request(message, timeout)


def queue(service: Path) -> list[tuple[int, str]]:
    answer = ask(service, m.ListJobs())
    assert isinstance(answer, m.JobListing)
    return [(job.job, job.user) for job in answer.jobs]


def test_all_connections_are_closed_if_the_memory_grows_and_are_opened_again(
    station: Station,
) -> None:
    """The answers that a peer does not read are kept for it, over TCP as in the directory."""
    local = ServiceConnection(station.directory.endpoint)
    with local, connect(station.admin) as remote:
        for client in (local, remote):
            assert isinstance(client.request(m.ServerInfo(), PATIENCE_S), m.Info)
        held = b"x" * (MOST_GROWTH_BYTES + (16 << 20))
        station.counts("message", 1)
        station.counts("connection", 1)  # the gate says that ZeroMQ has ended one
        del held
        for client in (local, remote):
            assert isinstance(client.request(m.ServerInfo(), PATIENCE_S), m.Info)


def test_the_key_determines_user_and_role(station: Station) -> None:
    ann, bob = station.file("ann"), station.file("bob")
    assert ask(ann, m.Submit(submission=JOB)) == m.Submitted(id=1, job=1)
    assert queue(bob) == [(1, "ann")]
    with pytest.raises(ReshapeError, match="job 1 belongs to user ann"):
        ask(bob, m.ChangeJobs.one(1, m.CancelJob()))
    with pytest.raises(ReshapeError, match=r"\(Stop\) needs the role administrator"):
        ask(ann, m.Stop(kill=True))
    with pytest.raises(ReshapeError, match=r"\(Hello\) needs the role job"):
        ask(ann, m.Hello(job=1, group=1, token="", size=1, pid=1))
    with pytest.raises(ReshapeError, match="role agent"):
        ask(station.keys.folder / "agent.json", m.Submit(submission=JOB))
    with pytest.raises(ReshapeError, match="not from a process of job 1"):
        ask(station.keys.folder / "job.json", m.Hello(job=1, group=1, token="x", size=1, pid=1))
    assert isinstance(ask(station.admin, m.ChangeJobs.one(1, m.CancelJob())), m.Done)
    info = ask(station.admin, m.ServerInfo())
    assert isinstance(info, m.Info)
    assert info.refused == {"permission": 5}


def test_the_socket_of_the_directory_belongs_to_its_owner(station: Station) -> None:
    with ServiceConnection(station.directory.endpoint) as client:
        forged = msgspec.structs.replace(JOB, user="ann")
        assert isinstance(client.request(m.Submit(submission=forged), PATIENCE_S), m.Submitted)
    assert queue(station.admin) == [(1, station.directory.owner)]


def test_a_revoked_key_is_refused_at_once(station: Station) -> None:
    ann = station.file("ann")
    with connect(ann) as before:
        before.request(m.ServerInfo(), PATIENCE_S)
        (revoked,) = station.keys.revoke(lambda key: key.user == "ann")
        assert revoked.role == "user"
        for _ in range(2):
            with pytest.raises(ReshapeError, match="was revoked, or has expired: ask for a new"):
                before.request(m.Submit(submission=JOB), PATIENCE_S)
        assert station.counts("key", 2)
    with pytest.raises(AccessRefused, match="expired, was revoked"):
        ask(ann, m.ServerInfo())
    assert queue(station.admin) == []


def test_a_wait_ends_when_its_key_is_revoked(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.client.api.client.ASK_AGAIN_S", 0.2)
    ann = station.file("ann")
    answer = ask(ann, m.Submit(submission=JOB))
    assert isinstance(answer, m.Submitted)
    errors: list[str] = []

    def wait() -> None:
        try:
            with Client(ann) as client:
                client.job(answer.job).wait(6 * PATIENCE_S)
        except ReshapeError as error:
            errors.append(str(error))

    waiting, before = threading.Thread(target=wait), station.received
    waiting.start()
    wait_until(lambda: station.received > before)
    station.keys.revoke(lambda key: key.user == "ann")
    waiting.join(5 * PATIENCE_S)
    assert "was revoked" in errors[0]


def test_an_expired_key_is_refused(station: Station, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    station.keys.create(path, "user", "ann", expires_at=time.time() - 1)
    with pytest.raises(ReshapeError, match=r"old\.json has expired"):
        ask(path, m.ServerInfo())
    access = msgspec.json.decode(path.read_bytes(), type=AccessFile)
    with ServiceConnection(access.endpoint, access) as client, pytest.raises(AccessRefused):
        client.request(m.ServerInfo(), PATIENCE_S)


def test_an_unknown_key_and_a_wrong_server_key_are_refused(
    station: Station, tmp_path: Path
) -> None:
    access = read_access(station.admin)
    public, secret = (key.decode() for key in zmq.curve_keypair())
    unknown = msgspec.structs.replace(access, public_key=public, secret_key=secret)
    with ServiceConnection(access.endpoint, unknown) as client, pytest.raises(AccessRefused):
        client.request(m.ServerInfo(), PATIENCE_S)
    assert station.counts("key", 1)
    wrong = msgspec.structs.replace(access, server_key=public)
    began = time.monotonic()
    with (
        ServiceConnection(access.endpoint, wrong) as client,
        pytest.raises(ServerUnproven, match="does not prove the server key"),
    ):
        client.request(m.ServerInfo(), PATIENCE_S)
    assert station.counts("connection", 1)
    seconds = time.monotonic() - began
    assert station.refused["connection"] <= 1 + seconds / 0.25, "they cost the service, too"
    path = tmp_path / "wrong.json"
    path.touch(0o600)
    path.write_bytes(msgspec.json.encode(wrong))
    with Client(path) as client, pytest.raises(ServerUnproven):
        client.job(1).wait()
    assert queue(station.admin) == []


@contextmanager
def forwarded(port: int) -> Iterator[tuple[int, threading.Event]]:
    """Forward a port, as ssh does.

    Yields
    ------
    the new port; an event that closes its connections, present and later ones, at once.
    """
    closes, ends = threading.Event(), threading.Event()

    def forward() -> None:
        others: dict[socket.socket, socket.socket] = {}
        while not ends.is_set():
            ready = wait([listener, *others], 0.02)
            if listener in ready:
                one, other = listener.accept()[0], socket.create_connection(("127.0.0.1", port))
                others |= {one: other, other: one}
            for each in others.keys() & ready:
                with suppress(OSError):  # its peer has gone
                    others[each].sendall(each.recv(1 << 16))
            while others and closes.is_set():
                others.popitem()[0].close()
        for each in others:
            each.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=forward)
        thread.start()
        try:
            yield listener.getsockname()[1], closes
        finally:
            ends.set()
            thread.join()


def test_a_wait_goes_on_where_a_forwarded_port_closes_connections(
    station: Station, tmp_path: Path
) -> None:
    """As while the service restarts; the service has proved its key before."""
    path = tmp_path / "forwarded.json"
    path.touch(0o600)
    with forwarded(station.port) as (port, closes):
        endpoint = f"tcp://127.0.0.1:{port}"
        access = msgspec.structs.replace(read_access(station.admin), endpoint=endpoint)
        path.write_bytes(msgspec.json.encode(access))
        with Client(path) as client:
            job = client.submit(["true"], 1)
            closes.set()
            client.close()  # it connects again
            with pytest.raises(TimeoutError):
                job.wait(4.0)


def test_plain_text_and_peers_without_a_key_are_refused(station: Station) -> None:
    held = [socket.create_connection(("127.0.0.1", station.port)) for _ in range(50)]
    for each in held:
        each.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
    with (
        ServiceConnection(f"tcp://127.0.0.1:{station.port}") as plain,
        pytest.raises(ServiceUnavailable),
    ):
        plain.request(m.ServerInfo(), 0.5)
    assert station.counts("connection", 51)
    assert queue(station.admin) == []
    for each in held:
        each.close()


def test_malformed_and_half_messages_are_counted_while_others_are_served(
    station: Station, caplog: pytest.LogCaptureFixture
) -> None:
    access = read_access(station.file("ann"))
    context = zmq.Context()
    hostile = context.socket(zmq.DEALER)
    hostile.setsockopt(zmq.LINGER, 0)
    hostile.setsockopt(zmq.RCVHWM, 0)
    use_keys(hostile, access)
    hostile.connect(access.endpoint)
    body = encode(m.Submit(submission=JOB))[1]
    bad = ([b""], [PROTOCOL], [PROTOCOL, body[:-3]], [b"x", body], [PROTOCOL, b"\xc1" * 99])
    for number in range(1000):
        hostile.send_multipart(bad[number % len(bad)])
    hostile.send_multipart([PROTOCOL, b"\0" * (17 << 20)])
    hostile.send(PROTOCOL, zmq.SNDMORE)  # a message that never ends
    assert queue(station.admin) == []
    assert station.counts("message", 1001)
    assert len([line for line in caplog.records if "refused a message" in line.message]) < 100
    hostile.close()
    context.term()
    assert queue(station.admin) == []


def _is_answered(client: ServiceConnection) -> bool:
    try:
        return isinstance(client.request(m.ServerInfo(), 1.0), m.Info)
    except ServiceUnavailable:
        return False


def test_a_frame_above_the_limit_ends_its_connection(station: Station) -> None:
    access = read_access(station.file("ann"))
    with ServiceConnection(access.endpoint, access) as client:
        big = msgspec.structs.replace(JOB, name="x" * (33 << 20))
        with pytest.raises(ServiceUnavailable):
            client.request(m.Submit(submission=big), 1.0)
        wait_until(lambda: _is_answered(client))  # what was sent to the connection is lost with it
    assert queue(station.admin) == []


def test_a_chosen_identity_is_refused(station: Station) -> None:
    access = read_access(station.file("ann"))
    context = zmq.Context()
    peer = context.socket(zmq.DEALER)
    peer.setsockopt(zmq.IDENTITY, b"T" * 46)
    use_keys(peer, access)
    peer.connect(access.endpoint)
    peer.send_multipart(encode(m.Submit(submission=JOB)))
    assert station.counts("message", 1)
    peer.close(linger=0)
    context.term()
    assert queue(station.admin) == []


class Recorder:
    """A TCP proxy that records what a client sends and can send it again."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.recorded: list[bytes] = []
        self._threads = [threading.Thread(target=self._forward)]
        self._threads[0].start()

    def _forward(self) -> None:
        client, _ = self._listener.accept()
        self.service = socket.create_connection(("127.0.0.1", self._target))
        with client, self.service:
            back = threading.Thread(target=self._return, args=(client,))
            back.start()
            with suppress(OSError):
                while data := client.recv(1 << 16):
                    self.recorded.append(data)
                    self.service.sendall(data)
            with suppress(OSError):
                self.service.shutdown(socket.SHUT_RDWR)
            back.join()

    def _return(self, client: socket.socket) -> None:
        with suppress(OSError):
            while data := self.service.recv(1 << 16):
                client.sendall(data)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        for thread in self._threads:
            thread.join()


def test_a_replayed_message_is_refused(station: Station) -> None:
    ann = read_access(station.file("ann"))
    recorder = Recorder(station.port)
    with ServiceConnection(f"tcp://127.0.0.1:{recorder.port}", ann) as client:
        client.request(m.ServerInfo(), PATIENCE_S)
        before = len(recorder.recorded)
        client.request(m.Submit(submission=JOB), PATIENCE_S)
        again = b"".join(recorder.recorded[before:])
        recorder.service.sendall(again)  # in the same connection
        assert station.counts("connection", 1)
    recorder.close()
    with socket.create_connection(
        ("127.0.0.1", station.port)
    ) as other:  # in a connection of its own
        for part in recorder.recorded:
            try:
                other.sendall(part)
                time.sleep(0.05)
            except OSError:
                break
        assert station.counts("connection", 2)
    assert queue(station.admin) == [(1, "ann")]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process of another user")
def test_another_user_of_the_machine_has_no_access(station: Station) -> None:
    for path in (station.directory.path, *station.directory.path.parents):
        if path != station.directory.path and path.name.startswith(("pytest-", "test_")):
            path.chmod(0o755)  # the folders of the test do not hide the directory
    attack = (
        "import os, socket, sys; os.setgid(65534); os.setuid(65534)\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n"
        "        if path.endswith('socket'):\n"
        "            socket.socket(socket.AF_UNIX).connect(path)\n"
        "        else:\n"
        "            open(path).read()\n"
        "    except PermissionError:\n"
        "        continue\n"
        "    sys.exit('access to ' + path)\n"
    )
    place = station.directory
    paths = [
        place.endpoint.removeprefix("ipc://"),
        *map(str, (place.path / "secret", place.journal, *station.keys.folder.iterdir())),
    ]
    done = subprocess.run(
        [sys.executable, "-c", attack, *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_port_that_is_taken_is_explained(tmp_path: Path) -> None:
    directory = ServiceDirectory(tmp_path / "service")
    directory.create()

    def bind(port: int) -> None:
        connections = Connections(directory, f"127.0.0.1:{port}", Counter())
        try:
            connections.bind()
        finally:
            connections.close()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: .*in use"):
            bind(port)


STOPPED = """
import os, signal, sys
from collections import Counter
from pathlib import Path
from scheduler.node.directory import ServiceDirectory
from scheduler.service.connections import Connections
directory = ServiceDirectory(Path(sys.argv[1]))
directory.create()
Connections(directory, f"127.0.0.1:{sys.argv[2]}", Counter()).bind()
print("bound", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_many_peers_connect_while_the_service_does_not_run(tmp_path: Path) -> None:
    """The kernel accepts them; it would drop further ones, whose peers try again much later."""
    port = free_port()
    command = [sys.executable, "-c", STOPPED, str(tmp_path / "service"), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        peers = []
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"bound\n"
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            peers = [socket.create_connection(("127.0.0.1", port), 0.9) for _ in range(400)]
        finally:
            process.kill()
            for peer in peers:
                peer.close()


def test_sockets_that_cannot_be_made_again_are_tried_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Their folder has no room for files while others are there."""
    directory = ServiceDirectory(tmp_path / "service")
    directory.path.mkdir(0o700)
    options = "nr_inodes=90,mode=0700"
    mount = ["mount", "-t", "tmpfs", "-o", options, "none", str(directory.path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        directory.create()
        connections = Connections(directory, f"127.0.0.1:{free_port()}", Counter())
        try:
            connections.bind()
            sockets = [directory.socket, *directory.lanes]
            for path in sockets:
                path.unlink()
            fillers = [directory.path / f"filler-{number}" for number in range(90)]
            with suppress(OSError):  # until no room is left
                for filler in fillers:
                    filler.touch()
            assert os.statvfs(directory.path).f_favail == 0
            connections.restore_sockets()
            assert not any(path.exists() for path in sockets)
            told = [record.getMessage() for record in caplog.records]
            assert sum("cannot be made again" in line for line in told) == 1
            for filler in fillers:
                filler.unlink(missing_ok=True)
            connections.restore_sockets()
            assert all(path.exists() for path in sockets)
        finally:
            connections.close()
    finally:
        subprocess.run(["umount", directory.path], check=True)
