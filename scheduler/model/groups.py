"""The groups of a job: how it holds its processors, and which groups leave when it contracts.

A group is one `MPI_COMM_WORLD` and leaves as a whole. A job can therefore contract only by whole
groups, and what it holds is divided so that these make up as many sizes as possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from scheduler.model.intervals import count
from scheduler.model.procset import ProcSet

#: Most groups in which further processors of a job are held.
MOST_PARTS = 16


def parts(size: int, to: int, sizes: Sequence[int], held: Iterable[int]) -> list[int]:
    """Divide the processors that a job gets besides those it has, so that it can give some back.

    If its valid sizes are equally far apart, whole groups make up every size between: a job of 2
    that gets 11 holds them as 1, 2, 4 and 4. Otherwise a part ends at each valid size; if these are
    many, at the next one, the second one after that, the fourth one, and so on.

    Parameters
    ----------
    size, to : processors that it has, and that it will have.
    sizes : its valid sizes, ascending.
    held : processors of each group that it has and that may leave.

    Returns
    -------
    processors of each new group; one for the step from a valid size to the next.
    """
    between = [valid for valid in sizes if size < valid < to]
    if not between:
        return [to - size]
    if not isinstance(sizes, range):
        ends = between
        if len(between) > MOST_PARTS // 2:
            ends = [between[2**n - 1] for n in range(len(between).bit_length())]
        return [end - begin for begin, end in zip([size, *ends], [*ends, to], strict=True)]
    step, further = sizes.step, (to - size) // sizes.step
    smaller, made, reach = sorted(part // step for part in held), list[int](), 0
    while further > reach or (further and not made):
        # Everything up to `reach` is made up of whole groups.
        while smaller and smaller[0] <= reach + 1:
            reach += smaller.pop(0)
        part = min(further, reach + 1) if len(made) < MOST_PARTS - 1 else further
        made.append(part)
        reach, further = reach + part, further - part
    if further:
        made.append(further)
    rest = to - size - sum(made) * step
    return [part * step for part in made[:-1]] + [made[-1] * step + rest]


def leaving_groups(groups: Mapping[int, ProcSet], processors: int) -> tuple[int, ...] | None:
    """Groups that have this many processors together; the newest of several choices.

    A job of groups 2+2+4 can contract from 8 to 6, 4 or 2 processors, and a job of one group
    cannot contract at all.

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
