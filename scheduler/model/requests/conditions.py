"""Conditions of a request: until they are met, the job is not eligible to start.

A queued job is eligible if it is not held, its begin time has come and its dependency is met. Only
eligible jobs are in the queue that scheduling passes go through. The words of dependencies, and of
the reasons to wait, are those of Slurm.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, cast, get_args

import msgspec

Kind: TypeAlias = Literal["after", "afterany", "afterok", "afternotok", "singleton"]
#: Who has held a job; "": it is not held.
Hold: TypeAlias = Literal["", "user", "administrator"]

FORM = "afterok:ID[:ID...], afterany, afternotok or after, or singleton; several with , or with ?"
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
    """

    kind: Kind
    job: int = 0
    met: bool | None = None

    def __str__(self) -> str:
        """The term as a user writes it."""
        return self.kind if self.kind == "singleton" else f"{self.kind}:{self.job}"


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
        if "," in text and "?" in text:
            raise ValueError(f"{text!r} has both , (all) and ? (any): take one of them")
        any_of = "?" in text
        terms: list[Term] = []
        for part in text.split("?" if any_of else ","):
            kind, *numbers = part.strip().split(":")
            if kind not in get_args(Kind):
                raise ValueError(f"{part!r} is no dependency: write {FORM}")
            if (kind == "singleton") == bool(numbers):
                wants = "has no job numbers" if numbers else "needs the number of a job"
                raise ValueError(f"{kind} {wants}: write {FORM}")
            if kind == "singleton":
                terms.append(Term("singleton"))
            terms += [Term(cast("Kind", kind), _number(number, part)) for number in numbers]
        if len(terms) > MOST_TERMS:
            raise ValueError(f"a dependency names at most {MOST_TERMS} jobs, got {len(terms)}")
        return cls(tuple(dict.fromkeys(terms)), any_of)

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
        known = [term.met for term in self.terms]
        decisive = self.any_of
        if decisive in known:
            return decisive
        return None if None in known else not decisive


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
        return msgspec.structs.replace(self, begin=begin, dependency=dependency)


def _number(text: str, part: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**63):
        raise ValueError(f"{text!r} in {part!r} is not the number of a job: write {FORM}")
    return int(text)
