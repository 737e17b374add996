"""Redirection: a running job that makes too many others wait is restarted in another group.

Faure, Lucarelli, Richard and Trystram, Online scheduling with redirection for parallel jobs, IPDPSW
2020 (REDIR). The processors are divided into a principal group, to which jobs are submitted, and a
redirection group. Each job that runs in the principal group counts the jobs submitted meanwhile,
all of them or only those that have to wait.
When a count exceeds theta, one such job is killed and restarted from its beginning in the
redirection group, and all counts are reset. The rule is independent of the scenarios of the groups;
`scheduler.core.redirector` applies it between two partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import floor
from typing import Literal, TypeAlias

import msgspec

from reshape.errors import check_ranges, nearest
from scheduler.model.job import Job

#: A job and its count: arrivals since its start or the last redirection.
Counted: TypeAlias = tuple[Job, int]

#: Conflict policies: of several jobs whose counts exceed theta, the one with the smallest key goes.
CONFLICTS: dict[str, Callable[[Job, int], float]] = {
    "longest-walltime": lambda job, count: -job.spec.walltime_s,
    "most-counted": lambda job, count: -count,
    "fewest-processors": lambda job, count: job.spec.processors,
    "most-processors": lambda job, count: -job.spec.processors,
    "latest-start": lambda job, count: -(job.started_at or 0.0),
    "latest-end": lambda job, count: -job.expected_end,
}
ALPHA = 0.15


class Redirection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rule of redirection: when a job is redirected, which one, and the size of the group for it.

    Parameters
    ----------
    theta : a job may be redirected when its count exceeds this number.
    alpha : size of the redirection group as a share of the machine, rounded down to processors;
        0.15 unless `processors` is given. A live service takes the group from the machine, and the
        principal group has the rest (REDIR III.A). The simulator adds the group to the machine, so
        that no job becomes too large for the principal group (REDIR IV.B).
    processors : size of the redirection group, instead of `alpha`.
    conflict : which job is redirected if several may be; one of `CONFLICTS`, ties by the lower job
        number.
    filter : which running jobs k count an arriving job j. "processors": those with q_k >= q_j, so
        that large jobs do not cause the redirection of small ones (REDIR III.B). "walltime": those
        with w_k <= w_j, as line 3 of the paper's algorithm 2 is printed, which contradicts its
        text. "none": all. The requested numbers count, also for a job that was expanded.
    counts : arrivals that a running job counts: "waiting", the jobs that have to wait, because they
        do not start at once or pass a queued job; or "submitted", every job (REDIR III.A).
    scenario : name of the scenario of the redirection group; None: as for the principal group.
    partition : name of the partition that is the redirection group, with its own nodes and
        scenario; None: a group of its own.

    Raises
    ------
    ValueError : a parameter is out of range, or one of two has no effect because of the other.
    """

    theta: int = 10
    alpha: float | None = None
    processors: int | None = None
    conflict: str = "longest-walltime"
    filter: Literal["processors", "walltime", "none"] = "processors"
    counts: Literal["waiting", "submitted"] = "waiting"
    scenario: str | None = None
    partition: str | None = None

    def __post_init__(self) -> None:
        """Check the parameters."""
        check_ranges(self, theta=">= 0", alpha="> 0 and < 1", processors=">= 1")
        if self.alpha is not None and self.processors is not None:
            raise ValueError(
                f"give alpha or processors, not both; got {self.alpha} and {self.processors}"
            )
        own = {"alpha": self.alpha, "processors": self.processors, "scenario": self.scenario}
        unused = [name for name, value in own.items() if value is not None]
        if self.partition is not None and unused:
            raise ValueError(
                f"{unused[0]} has no effect beside partition {self.partition}, which has its own"
                " nodes and scenario: leave it out"
            )
        if self.conflict not in CONFLICTS:
            raise ValueError(
                f"unknown conflict policy {self.conflict!r}{nearest(self.conflict, CONFLICTS)}"
            )
        if self.filter not in ("processors", "walltime", "none"):
            raise ValueError(f"filter must be processors, walltime or none, got {self.filter!r}")
        if self.counts not in ("waiting", "submitted"):
            raise ValueError(f"counts must be waiting or submitted, got {self.counts!r}")

    def group_size(self, processors: int) -> int:
        """Number of processors of the redirection group.

        Parameters
        ----------
        processors : size of the machine.

        Raises
        ------
        ValueError : the group would have no processor.
        """
        if self.processors is not None:
            return self.processors
        alpha = ALPHA if self.alpha is None else self.alpha
        size = floor(alpha * processors + 1e-9)  # 0.29 * 100 is a little less than 29
        if size < 1:
            raise ValueError(
                f"alpha {alpha:g} of {processors} processors is less than 1; give a larger alpha,"
                " or processors"
            )
        return size

    def reserved(self, nodes: Mapping[str, int]) -> dict[str, int]:
        """Processors of a machine that belong to the redirection group, from the last node on.

        Parameters
        ----------
        nodes : name -> number of processors.

        Returns
        -------
        name -> number of processors of the node in the group; only nodes that have some.

        Raises
        ------
        ValueError : one of the groups would have no processor.
        """
        total = sum(nodes.values())
        missing = self.group_size(total)
        if missing >= total:
            raise ValueError(
                f"{missing} of {total} processors would leave none to the principal group;"
                " give fewer"
            )
        parts: dict[str, int] = {}
        for name, processors in reversed([*nodes.items()]):
            if missing:
                parts[name] = min(missing, processors)
                missing -= parts[name]
        return parts

    def choose(self, counted: list[Counted]) -> Counted:
        """Job to redirect, with its count, of several whose counts exceed theta."""
        key = CONFLICTS[self.conflict]
        return min(counted, key=lambda entry: (key(*entry), entry[0].id))


class Counters:
    """Counts of the running jobs (REDIR, algorithm 2).

    Parameters
    ----------
    rule : redirection rule; its filter and theta apply.
    """

    def __init__(self, rule: Redirection) -> None:
        self._rule = rule
        self._jobs: dict[int, Job] = {}
        self.counts: dict[int, int] = {}  #: count of each job, by number

    def add(self, job: Job, count: int = 0) -> None:
        """Begin counting for a job, from `count` on."""
        self._jobs[job.id], self.counts[job.id] = job, count

    def forget(self, job: int) -> None:
        """Stop counting for the job of this number."""
        del self._jobs[job], self.counts[job]

    def arrived(self, job: Job, room: int) -> list[Counted]:
        """Count an arrival.

        Parameters
        ----------
        room : number of processors of the redirection group that are up.

        Returns
        -------
        jobs that fit into the redirection group and whose counts exceed theta now.
        """
        theta, filter, spec, counts = self._rule.theta, self._rule.filter, job.spec, self.counts
        over: list[Counted] = []
        for number, running in self._jobs.items():
            own = running.spec
            if filter == "processors" and own.processors < spec.processors:
                continue
            if filter == "walltime" and own.walltime_s > spec.walltime_s:
                continue
            counts[number] += 1
            if counts[number] > theta and own.processors <= room:
                over.append((running, counts[number]))
        return over

    def reset(self) -> None:
        """Reset all counts (REDIR, algorithm 2, line 10)."""
        self.counts = dict.fromkeys(self.counts, 0)
