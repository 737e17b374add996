"""Orders: what the core tells its driver to do, each with its reason; and the resize it begins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from reshape.times import utc_moment
from scheduler.model.procset import ProcSet

Facts: TypeAlias = Mapping[str, int | float | str]
#: Facts that are times of the driver's clock, s.
MOMENTS = ("at", "begin", "end", "earliest")
#: Rule of a `Continue` while a resize of the job is under way.
RESIZE_UNDER_WAY = "resize under way"
#: The number 1 with a plural noun.
_ONE = re.compile(r"(?<![\w.,-])1 (processor|job|group|node|iteration)s\b")


class Reason(msgspec.Struct, frozen=True, gc=False):
    """The rule that decided, a sentence, and the numbers that the rule saw.

    `text` is a format string over `facts`. It is formatted only on request, so that reasons add
    little to the cost of a decision.

    Parameters
    ----------
    rule : the policy's rule, such as "FCFS-PR: undo an expansion without benefit
        (PRIO 3.3 bullet 3)" or "EASY backfill".
    text : sentence with `{fact}` fields.
    facts : the numbers (processors, seconds, job numbers) behind the decision.
    """

    rule: str
    text: str = ""
    facts: Facts = {}

    @property
    def sentence(self) -> str:
        """The text with the facts filled in; a noun directly after the number 1 is singular."""
        text = self.text.format(**self.facts)
        return _ONE.sub(r"1 \1", text) if "1 " in text else text

    def moments(self, ahead_s: float) -> dict[str, float]:
        """Return the moments among the facts, in Unix seconds.

        Parameters
        ----------
        ahead_s : wall clock minus the clock of the facts, seconds.
        """
        named = {name: self.facts.get(name) for name in MOMENTS}
        return {name: at + ahead_s for name, at in named.items() if type(at) is float}

    def dated(self, ahead_s: float) -> Reason:
        """Return the reason with the moments that it names as texts; see `utc_moment`.

        Parameters
        ----------
        ahead_s : as of `moments`.
        """
        dates = {name: utc_moment(at) for name, at in self.moments(ahead_s).items()}
        return msgspec.structs.replace(self, facts={**self.facts, **dates}) if dates else self

    def __str__(self) -> str:
        """The sentence, then the rule in brackets."""
        return f"{self.sentence} [{self.rule}]" if self.text else f"[{self.rule}]"


class Resize(msgspec.Struct, frozen=True, omit_defaults=True):
    """A resize of a job under way.

    `group` is the first one that joins in an expansion, and `groups` how many there are, with
    consecutive numbers; `leaving` are those that leave in a contraction.
    """

    serial: int
    at: float
    old: int
    new: int
    reason: Reason
    group: int | None = None
    leaving: tuple[int, ...] = ()
    groups: int = 1

    @property
    def joining(self) -> tuple[int, ...]:
        """Groups that join, oldest first."""
        return () if self.group is None else tuple(range(self.group, self.group + self.groups))

    @property
    def expands(self) -> bool:
        """Whether the job grows."""
        return self.new > self.old


class JobOrder(msgspec.Struct, frozen=True, gc=False):
    """What is decided about one job."""

    job: int


class Start(JobOrder, frozen=True, tag=True, gc=False):
    """Start a job on these processors, or restart it with the groups that it had.

    Parameters
    ----------
    group : number of the first group.
    restart : whether the job restarts from its last resize point.
    groups : all groups with their processors, oldest first, if there are several.
    """

    group: int
    processors: ProcSet
    reason: Reason
    restart: bool = False
    groups: dict[int, ProcSet] | msgspec.UnsetType = msgspec.UNSET


class Expand(JobOrder, frozen=True, tag=True, gc=False):
    """Start groups on `processors` and join them to the job, which then has `to` processors.

    Parameters
    ----------
    serial : numbers the resizes of a job from 1.
    group : number of the first group.
    groups : all groups that join with their processors, oldest first, if there are several.
    """

    serial: int
    to: int
    group: int
    processors: ProcSet
    reason: Reason
    groups: dict[int, ProcSet] | msgspec.UnsetType = msgspec.UNSET


class Contract(JobOrder, frozen=True, tag=True, gc=False):
    """Let these groups of the job leave, so that it keeps `to` processors."""

    serial: int
    to: int
    groups: tuple[int, ...]
    reason: Reason


class Continue(JobOrder, frozen=True, tag=True, gc=False):
    """Continue with the next iteration on the present configuration."""

    reason: Reason


class Kill(JobOrder, frozen=True, tag=True, gc=False):
    """End every process of the job; `JobEnded` follows when they are gone."""

    reason: Reason


class Signal(JobOrder, frozen=True, tag=True, gc=False):
    """Send a signal to the programs of these groups of the job, or to its script alone.

    `serial` numbers the signals of a job from 1.
    """

    serial: int
    number: int
    groups: tuple[int, ...]
    to_script: bool
    reason: Reason


class Requeue(JobOrder, frozen=True, tag=True, gc=False):
    """The job went back to the queue; its processors are free."""

    reason: Reason


class Await(JobOrder, frozen=True, tag=True, gc=False):
    """A queued job is not eligible, or waits for something else than before."""

    reason: Reason


class Enqueue(JobOrder, frozen=True, tag=True, gc=False):
    """A job that was not eligible is in the queue from now on."""

    reason: Reason


class Drop(JobOrder, frozen=True, tag=True, gc=False):
    """A job that holds no processors has ended: it was not eligible, or is an array."""

    reason: Reason


class GiveUp(JobOrder, frozen=True, tag=True, gc=False):
    """No more resizes of the job, or none in this direction, are tried: too many failed."""

    reason: Reason


class AnswerRequest(JobOrder, frozen=True, tag=True, gc=False):
    """The bounds that a program requested on the size of its job apply, or are declined."""

    accepted: bool
    reason: Reason


class WakeAt(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Send a `Wakeup` at this time (s); only the earliest one asked for is needed."""

    at: float


class Reserve(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An advance reservation is granted, of these processors, from `begin` to `end` (s)."""

    name: str
    processors: ProcSet
    begin: float
    end: float
    reason: Reason


class Refuse(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An advance reservation is refused.

    It could be granted from `earliest` (s) on, by the present estimates; None: at no time.
    """

    name: str
    earliest: float | None
    reason: Reason


Order: TypeAlias = (
    Start
    | Expand
    | Contract
    | Continue
    | Kill
    | Signal
    | Requeue
    | Await
    | Enqueue
    | Drop
    | GiveUp
    | AnswerRequest
    | WakeAt
    | Reserve
    | Refuse
)
