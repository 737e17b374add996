"""Redirection: a running job that makes too many others wait is started again elsewhere.

Faure, Lucarelli, Richard and Trystram, Online scheduling with redirection for parallel jobs, IPDPSW
2020 (REDIR). The processors are split into a principal group, to which jobs come, and a redirection
group. Each job that runs in the principal group counts the jobs that come and have to wait
meanwhile. When a count exceeds theta, one such job is killed and started again, from its beginning,
in the redirection group, and all counts begin anew. What the groups are scheduled by is another
matter; the core that holds both is `scheduler.sites.two_groups.TwoGroupSite`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import floor
from typing import Literal, TypeAlias

import msgspec

from reshape.errors import nearest
from scheduler.model.job import Job

#: A job and how many others have come since it started or since the last redirection.
Counted: TypeAlias = tuple[Job, int]

#: Which of several jobs whose counts exceed theta is redirected: the one with the smallest key.
CONFLICTS: dict[str, Callable[[Job, int], float]] = {
    "longest-walltime": lambda job, count: -job.spec.walltime_s,
    "most-counted": lambda job, count: -count,
    "fewest-processors": lambda job, count: job.processors,
    "most-processors": lambda job, count: -job.processors,
    "latest-start": lambda job, count: -(job.started_at or 0.0),
    "latest-end": lambda job, count: -job.expected_end,
}
ALPHA = 0.15


class Redirection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When jobs are redirected, which, and how large the group is that takes them.

    Parameters
    ----------
    theta : a job may be redirected when it has counted more than so many others.
    alpha : size of the redirection group as a part of the machine, rounded down to processors; 0.15
        unless `processors` says it. A live service takes it from the machine, the principal group
        keeps the rest (REDIR III.A). The simulator adds it to the machine, so that no job becomes
        too large for the principal group (REDIR IV.B).
    processors : size of the redirection group, instead of `alpha`.
    conflict : which one if several jobs may be; one of `CONFLICTS`, ties by the lower job number.
    filter : which running jobs k count an arriving job j. "processors": those of q_k >= q_j, so
        that no large job drives small ones away (REDIR III.B). "walltime": those of w_k <= w_j, as
        line 3 of the paper's algorithm 2 is printed, against its text. "none": all. What counts is
        what was asked for, also for a job that has grown since.
    scenario : name of the scenario by which the redirection group is scheduled; None: the same as
        the principal group's.

    Raises
    ------
    ValueError : a parameter is out of range, or both alpha and processors are given.
    """

    theta: int = 10
    alpha: float | None = None
    processors: int | None = None
    conflict: str = "longest-walltime"
    filter: Literal["processors", "walltime", "none"] = "processors"
    scenario: str | None = None

    def __post_init__(self) -> None:
        """Check the parameters."""
        if self.theta < 0:
            raise ValueError(f"theta must be >= 0, got {self.theta}")
        if self.alpha is not None and self.processors is not None:
            raise ValueError(
                f"give alpha or processors, not both; got {self.alpha} and {self.processors}"
            )
        if self.alpha is not None and not 0 < self.alpha < 1:
            raise ValueError(f"alpha must be > 0 and < 1, got {self.alpha}")
        if self.processors is not None and self.processors < 1:
            raise ValueError(f"processors must be >= 1, got {self.processors}")
        if self.conflict not in CONFLICTS:
            raise ValueError(
                f"unknown conflict policy {self.conflict!r}{nearest(self.conflict, CONFLICTS)}"
            )
        if self.filter not in ("processors", "walltime", "none"):
            raise ValueError(f"filter must be processors, walltime or none, got {self.filter!r}")

    def group_size(self, processors: int) -> int:
        """Processors of the redirection group, beside or of a machine of so many.

        Raises
        ------
        ValueError : there would be none.
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
        """Take the redirection group from a machine: from its last node first.

        Parameters
        ----------
        nodes : name -> processors.

        Returns
        -------
        name -> processors of the node that belong to the group, where there are any.

        Raises
        ------
        ValueError : nothing would be left for one of the groups.
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
        """Resolve a conflict."""
        key = CONFLICTS[self.conflict]
        return min(counted, key=lambda entry: (key(*entry), entry[0].id))


class Counters:
    """Counts of the running jobs (REDIR, algorithm 2).

    Jobs that always count alike share a bucket with one counter; a job's own count is the
    difference to what it was at its start. So an arrival costs a step for each bucket, not one for
    each running job, and in a bucket the first to start has counted most.

    Parameters
    ----------
    rule : whose filter and theta count.
    """

    def __init__(self, rule: Redirection) -> None:
        self._rule = rule
        self._buckets: dict[float, _Bucket] = {}
        self._of: dict[int, _Bucket] = {}

    def __contains__(self, job: int) -> bool:
        """Whether the job of this number counts."""
        return job in self._of

    def __getitem__(self, job: int) -> int:
        """Count of a job."""
        return self._of[job].counted(job)

    def started(self, job: Job) -> None:
        """Let a job count from now on."""
        bucket = self._buckets.setdefault(self._key(job), _Bucket())
        bucket.jobs[job.id] = job, bucket.count
        self._of[job.id] = bucket

    def forget(self, job: int) -> None:
        """Let the job of this number count no more."""
        bucket = self._of.pop(job)
        left, _ = bucket.jobs.pop(job)
        if not bucket.jobs:
            del self._buckets[self._key(left)]

    def arrived(self, job: Job, room: int) -> list[Counted]:
        """Count a job that came and has to wait.

        Parameters
        ----------
        room : processors of the redirection group.

        Returns
        -------
        jobs that find room and whose counts exceed theta now.
        """
        theta, key, filter = self._rule.theta, self._key(job), self._rule.filter
        over: list[Counted] = []
        for bucket_key, bucket in self._buckets.items():
            if bucket_key < key if filter == "processors" else bucket_key > key:
                continue
            bucket.count += 1
            if filter != "processors" or bucket_key <= room:
                over += bucket.over(theta)
        return [entry for entry in over if entry[0].processors <= room]

    def reset(self) -> None:
        """Let all counts begin anew (REDIR, algorithm 2, line 10)."""
        for bucket in self._buckets.values():
            bucket.floor = bucket.count

    def _key(self, job: Job) -> float:
        filter = self._rule.filter
        if filter == "processors":
            return job.processors
        return job.spec.walltime_s if filter == "walltime" else 0


class _Bucket:
    """Running jobs that count the same arrivals; `jobs` holds (job, count at its start)."""

    def __init__(self) -> None:
        self.count = self.floor = 0
        self.jobs: dict[int, tuple[Job, int]] = {}

    def counted(self, job: int) -> int:
        return self.count - max(self.jobs[job][1], self.floor)

    def over(self, theta: int) -> Iterator[Counted]:
        """Jobs that have counted more than theta, those that started first before the others."""
        for job, base in self.jobs.values():
            count = self.count - max(base, self.floor)
            if count <= theta:
                return
            yield job, count
