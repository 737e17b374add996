"""The resizes of a trial: when, to which size, and which groups leave; at random or as written.

A group leaves as a whole. So a job of groups of 3 and 1 processes can contract to 3 or 1, and not
to 2. A plan names groups by their place in the job, the oldest first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, combinations, islice, pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from reshape.errors import ReshapeError
from scheduler.text.formats import counted

#: What is killed at a step: the group that joins, after which the job goes on at its size; or the
#: whole job, within a resize or at a resize point, after which it restarts.
Kill: TypeAlias = Literal["joining group", "job in the resize", "job"]
_MOST_SETS = 1 << 10  # sets of groups that are examined


class Step(NamedTuple):
    """One resize.

    Attributes
    ----------
    at : number of finished iterations at the resize point.
    size : number of processes after the resize if nothing is killed.
    leave : places of the groups that leave; none if a group joins.
    kill : what is killed; None: nothing.
    """

    at: int
    size: int
    leave: tuple[int, ...] = ()
    kill: Kill | None = None

    def __str__(self) -> str:
        """Say what happens, for the report."""
        processes = counted(self.size, "process")
        if self.kill == "job":
            return f"at {self.at}: the job is killed and restarts with {processes}"
        first = ", rank 0 leaves" if 0 in self.leave else ""
        killed = f", the {self.kill} is killed" if self.kill == "joining group" else ""
        killed = ", the job is killed within" if self.kill == "job in the resize" else killed
        return f"at {self.at}: to {processes}{first}{killed}"


def resized(groups: Sequence[int], step: Step) -> tuple[int, ...]:
    """Sizes of the groups of a job after a step."""
    if step.kill == "job":
        return (step.size,)
    if step.kill is not None:
        return tuple(groups)
    if step.leave:
        return tuple(size for place, size in enumerate(groups) if place not in step.leave)
    return (*groups, step.size - sum(groups))


def parse(text: str) -> list[tuple[int, int]]:
    """Read the resizes of ``--at``, such as ``10:4,20:2``.

    Returns
    -------
    number of finished iterations and size of each, in their order.

    Raises
    ------
    ValueError : the text has another form, or the iterations do not ascend.
    """
    pairs = []
    for part in text.split(","):
        at, _, size = part.strip().partition(":")
        if not (at.isdecimal() and size.isdecimal() and int(at) >= 1 and int(size) >= 1):
            raise ValueError(
                f"expected ITERATION:SIZE such as 10:4, both at least 1, got {part.strip()!r}"
            )
        pairs.append((int(at), int(size)))
    for (before, _), (later, _) in pairwise(pairs):
        if later <= before:
            raise ValueError(f"iteration {later} does not come after iteration {before}")
    return pairs


def written_plan(
    rng: np.random.Generator, start: int, sizes: Sequence[tuple[int, int]]
) -> list[Step]:
    """Choose the groups that leave for resizes that the user has written.

    Raises
    ------
    ReshapeError : there is no choice with which all of them are possible.
    """
    furthest: list[tuple[int, tuple[int, ...]]] = [(0, (start,))]

    def choose(groups: tuple[int, ...], k: int) -> list[Step] | None:
        if k > furthest[0][0]:
            furthest[0] = k, groups
        if k == len(sizes):
            return []
        at, size = sizes[k]
        choices = [Step(at, size)] if size > sum(groups) else []
        leaving = [leave for leave, left in _contractions(groups).items() if left == size]
        choices += [Step(at, size, leaving[k]) for k in rng.permutation(len(leaving))]
        for step in choices:
            rest = choose(resized(groups, step), k + 1)
            if rest is not None:
                return [step, *rest]
        return None

    steps = choose((start,), 0)
    if steps is not None:
        return steps
    place, groups = furthest[0]
    at, size = sizes[place]
    if size == sum(groups):
        raise ReshapeError(
            f"--at {at}:{size}: the job has {counted(size, 'process')} then: leave it out"
        )
    raise ReshapeError(
        f"--at {at}:{size}: the groups of the job have {_text(groups, 'and')} processes then, and "
        "leave only as a whole: it can contract to "
        f"{_text(sorted({*_contractions(groups).values()}), 'or') or 'no other size'}"
    )


def random_plan(
    rng: np.random.Generator,
    start: int,
    maximum: int,
    points: Sequence[int],
    resizes: int,
    allows: Callable[[int], bool],
    kills: Sequence[Kill] = (),
) -> list[Step]:
    """Draw resizes at random.

    An expansion is by a group whose size is valid by itself, if there is one, so that all other
    groups can leave later. The first time that groups leave, the first one is among them if that
    is possible: then another process becomes rank 0.

    Parameters
    ----------
    points : finished iterations at each resize point of the program.
    allows : whether the job can have a size.
    kills : what may be killed; every third step kills one of them.

    Returns
    -------
    at most `resizes` steps; fewer if there are fewer points, none if there is no other size.
    """
    count = min(resizes, len(points))
    iterations = sorted(rng.choice(len(points), count, replace=False).tolist())
    steps = list[Step]()
    groups: tuple[int, ...] = (start,)
    for number, at in enumerate((points[k] for k in iterations), start=1):
        size = sum(groups)
        valid = [s for s in range(size + 1, maximum + 1) if allows(s)]
        more = [s for s in valid if allows(s - size)] or valid
        contractions = _contractions(groups)
        fewer = [leave for leave, left in contractions.items() if allows(left)]
        kill = kills[int(rng.integers(len(kills)))] if kills and number % 3 == 0 else None
        if kill == "job":
            sizes = [s for s in range(1, maximum + 1) if allows(s)]
            step = Step(at, int(rng.choice(sizes)), kill=kill)
        elif more and (kill or not fewer or rng.random() < 0.5):
            step = Step(at, int(rng.choice(more)), kill=kill)
        elif fewer:
            if not any(step.leave for step in steps):
                fewer = [leave for leave in fewer if 0 in leave] or fewer
            leave = fewer[int(rng.integers(len(fewer)))]
            step = Step(at, contractions[leave], leave)
        else:
            continue
        steps.append(step)
        groups = resized(groups, step)
    return steps


def _contractions(groups: Sequence[int]) -> dict[tuple[int, ...], int]:
    """Sets of groups that can leave, by their places, with the size without them; one stays."""
    sets = (combinations(range(len(groups)), count) for count in range(1, len(groups)))
    return {
        leave: sum(groups) - sum(groups[place] for place in leave)
        for leave in islice(chain.from_iterable(sets), _MOST_SETS)
    }


def _text(numbers: Sequence[int], word: str) -> str:
    """Write numbers as a list in words."""
    *first, last = map(str, numbers) if numbers else [""]
    return f"{', '.join(first)} {word} {last}" if first else last
