"""Children and further descendants of a process, as the kernel lists them by parent (proc(5)).

A list may lack a child if the parent waits for another one while the list is read. That of this
process is complete, because no other process waits for its children. Where the kernel has no
such lists, all processes of the machine are searched, which takes milliseconds.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil

_HAS_LISTS = Path(f"/proc/self/task/{os.getpid()}/children").exists()


def children_of(pid: int) -> set[int]:
    """Return the process numbers of the children of a process; none if it has ended."""
    if not _HAS_LISTS:
        try:
            return {child.pid for child in psutil.Process(pid).children()}
        except psutil.Error:
            return set()
    found: set[int] = set()
    with suppress(OSError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                children = Path(f"/proc/{pid}/task/{thread}/children").read_bytes()
                found.update(map(int, children.split()))
    return found


def descendants_of(pid: int) -> set[int]:
    """Return the process numbers of all descendants of a process."""
    found: set[int] = set()
    left = [pid]
    while left:
        children = children_of(left.pop()) - found
        found |= children
        left += children
    return found
