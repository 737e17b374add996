"""What a job may request besides processors: conditions of its start, its nodes, and a signal.

A queued job is eligible if it is not held, its begin time has come and its dependency is met. Only
eligible jobs are in the queue that scheduling passes go through. The words of dependencies, of the
reasons to wait and of signals are those of Slurm. A request of nodes decides which processors a job
may hold, and not how many.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection
from typing import Literal, TypeAlias, cast, get_args

import msgspec
from msgspec.structs import replace

from reshape.key_values import whole_number
from scheduler.model.arrays import LAST, Hold, JobName, TaskArray, TaskOf, names

Kind: TypeAlias = Literal["after", "afterany", "afterok", "afternotok", "singleton"]

DEPENDENCY_FORM = (
    "afterok:ID[:ID...], afterany, afternotok or after, or singleton; several with , or with ?;"
    " an ID is a job 17 or a task 17_4"
)
#: Jobs that a dependency names, at most.
MOST_TERMS = 1000
CONSTRAINT_FORM = "features with & (all of them) and | (any), such as gpu&fast|big"
SIGNAL_FORM = "SIGNAL, SIGNAL@SECONDS or B:SIGNAL@SECONDS, such as USR1@120"
#: Seconds of a signal before the end of the walltime, if none are given, and at most.
DEFAULT_S, MOST_S = 60, 65535


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
                raise ValueError(f"{part!r} is no dependency: write {DEPENDENCY_FORM}")
            if (kind == "singleton") == bool(numbers):
                wants = "has no job numbers" if numbers else "needs the number of a job"
                raise ValueError(f"{kind} {wants}: write {DEPENDENCY_FORM}")
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
        raise ValueError(
            f"{text!r} in {part!r} is not the number of a job: write {DEPENDENCY_FORM}"
        )
    if name.tasks is None:
        return [Term(kind, name.job)]
    if name.tasks.count > MOST_TERMS:
        raise ValueError(f"{text!r} has {name.tasks.count} tasks: name {MOST_TERMS} at most")
    return [Term(kind, name.job, None, TaskOf(name.job, i)) for i in name.tasks.indices()]


class NodeRequest(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Which nodes a job may get processors of.

    Parameters
    ----------
    any_of : sets of features; a node of the job has all features of one of them. (): any node.
    whole : number of processors of each of its nodes, all of which the job gets; 0: the job may
        get a part of a node.
    per_process : number of processors of each of its processes, which are on one node.
    """

    any_of: tuple[tuple[str, ...], ...] = ()
    whole: int = 0
    per_process: int = 1

    @property
    def block(self) -> int:
        """Processors that the job gets together on a node, or not at all."""
        return self.whole or self.per_process

    def fitting(self, processors: int) -> int:
        """Return how many of so many processors of a node the job can use."""
        return processors // self.block * self.block

    def admits(self, features: Collection[str], processors: int) -> bool:
        """Whether a node with these features and this many processors may be one of the job."""
        if processors < self.block or (self.whole and processors != self.whole):
            return False
        return not self.any_of or any(
            all(feature in features for feature in alternative) for alternative in self.any_of
        )

    def __str__(self) -> str:
        """The nodes in words, such as ``whole nodes with gpu&fast``."""
        having = [constraint_text(self.any_of)] if self.any_of else []
        if self.per_process > 1:
            having.append(f"{self.per_process} processors for each process")
        text = f"{'whole ' if self.whole else ''}nodes"
        return f"{text} with {' and '.join(having)}" if having else text


def constraint_text(any_of: tuple[tuple[str, ...], ...]) -> str:
    """A constraint as users write it."""
    return "|".join("&".join(alternative) for alternative in any_of)


def parse_constraint(text: str) -> tuple[tuple[str, ...], ...]:
    """Read a constraint such as ``gpu&fast|big``; & binds more closely than |.

    Raises
    ------
    ValueError : a feature is empty, or the text has counts, brackets or parentheses.
    """
    alternatives = tuple(
        tuple(feature.strip() for feature in part.split("&")) for part in text.split("|")
    )
    for feature in (feature for part in alternatives for feature in part):
        if (wrong := feature_fault(feature)) is not None:
            raise ValueError(f"{feature!r} in {text!r} {wrong}: write {CONSTRAINT_FORM}")
    return alternatives


def feature_fault(feature: str) -> str | None:
    """Why a text is not the name of a feature; None if it is one."""
    if not feature:
        return "is no feature"
    if not all(character.isalnum() or character in "_-.:=" for character in feature):
        return "has other characters than letters, digits and _ - . : ="
    return None


class EndSignal(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A signal that a job gets before the end of its walltime.

    Parameters
    ----------
    number : of the signal.
    before_s : how long before the end of the walltime, s.
    to_script : whether the script of the job gets it, and none of the processes that it started.
    """

    number: int
    before_s: int = DEFAULT_S
    to_script: bool = False

    @classmethod
    def parse(cls, text: str) -> EndSignal:
        """Read a signal such as ``B:USR1@120``.

        Raises
        ------
        ValueError : it is none.
        """
        target, colon, rest = text.rpartition(":")
        if colon and target != "B":
            raise ValueError(f"{target!r} in {text!r} is not B: write {SIGNAL_FORM}")
        name, at, seconds = rest.partition("@")
        before_s = whole_number(seconds, MOST_S) if at else DEFAULT_S
        if before_s is None:
            raise ValueError(
                f"{seconds!r} is no number of seconds from 0 to {MOST_S}: write {SIGNAL_FORM}"
            )
        return cls(signal_number(name), before_s, bool(colon))

    def __str__(self) -> str:
        """The signal as a user writes it."""
        return f"{'B:' if self.to_script else ''}{signal_name(self.number)}@{self.before_s}"


class SentSignal(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The last signal that was ordered for a job.

    Parameters
    ----------
    serial : numbers the signals of a job from 1 on.
    number : of the signal.
    groups : the groups on which the job computed then.
    to_script : as of `EndSignal`.
    """

    serial: int
    number: int
    groups: tuple[int, ...]
    to_script: bool = False


def signal_number(text: str) -> int:
    """Return the number of a signal from its name, with or without SIG, or from its number.

    Raises
    ------
    ValueError : there is no such signal.
    """
    try:
        if (number := whole_number(text)) is not None:
            return signal.Signals(number).value
        return signal.Signals[f"SIG{text.upper().removeprefix('SIG')}"].value
    except (KeyError, ValueError):
        raise ValueError(f"{text!r} is no signal: write a name or a number, such as USR1") from None


def signal_name(number: int) -> str:
    """Name of a signal without SIG; its number if it has no name."""
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)
