"""A small straightforward EASY, to measure the product against in the same run.

Counted processors, batch order, estimates of the users; a bisected list of running jobs, a plain
list of waiting ones that each pass walks. No reasons, no events, no options: about as little as a
simulator in plain Python can do.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort


def easy(
    submitted: list[float],
    processors: list[int],
    estimate: list[float],
    run: list[float],
    machine: int,
) -> list[float]:
    """Start time of each job; jobs come in the order of submission, runs are <= estimates."""
    n, free, coming = len(submitted), machine, 0
    started = [-1.0] * n
    waiting: list[int] = []
    running: list[tuple[float, int]] = []  # estimated end, job
    ends: list[tuple[float, int]] = []
    while coming < n or ends:
        now = min(submitted[coming] if coming < n else float("inf"), ends[0][0] if ends else 1e300)
        while ends and ends[0][0] == now:
            job = heapq.heappop(ends)[1]
            free += processors[job]
            del running[bisect_left(running, (started[job] + estimate[job], job))]
        while coming < n and submitted[coming] == now:
            waiting.append(coming)
            coming += 1
        starting = []
        while waiting and processors[waiting[0]] <= free:
            starting.append(waiting.pop(0))
            free -= processors[starting[-1]]
            insort(running, (now + estimate[starting[-1]], starting[-1]))
        if len(waiting) > 1 and free:
            room = free
            for end, job in running:
                room, at = room + processors[job], end
                if room >= processors[waiting[0]]:
                    break
            room = free + sum(processors[job] for end, job in running if end <= at)
            spare = room - processors[waiting[0]]
            for job in waiting[1:]:
                size = processors[job]
                if size <= free and (now + estimate[job] <= at or size <= spare):
                    if now + estimate[job] > at:
                        spare -= size
                    free -= size
                    starting.append(job)
                    waiting.remove(job)
                    insort(running, (now + estimate[job], job))
        for job in starting:
            started[job] = now
            heapq.heappush(ends, (now + run[job], job))
    return started
