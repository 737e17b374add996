"""Conditions of a request: until they are met, the job is not eligible to start.

A queued job is eligible if it is not held, its begin time has come and its dependency is met. Only
eligible jobs are in the queue that scheduling passes go through. The words of dependencies, and of
the reasons to wait, are those of Slurm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, cast, get_args

import msgspec
from msgspec.structs import replace

from scheduler.model.requests.job_name import LAST, JobName, names
from scheduler.model.requests.task_array import TaskArray, TaskOf

Kind: TypeAlias = Literal["after", "afterany", "afterok", "afternotok", "singleton"]
#: Who has held a job; "": it is not held.
Hold: TypeAlias = Literal["", "user", "administrator"]

FORM = (
    "afterok:ID[:ID...], afterany, afternotok or after, or singleton; several with , or with ?;"
    " an ID is a job 17 or a task 17_4"
)
#: Jobs that a dependency names, at most.
MOST_TERMS = 1000


class Term(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A part of a dependency: what has to become of one other job.

    Parameters
    ----------
    kind : the other job has started or ended (after), has ended (afterany), has completed with exit
        code 0 (afterok), or has ended otherwise (afternotok). singleton: the earlier jobs of the
        same user and name have ended.
    job : number of the other job; of a singleton, the latest of the earlier jobs.
    met : whether it is met, once that is known for good.
    task_of : what makes the other job a task; None: it is named by its number.
    """

    kind: Kind
    job: int = 0
    met: bool | None = None
    task_of: TaskOf | None = None

    def __str__(self) -> str:
        """The term as a user writes it."""
        if self.kind == "singleton":
            return self.kind
        return f"{self.kind}:{self.job if self.task_of is None else self.task_of}"

    @property
    def watched(self) -> tuple[int, ...]:
        """Numbers of the jobs whose starts and ends may decide it.

        An array may end, or lose tasks, before the one that is named is a job.
        """
        return (self.job,) if self.task_of is None else (self.job, self.task_of.array)

    def of_array(self, tasks: TaskArray | None) -> Term:
        """Term with the number of its task.

        Parameters
        ----------
        tasks : those of the job `task_of.array`; None: it is no array.

        Raises
        ------
        ValueError : the array has no such task.
        """
        assert self.task_of is not None
        position = None if tasks is None else tasks.position(self.task_of.index)
        if position is None:
            has = "is no array" if tasks is None else f"has the tasks {tasks}"
            raise ValueError(f"there is no task {self.task_of}: job {self.task_of.array} {has}")
        return replace(self, job=self.task_of.array + 1 + position)


class Dependency(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What has to become of other jobs before a job may start.

    Parameters
    ----------
    terms : its parts, >= 1.
    any_of : whether one of the terms is enough; otherwise all of them have to be met.
    """

    terms: tuple[Term, ...]
    any_of: bool = False

    @classmethod
    def parse(cls, text: str) -> Dependency:
        """Read a dependency such as ``afterok:3:4,afterany:5`` or ``afterok:3?afterok:4``.

        Raises
        ------
        ValueError : an unknown word, a number that is none, or both separators.
        """
        if len(names(text)) > 1 and "?" in text:
            raise ValueError(f"{text!r} has both , (all) and ? (any): take one of them")
        any_of = "?" in text
        terms: list[Term] = []
        for part in text.split("?") if any_of else names(text):
            kind, *numbers = names(part.strip(), ":")
            if kind not in get_args(Kind):
                raise ValueError(f"{part!r} is no dependency: write {FORM}")
            if (kind == "singleton") == bool(numbers):
                wants = "has no job numbers" if numbers else "needs the number of a job"
                raise ValueError(f"{kind} {wants}: write {FORM}")
            if kind == "singleton":
                terms.append(Term("singleton"))
            for number in numbers:
                terms += _terms(cast("Kind", kind), number, part)
        if len(terms) > MOST_TERMS:
            raise ValueError(f"a dependency names at most {MOST_TERMS} jobs, got {len(terms)}")
        return cls(tuple(dict.fromkeys(terms)), any_of)

    def numbered(self, tasks_of: Callable[[int], TaskArray | None]) -> Dependency:
        """Dependency with the numbers of the tasks that it names.

        Parameters
        ----------
        tasks_of : returns the tasks of a job; None: it is no array.

        Raises
        ------
        ValueError : an array has no such task.
        """
        terms = (
            term if term.task_of is None else term.of_array(tasks_of(term.task_of.array))
            for term in self.terms
        )
        return Dependency(tuple(terms), self.any_of)

    def __str__(self) -> str:
        """The dependency as a user writes it."""
        return ("?" if self.any_of else ",").join(map(str, self.terms))

    @property
    def jobs(self) -> list[int]:
        """Numbers of the jobs that it names."""
        return [term.job for term in self.terms if term.kind != "singleton"]

    @property
    def met(self) -> bool | None:
        """Whether it is met; False if it can never be; None if that is not known yet."""
        outcomes = [term.met for term in self.terms]
        decisive = self.any_of
        if decisive in outcomes:
            return decisive
        return None if None in outcomes else not decisive


class Conditions(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a job waits for before passes consider it.

    Parameters
    ----------
    hold : who has held the job; "": it is not held.
    begin : time before which it does not start, s on the clock of the driver; None: it has none.
    dependency : what has to become of other jobs; None: nothing.
    kill_on_invalid : whether the job is cancelled when its dependency can never be met.
    """

    hold: Hold = ""
    begin: float | None = None
    dependency: Dependency | None = None
    kill_on_invalid: bool = False

    def left(self, now: float) -> Conditions | None:
        """Conditions without a begin time that has come and a dependency that is met.

        None: the job is eligible.
        """
        begin = None if self.begin is None or self.begin <= now else self.begin
        dependency = self.dependency
        if dependency is not None and dependency.met:
            dependency = None
        if not self.hold and begin is None and dependency is None:
            return None
        return replace(self, begin=begin, dependency=dependency)


def _terms(kind: Kind, text: str, part: str) -> list[Term]:
    """Terms for a job, or for the tasks of an array, of which `of_array` finds the numbers."""
    try:
        name = JobName.parse(text)
    except ValueError:
        name = JobName(LAST)
    if name.job == LAST or name.step is not None:
        raise ValueError(f"{text!r} in {part!r} is not the number of a job: write {FORM}")
    if name.tasks is None:
        return [Term(kind, name.job)]
    if name.tasks.count > MOST_TERMS:
        raise ValueError(f"{text!r} has {name.tasks.count} tasks: name {MOST_TERMS} at most")
    return [Term(kind, name.job, None, TaskOf(name.job, i)) for i in name.tasks.indices()]
