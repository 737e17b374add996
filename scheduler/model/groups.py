"""Which groups of a job leave when it contracts."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.model.intervals import count
from scheduler.model.procset import ProcSet


def leaving_groups(groups: Mapping[int, ProcSet], processors: int) -> tuple[int, ...] | None:
    """Groups that have this many processors together; the newest of several choices.

    A group is one `MPI_COMM_WORLD` and leaves as a whole. So a job of groups 2+2+4 can contract
    from 8 to 6, 4 or 2 processors, and a job of one group cannot contract at all.

    Parameters
    ----------
    groups : group number -> processors, oldest first.
    processors : number of processors that leave, >= 1 and fewer than the job has.

    Returns
    -------
    numbers of the leaving groups, oldest first; None if no subset has exactly this many processors.
    """
    sizes = [(group, count(held.intervals)) for group, held in groups.items()]
    # Bit s of sums[i]: some subset of the i oldest groups has s processors together.
    sums = [1]
    for _, size in sizes:
        sums.append(sums[-1] | sums[-1] << size)
    if processors < 1 or not sums[-1] >> processors & 1:
        return None
    leaving = []
    for i in range(len(sizes) - 1, -1, -1):
        group, size = sizes[i]
        if size <= processors and sums[i] >> (processors - size) & 1:
            leaving.append(group)
            processors -= size
    return tuple(reversed(leaving))
