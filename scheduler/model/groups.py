"""Which groups of a job can leave so that exactly a wanted size stays.

A group is one mpiexec world and leaves whole. So a job of groups 2+2+4 can go from 8 to 6, 4 or 2,
and a job of one group cannot contract at all.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.model.procset import ProcSet


def leaving_groups(groups: Mapping[int, ProcSet], processors: int) -> tuple[int, ...] | None:
    """Groups of so many processors together, the newest where there is a choice.

    Parameters
    ----------
    groups : group number -> processors, oldest first.
    processors : how many shall leave, >= 1 and fewer than the job has.

    Returns
    -------
    numbers of the leaving groups, oldest first, or None if no subset has exactly that many.
    """
    sizes = [(group, len(held)) for group, held in groups.items()]
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
