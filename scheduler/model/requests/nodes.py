"""What a job requests of its nodes: features, that it gets them whole, and blocks on one node.

All of them decide which processors a job may hold, and not how many.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

FORM = "features with & (all of them) and | (any), such as gpu&fast|big"


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
            raise ValueError(f"{feature!r} in {text!r} {wrong}: write {FORM}")
    return alternatives


def feature_fault(feature: str) -> str | None:
    """Why a text is not the name of a feature; None if it is one."""
    if not feature:
        return "is no feature"
    if not all(character.isalnum() or character in "_-.:=" for character in feature):
        return "has other characters than letters, digits and _ - . : ="
    return None
