"""The peers that wait for the ends of jobs."""

from __future__ import annotations

from itertools import islice

from reshape.errors import ReshapeError

#: Jobs that one peer may wait for at a time.
PEER_LIMIT = 1000


class Waits:
    """Which peers wait for which jobs.

    A peer that repeats its question replaces it. An entry ends with the answer, or when the peer is
    found to be gone.

    Parameters
    ----------
    limit : most jobs that one peer may wait for at a time.
    """

    def __init__(self, limit: int = PEER_LIMIT) -> None:
        self._limit = limit
        self._requests: dict[int, dict[bytes, int]] = {}  # job -> peer -> its latest request
        self._jobs: dict[bytes, set[int]] = {}  # peer -> jobs; the next to probe comes first

    def __len__(self) -> int:
        """Return the number of entries."""
        return sum(map(len, self._requests.values()))

    def add(self, job: int, peer: bytes, request: int) -> None:
        """Note that a peer waits for a job.

        Raises
        ------
        ReshapeError : the peer waits for as many jobs as one may.
        """
        jobs = self._jobs.get(peer, set())
        if job not in jobs and len(jobs) >= self._limit:
            raise ReshapeError(
                f"this connection waits for {self._limit} jobs already, which is the limit: wait"
                " for the others after these have ended"
            )
        self._jobs.setdefault(peer, jobs).add(job)
        self._requests.setdefault(job, {})[peer] = request

    def jobs_among(self, numbers: set[int]) -> set[int]:
        """Return those of the given jobs that a peer waits for."""
        return self._requests.keys() & numbers

    def pop(self, job: int) -> list[tuple[bytes, int]]:
        """Remove a job; return (peer, request) of all who waited for it."""
        waiting = list(self._requests.pop(job, {}).items())
        for peer, _ in waiting:
            self._jobs[peer].discard(job)
            if not self._jobs[peer]:
                del self._jobs[peer]
        return waiting

    def drop(self, peer: bytes) -> None:
        """Remove a peer that is gone."""
        for job in self._jobs.pop(peer, ()):
            waiting = self._requests[job]
            del waiting[peer]
            if not waiting:
                del self._requests[job]

    def next_to_probe(self, count: int) -> list[bytes]:
        """Return at most `count` waiting peers, all of them in turn over repeated calls."""
        peers = list(islice(self._jobs, count))
        for peer in peers:
            self._jobs[peer] = self._jobs.pop(peer)
        return peers
