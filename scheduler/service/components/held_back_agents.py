"""Agents whose nodes stay down until other agents have reported.

An agent that replaced another one says that all groups of its node have ended. Which of their jobs
can restart depends on the restart points, which may lie on hosts whose agents have not reported
since the service started. Until they have, or are lost, such an agent is held back.
"""

from __future__ import annotations

#: Seconds, besides two heartbeats, after which an agent that is held back counts as silent.
SILENT_S = 2.0


class HeldBackAgents:
    """The latest agent of each node that was held back.

    Parameters
    ----------
    heartbeat_s : interval of the reports of agents, seconds.
    """

    def __init__(self, heartbeat_s: float) -> None:
        self._silent_s = SILENT_S + 2 * heartbeat_s
        self._reports: dict[str, tuple[str, float]] = {}  # node -> agent, time of its last report

    def hold(self, node: str, agent: str, at: float) -> bool:
        """Note a report of an agent at a time (s); return whether it is the first one."""
        before = self._reports.get(node)
        self._reports[node] = agent, at
        return before is None or before[0] != agent

    def is_heard(self, node: str, at: float) -> bool:
        """Whether an agent of a node was held back and has reported shortly before a time (s)."""
        return node in self._reports and at - self._reports[node][1] < self._silent_s
