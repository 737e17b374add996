"""Starts the agents of nodes, by the launcher of each node.

    local   a process on the host of the service; a lock in its directory shows that it runs
    ssh     ``reshape agent --background`` on another host, through the ssh command
    slurm   ``reshape agent`` on a node of the Slurm allocation of the service, by an srun that runs
            as long as the agent
    none    started by hand: ``reshape agent --connect DIR/access/agent.json --node NODE``

The access file goes to another host through the standard input of ssh or srun, so that it is in no
argument list and needs no shared directory.
"""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from reshape.wire.identity import slurm_job
from scheduler.config.settings import NodeConfig
from scheduler.node import leftovers
from scheduler.node.directory import ServiceDirectory
from scheduler.node.slurm import agent_step, clean_variables

log = logging.getLogger(__name__)

#: Seconds between two attempts to start the agent of a node; those on other hosts double up to
#: the last.
RESTART_S = 5.0
MOST_RESTART_S = 60.0
#: Bytes at the end of its output that are searched for the reason why an agent ended.
LAST_BYTES = 4096
#: Seconds that ssh may take to connect.
CONNECT_S = 10


@dataclass
class _Attempts:
    """The attempts to start the agent of a node; `next_at` in monotonic seconds.

    `has_ended` tells that the srun of the latest agent has ended, and most likely the agent. The
    messages of the latest one are in `output` from the position `written` on.
    """

    next_at: float = 0.0
    failures: int = 0
    has_ended: bool = False
    process: subprocess.Popen[bytes] | None = None
    output: BinaryIO | None = None
    written: int = 0


class AgentStarts:
    """Starts agents, and tells which of those on this host run.

    Parameters
    ----------
    nodes : the present configuration of each node, by name.
    ssh : the ssh command with its options.

    Attributes
    ----------
    faults : why the agent of a node could not be started or has ended, by node.
    """

    def __init__(
        self, directory: ServiceDirectory, nodes: Mapping[str, NodeConfig], ssh: str
    ) -> None:
        self._directory, self._nodes, self._ssh = directory, nodes, shlex.split(ssh)
        self._attempts: defaultdict[str, _Attempts] = defaultdict(_Attempts)
        self.faults: dict[str, str] = {}

    def remove(self, node: str) -> None:
        """Forget a node that is not configured any more."""
        self._attempts.pop(node, None)
        self.faults.pop(node, None)

    def is_local(self, node: str) -> bool:
        """Whether a node is on the host of the service; false if it is not configured any more."""
        return node in self._nodes and self._nodes[node].launcher == "local"

    def is_gone(self, node: str) -> bool:
        """Whether a node is local and no agent of it runs; nothing is known of other hosts."""
        return self.is_local(node) and not self._is_held(node)

    def keep_started(self, node: str, *, is_silent: bool) -> None:
        """Start the agent of a node unless one runs, as far as that is known.

        Parameters
        ----------
        is_silent : whether no agent of the node reports.
        """
        attempts, launcher = self._attempts[node], self._nodes[node].launcher
        self._reap(node, attempts)
        if attempts.process is not None:
            if not is_silent:
                attempts.failures = 0
                self.faults.pop(node, None)
            return
        # If an agent lives without its srun, it keeps its lock, and another one refuses to run.
        if launcher == "none" or not (is_silent or attempts.has_ended):
            return
        # A starting agent takes the lock itself, so the lock is not tried meanwhile.
        if time.monotonic() < attempts.next_at or (launcher == "local" and self._is_held(node)):
            return
        failures = 0 if launcher == "local" else attempts.failures
        wait_s = min(RESTART_S * 2**failures, MOST_RESTART_S)
        attempts.next_at = time.monotonic() + wait_s
        self._start(node, attempts)

    def all_ended(self) -> bool:
        """Whether no agent runs on this host, and none is being started."""
        for node, attempts in self._attempts.items():
            self._reap(node, attempts)
        starting = any(attempts.process is not None for attempts in self._attempts.values())
        return not starting and all(map(self.is_gone, filter(self.is_local, self._nodes)))

    def remove_remains(self) -> None:
        """Remove what killed agents on this host have left; all jobs must have ended."""
        leftovers.remove_all(self._directory, [*filter(self.is_local, self._nodes)])

    def give_up(self) -> None:
        """End the sruns that still run; their agents are out of reach."""
        for attempts in self._attempts.values():
            if attempts.process is not None:
                attempts.process.terminate()

    def _is_held(self, node: str) -> bool:
        """Whether the lock of an agent is held, as far as that can be found out."""
        try:
            with self._directory.agent_lock(node) as free:
                return not free
        except OSError as error:  # no file is left, for example
            log.debug("cannot try the lock of the agent of %s: %s", node, error)
            return True

    def _start(self, node: str, attempts: _Attempts) -> None:
        """Start a process that is an agent, or starts one, with its messages in a log."""
        launcher, host = self._nodes[node].launcher, self._nodes[node].host or node
        agent = [sys.executable, "-m", "reshape", "agent"]
        remote = [*agent, "--connect", "-", "--node", node]
        stdin, environment = self._directory.path / "access" / "agent.json", None
        if launcher == "local":
            command = [*agent, "--dir", str(self._directory.path), "--node", node]
            stdin = Path(os.devnull)
        elif launcher == "ssh":
            path = os.environ.get("PYTHONPATH")
            words = [] if path is None else ["env", f"PYTHONPATH={path}"]
            options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", "--", host]
            command = [*self._ssh, *options, shlex.join([*words, *remote, "--background"])]
        else:
            command, environment = [*agent_step(slurm_job(), host), *remote], clean_variables()
            attempts.has_ended = False
        try:
            log_file = self._directory.log(f"{'start' if launcher == 'ssh' else 'agent'}-{node}")
            attempts.output = log_file.open("w+b" if launcher == "ssh" else "a+b")
            attempts.written = attempts.output.tell()
            with stdin.open("rb") as file:
                attempts.process = subprocess.Popen(
                    command,
                    stdin=file,
                    stdout=attempts.output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,  # the agent outlives the service
                )
        except OSError as error:
            self._failed(node, attempts, f"cannot start {command[0]}: {error.strerror}")

    def _reap(self, node: str, attempts: _Attempts) -> None:
        """Note how the start of an agent has ended; a local agent itself is the process."""
        process = attempts.process
        if process is None or (code := process.poll()) is None:
            return
        attempts.process = None
        launcher = self._nodes[node].launcher
        attempts.has_ended = launcher == "slurm"
        if code == 0:
            attempts.failures = 0
            self.faults.pop(node, None)
            if attempts.output is not None:
                attempts.output.close()
            return
        host = self._nodes[node].host or node
        program = {"local": "its agent", "slurm": f"srun on {host}"}.get(launcher, f"ssh {host}")
        if code < 0:
            self._failed(node, attempts, f"{program} was ended by signal {-code}")
            return
        text = ""
        if attempts.output is not None:
            size = attempts.output.seek(0, os.SEEK_END)
            attempts.output.seek(max(attempts.written, size - LAST_BYTES))
            text = attempts.output.read().decode(errors="replace").strip()
        lines = text.splitlines() or ["no message"]
        self._failed(node, attempts, f"{program} ended with exit code {code}: {lines[-1]}")

    def _failed(self, node: str, attempts: _Attempts, why: str) -> None:
        attempts.failures += 1
        self.faults[node] = why
        if attempts.output is not None:
            attempts.output.close()
        log.error("cannot start the agent of %s: %s", node, why)
