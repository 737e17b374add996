"""`sinfo`, and lists of hosts as Slurm writes them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from reshape.errors import ReshapeError
from scheduler.client.api.client import Client
from scheduler.client.columns import LETTER, width_of
from scheduler.client.scripts.slurm_manual import SINFO
from scheduler.protocol.messages import NodeInfo
from scheduler.text.formats import format_time

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


#: States of nodes whose free processors jobs may get.
_IN_USE = ("idle", "mix", "alloc")
_OWN_NODE_STATES = ("idle", "mix", "alloc", "drng", "drain", "down")
_NEVER = """
comp completing fail fut future maint no_respond plnd planned pow_dn pow_up power_down power_up
reboot resv reserved unk unknown
"""
#: Name of a state of nodes, long or short -> states here that it means; no node is ever in others.
_NODE_STATES: dict[str, tuple[str, ...]] = {
    **{state: (state,) for state in _OWN_NODE_STATES},
    "all": _OWN_NODE_STATES,
    "mixed": ("mix",),
    "allocated": ("alloc",),
    "drain": ("drng", "drain"),
    "draining": ("drng",),
    "drained": ("drain",),
    **dict.fromkeys(_NEVER.split(), ()),
}


def sinfo(words: Sequence[str]) -> None:
    """List partitions and their nodes as sinfo(1) does."""
    given = SINFO.without_arguments(words, os.environ)
    state = "%11T" if "long" in given else "%6t"
    usual = f"%10N %6D %9P {state} %c" if "Node" in given else f"%9P %5a %10l %6D {state} %N"
    with Client() as service:
        info, nodes = service.info(), _chosen_nodes(service.nodes(), given)
    names = [part.name for part in info.partitions] or ["main"]
    limits = {part.name: part.max_walltime_s for part in info.partitions}
    heads = {
        "P": "PARTITION", "R": "PARTITION", "a": "AVAIL", "l": "TIMELIMIT", "D": "NODES",
        "t": "STATE", "T": "STATE", "N": "NODELIST", "n": "HOSTNAMES", "C": "CPUS(A/I/O/T)",
        "c": "CPUS", "f": "AVAIL_FEATURES",
    }  # fmt: skip
    rows = [] if "noheader" in given else [heads]
    for name in given.get("partition", ",".join(names)).split(","):
        there = [node for node in nodes if not node.partitions or name in node.partitions]
        parts = [[node] for node in there]
        if "Node" not in given:
            by_state = sorted({node.state for node in there})
            parts = [[node for node in there if node.state == state] for state in by_state]
        for part in parts if name in names else ():
            state, limit = part[0].state, limits.get(name)
            rows.append(
                {
                    "P": name + ("*" if name == names[0] else ""),
                    "R": name,
                    "a": "up",
                    "l": "infinite" if limit is None else format_time(limit),
                    "D": str(len(part)),
                    "t": state,
                    "T": state,
                    "N": ",".join(node.name for node in part),
                    "n": ",".join(node.name for node in part),
                    "C": _processors(part),
                    "c": str(max(node.processors for node in part)),
                    "f": ",".join({feature: None for node in part for feature in node.features}),
                }
            )
    texts = [_filled(given.get("format") or usual, row) for row in rows]
    print("\n".join(dict.fromkeys(texts)))


def _chosen_nodes(nodes: Sequence[NodeInfo], given: Mapping[str, str]) -> list[NodeInfo]:
    """Choose nodes by the options nodes, states, dead and responding of sinfo.

    Raises
    ------
    ReshapeError : Slurm has no such state.
    """
    names = {*hosts(given["nodes"])} if "nodes" in given else None
    words = given.get("states", "all").lower().split(",")
    for word in words:
        if word not in _NODE_STATES:
            known = ", ".join(sorted(_NODE_STATES))
            raise ReshapeError(f"{word!r} is no state of a node: known are {known}")
    wanted = {state for word in words for state in _NODE_STATES[word]}
    return [
        node
        for node in nodes
        if (names is None or node.name in names)
        and node.state.rstrip("*") in wanted
        and ("dead" not in given or not _responds(node))
        and ("responding" not in given or _responds(node))
    ]


def _responds(node: NodeInfo) -> bool:
    """Whether the agent of a node reports."""
    return node.state != "down" and not node.state.endswith("*")


def _processors(nodes: Sequence[NodeInfo]) -> str:
    """Write the allocated, idle, other and all processors of nodes."""
    there = sum(node.processors for node in nodes)
    held = sum(node.allocated for node in nodes)
    other = sum(n.processors - n.allocated for n in nodes if n.state.rstrip("*") not in _IN_USE)
    return f"{held}/{there - held - other}/{other}/{there}"


def _filled(form: str, row: dict[str, str]) -> str:
    """Write a row in a format of letters."""

    def filled(match: re.Match[str]) -> str:
        point, width, letter = match.groups()
        if letter not in row:
            raise ReshapeError(f"the format has the letter %{letter}: known are {' '.join(row)}")
        size = width_of(width)
        cut = row[letter][: size or None]
        return cut.rjust(size) if point else cut.ljust(size)

    return LETTER.sub(filled, form).rstrip()
