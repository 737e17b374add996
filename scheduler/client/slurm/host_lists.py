"""Lists of hosts as Slurm writes them, such as ``n[1-3,5],m``."""

from __future__ import annotations

import re

from reshape.errors import ReshapeError

#: Hosts that a list may have.
MOST_HOSTS = 100_000
_SPANS = re.compile(r"\d{1,18}(?:-\d{1,18})?(?:,\d{1,18}(?:-\d{1,18})?)*", re.ASCII)
#: A part of a list: a name, or the parts of a name between lists of numbers in brackets.
_PART = re.compile(r"(?:[^],[]|\[[^]]*\])+")
_PIECE = re.compile(r"\[([^]]*)\]|([^][]+)")


def hosts(text: str) -> list[str]:
    """Return the hosts of a list, in order.

    Raises
    ------
    ReshapeError : it is no list, or has more than `MOST_HOSTS` hosts.
    """
    names: list[str] = []
    at = 0
    while at < len(text) or not names:
        part = _PART.match(text, at)
        if part is None:
            raise _fault(text)
        found = [""]
        for piece in _PIECE.finditer(part[0]):
            spans, plain = piece.groups()
            ends = [plain] if spans is None else _numbers(spans, text)
            if len(names) + len(found) * len(ends) > MOST_HOSTS:
                raise ReshapeError(f"{text[:80]!r} has more than {MOST_HOSTS} hosts")
            found = [begin + end for begin in found for end in ends]
        names += found
        at = part.end() + 1
        if at == len(text) or (at < len(text) and text[at - 1] != ","):
            raise _fault(text)
    return names


def _numbers(spans: str, text: str) -> list[str]:
    """Return the numbers of a list in brackets, with their leading zeros."""
    if not _SPANS.fullmatch(spans):
        raise _fault(text)
    numbers: list[str] = []
    for span in spans.split(","):
        low, dash, high = span.partition("-")
        last = int(high if dash else low)
        if last < int(low):
            raise _fault(text)
        if last - int(low) + len(numbers) >= MOST_HOSTS:
            raise ReshapeError(f"{text[:80]!r} has more than {MOST_HOSTS} hosts")
        numbers += [f"{number:0{len(low)}}" for number in range(int(low), last + 1)]
    return numbers


def _fault(text: str) -> ReshapeError:
    return ReshapeError(f"{text[:80]!r} is not a list of hosts such as n[1-3,5],m")
