"""An agent on a host that does not have the directory of its service.

The agent reaches the service over TCP with an access file of the role agent. First it asks how to
serve its node (:class:`~scheduler.protocol.messages.AgentArrival`), until the service answers. The
name of the folder for shared memory is random and the same on all hosts, except where another user
has taken it. Agents therefore set the paths in the environment of a job's processes.
"""

from __future__ import annotations

import fcntl
import logging
import socket
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import reshape
from reshape.errors import ServiceUnavailable
from reshape.files.private_folder import make_private
from reshape.wire.access import AccessFile, write_private
from scheduler.node.directory import JobFolders, hold
from scheduler.protocol import messages as m
from scheduler.protocol.client import ServiceConnection, expect

log = logging.getLogger(__name__)

ANSWER_S = 5.0
#: Seconds between two log lines about a service that does not answer.
SILENCE_LOG_S = 30.0


class HostPlace(JobFolders):
    """What an agent on another host has instead of the directory of its service.

    Parameters
    ----------
    access : access file of the role agent.
    settings : answer of the service to the arrival of the agent.
    """

    def __init__(self, access: AccessFile, settings: m.AgentSettings) -> None:
        self.access, self.settings = access, settings
        self.endpoint = access.endpoint

    @property
    def name(self) -> str:
        """Name of the folder for shared memory; it identifies the service on all hosts."""
        return self.settings.memory

    def read_secret(self) -> str:
        """Return no secret: the key of the connection proves what this agent is."""
        return ""

    def write_job_access(self) -> None:
        """Write the access file for the processes of jobs.

        Raises
        ------
        ReshapeError : the folder for shared memory is not safe to use, or is full.
        """
        make_private(self.memory)
        write_private(self.job_access, self.settings.job_access)

    def agent_lock(self, node: str) -> AbstractContextManager[bool]:
        """Hold the lock of a node's agent on this host; yields False if another agent holds it."""
        make_private(self.memory)
        return hold(self.memory / f"agent-{node}.lock")

    def is_shared(self, node: str) -> bool:
        """Whether an agent of this service other than that of a node runs on this host."""
        own = self.memory / f"agent-{node}.lock"
        return any(_is_held(path) for path in self.memory.glob("agent-*.lock") if path != own)

    def remove(self, node: str) -> None:
        """Remove the files of the agent of a node; the folder too, if nothing else is in it."""
        (self.memory / f"agent-{node}.lock").unlink(missing_ok=True)
        if not self.is_shared(node):
            self.job_access.unlink(missing_ok=True)
        with suppress(OSError):  # another agent of this service uses it
            self.memory.rmdir()


def _is_held(lock: Path) -> bool:
    """Whether a process holds a lock."""
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def arrive(access: AccessFile, node: str) -> HostPlace:
    """Ask the service how to serve a node, until it answers.

    Raises
    ------
    AccessRefused : the service refuses the key.
    ReshapeError : the service refuses this agent; the message is its reason.
    """
    arrival = m.AgentArrival(node=node, host=socket.gethostname(), release=reshape.__version__)
    logged = float("-inf")
    while True:
        with ServiceConnection(access.endpoint, access) as client:
            try:
                answer = client.request(arrival, ANSWER_S)
            except ServiceUnavailable as error:
                if time.monotonic() - logged > SILENCE_LOG_S:
                    logged = time.monotonic()
                    log.warning("waiting for the service: %s", error)
                time.sleep(0.2)
                continue
        return HostPlace(access, expect(m.AgentSettings, answer))


def own_address(endpoint: str) -> str:
    """Return the address of this host on the network by which it reaches a TCP endpoint."""
    parts = urlsplit(endpoint)
    try:
        address_info = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(address_info[0], socket.SOCK_DGRAM) as probe:
            probe.connect(address_info[4])  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()
