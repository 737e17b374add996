"""A service that a test plays: it starts a real agent and exchanges real messages with it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import psutil
import zmq
from waiting import LIMIT_S

from reshape.wire.codec import encode
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol import messages as m
from scheduler.protocol.messages import decode

_SCRIPT = """
import sys
from scheduler.node import agent, children, node_groups
from scheduler.node.directory import ServiceDirectory
from scheduler.node.logs import log_to_file
place = ServiceDirectory(sys.argv[1])
log_to_file(place.log("agent-n1"))
place.keep_open()
with place.agent_lock("n1") as lock:
    assert lock
    node_groups.START_S, agent.RECONNECT_S, agent.IDLE_EXIT_S = map(float, sys.argv[2:])
    children.STAND_IN_S = 5.0
    agent.Agent(place, "n1", lock).run()
"""


class AgentDriver:
    """The service of one agent, with the node name ``n1``."""

    def __init__(self, folder: Path) -> None:
        self.work = folder
        self.place = ServiceDirectory(folder / "service")
        self.place.create()
        self.agents: list[subprocess.Popen[bytes]] = []
        self._context = zmq.Context()
        self._peer = b""
        self._bind()

    def _bind(self) -> None:
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._socket.bind(self.place.endpoint)

    def move(self, folder: Path) -> None:
        """End the service, move its directory, and start the service there."""
        self._socket.close()
        self.place.path.rename(folder)
        self.place = ServiceDirectory(folder)
        self._bind()

    def __enter__(self) -> AgentDriver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self.agents and self.agents[-1].poll() is None:
                self.send(m.AgentStop())
                self.agents[-1].wait(LIMIT_S)
        finally:
            for agent in self.agents:
                if agent.poll() is None:
                    agent.kill()
                    agent.wait()
            self._socket.close()
            self._context.term()
            shutil.rmtree(self.place.memory, ignore_errors=True)
        if error is not None:
            print(self.log())

    def start_agent(
        self, start_s: float = 20.0, silence_s: float = 10.0, idle_s: float = 60.0
    ) -> m.AgentHello:
        """Start an agent, and return its first report."""
        limits = map(str, (start_s, silence_s, idle_s))
        agent = subprocess.Popen([sys.executable, "-c", _SCRIPT, str(self.place.path), *limits])
        self.agents.append(agent)
        return self.until(lambda hello: hello.pid == agent.pid)

    def kill_agent(self) -> None:
        """Kill the agent without a warning."""
        self.agents[-1].send_signal(signal.SIGKILL)
        self.agents[-1].wait()

    def until(self, condition: Callable[[m.AgentHello], bool]) -> m.AgentHello:
        """Return the first report for which a condition holds."""
        end = time.monotonic() + LIMIT_S
        hello = None
        while time.monotonic() < end:
            if self._socket.poll(100):
                self._peer, *frames = self._socket.recv_multipart()
                message = decode(frames)
                assert isinstance(message, m.AgentHello)
                hello = message
                if condition(hello):
                    return hello
            assert self.agents[-1].poll() is None, f"the agent has ended: {self.log()}"
        raise AssertionError(f"last report: {hello}\n{self.log()}")

    def status(self, job: int, condition: Callable[[m.GroupStatus], bool]) -> m.GroupStatus:
        """Wait until a condition holds for the status of group 1 of a job."""

        def find(hello: m.AgentHello) -> m.GroupStatus | None:
            found = (status for status in hello.groups if (status.job, status.group) == (job, 1))
            return next((status for status in found if condition(status)), None)

        status = find(self.until(lambda hello: find(hello) is not None))
        assert status is not None
        return status

    def ended(self, job: int) -> m.GroupStatus:
        """Wait for the end of group 1 of a job."""
        return self.status(job, lambda status: not status.alive)

    def running(self, job: int) -> m.GroupStatus:
        """Wait until group 1 of a job is reported as alive."""
        return self.status(job, lambda status: status.alive)

    def send(self, message: m.Message) -> None:
        self.send_frames(encode(message))

    def send_frames(self, frames: list[bytes]) -> None:
        self._socket.send_multipart([self._peer, *frames])

    def order(self, job: int, *argv: str, output: str = "", **environment: str) -> m.StartGroup:
        """Build the order to start group 1 of a job with one process."""
        numbers = {
            "RESHAPE_JOB": str(job),
            "RESHAPE_GROUP": "1",
            "RESHAPE_SHM": str(self.place.shm(job)),
        }
        return m.StartGroup(
            job=job,
            group=1,
            size=1,
            argv=list(argv),
            bounds=m.JobBounds(str(self.work), output or str(self.work / f"{job}.out")),
            environment=dict(os.environ) | numbers | environment,
        )

    def start(self, job: int, *argv: str, **more: str) -> None:
        self.send(self.order(job, *argv, **more))

    def log(self) -> str:
        path = self.place.log("agent-n1")
        return path.read_text() if path.exists() else ""


def is_running(pid: int) -> bool:
    """Whether a process runs and is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
