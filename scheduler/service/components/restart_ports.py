"""The MPI ports by which the groups of a job that restarts connect to each other.

The groups may be on different hosts, so they find each other through the service. A group reports
that it waits (`GroupReady`) until it is given the port that the earlier groups have opened for it
(`JoinPort` with its number). The journal has each port, so that a service that starts again has it.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from scheduler.model.job import FINAL, Job
from scheduler.protocol import messages as m
from scheduler.service.record.journal import Journal

#: Phase of the journal with the number of a group and its port.
_PHASE = "reconnecting"


class RestartPorts:
    """Gives each group of a restarted job the port on which the earlier groups accept it.

    Parameters
    ----------
    send : queues a message for a peer, named by its socket identity.
    clock : the service's clock, Unix seconds.
    """

    def __init__(
        self,
        journal: Journal,
        send: Callable[[bytes, m.Message], None],
        clock: Callable[[], float],
    ) -> None:
        self._journal, self._send, self._clock = journal, send, clock
        self._ports: dict[tuple[int, int], str] = {}  # by job and group
        self._waiting: dict[tuple[int, int], tuple[bytes, int]] = {}  # peer and request

    def concerns(self, job: Job, group: int) -> bool:
        """Whether a group belongs to a job that has restarted, and does not join it in a resize."""
        joining = None if job.resize is None else job.resize.group
        is_own = group in job.groups and group != joining
        return is_own and job.restarts > 0 and job.state not in FINAL

    def on_port(self, job: Job, group: int, port: str) -> None:
        """Note the port on which a group is accepted, and send it if the group waits."""
        key = job.id, group
        if self._ports.get(key) != port:
            self._ports[key] = port
            self._journal.add_phase(job.id, job.resizes, self._clock(), _PHASE, f"{group} {port}")
        if key in self._waiting:
            peer, request = self._waiting.pop(key)
            self._send(peer, m.Connect(id=request, port=port))

    def on_group_ready(self, job: Job, peer: bytes, message: m.GroupReady) -> m.Connect | None:
        """Return the port for a group; None as long as there is none."""
        key = job.id, message.group
        port = self._ports.get(key) or self._noted(job, message.group)
        if port:
            self._waiting.pop(key, None)
            return m.Connect(id=message.id, port=port)
        self._waiting[key] = peer, message.id
        return None

    def keep_only(self, jobs: Container[int]) -> None:
        """Forget the ports of other jobs."""
        self._ports = {key: port for key, port in self._ports.items() if key[0] in jobs}
        self._waiting = {key: peer for key, peer in self._waiting.items() if key[0] in jobs}

    def _noted(self, job: Job, group: int) -> str:
        """Port that an earlier run of the service has noted; empty if there is none."""
        port = ""
        for phase in self._journal.phases_of(job.id):
            number, _, name = phase.detail.partition(" ")
            if phase.phase == _PHASE and number == str(group):
                port = name
        return port
