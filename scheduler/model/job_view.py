"""What policies see of a job: protocols whose members cannot be assigned and change nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from reshape.topology import Topology
from scheduler.model.events import JobSpec
from scheduler.model.history import Moves
from scheduler.model.job import JobState
from scheduler.model.orders import Resize
from scheduler.model.procset import ProcSet


class HistoryView(Protocol):
    """Performance history of one job, for reading; see `scheduler.model.history.History`."""

    @property
    def visits(self) -> Sequence[int]:
        """The latest configurations in the order visited, 32 at most."""

    @property
    def start(self) -> int:
        """Size of the starting configuration."""

    @property
    def visited(self) -> Mapping[int, int]:
        """Size that it ran on -> place of the latest visit among all visits."""

    @property
    def points(self) -> int:
        """Resize points seen so far."""

    @property
    def settled(self) -> int:
        """Iterations measured since the job came to its present configuration."""

    @property
    def next_point_at(self) -> float:
        """Expected time of the next resize point, s."""

    @property
    def sweet_spot(self) -> int | None:
        """Size beyond which an expansion brought nothing, once found."""

    @property
    def failures(self) -> Mapping[int, int]:
        """Size -> `points` when a resize to it last failed."""

    @property
    def data_bytes(self) -> int:
        """Data of the job that a resize moves, over all its processes; 0 if not known."""

    def time_s(self, size: int) -> float | None:
        """Typical iteration time on a size it ran on, s."""

    def expanded_from(self) -> int | None:
        """Size from which the job last expanded to its present one."""

    def contractions(self) -> Sequence[int]:
        """Sizes below the present one on which the job already ran, the largest first."""

    def comparable_s(self, one: int, other: int) -> tuple[float, float]:
        """Iteration times on two measured sizes, s, for the comparison of the sizes."""

    def benefited(self, min_benefit: float = 0.0) -> bool | None:
        """Whether the expansion to the present size shortened the iterations."""

    def expand_potential(self, window: int) -> float | None:
        """Speedup that a further processor is expected to bring."""

    def predict_s(self, size: int) -> float | None:
        """Expected iteration time on a size, s."""

    def predict_pause_s(self, everybody: Moves) -> float | None:
        """Expected pause of a resize, s."""


class JobView(Protocol):
    """A job, for reading; see `scheduler.model.job.Job`."""

    @property
    def id(self) -> int:
        """Job number."""

    @property
    def spec(self) -> JobSpec:
        """What the user requests."""

    @property
    def state(self) -> JobState:
        """Job state."""

    @property
    def processors(self) -> int:
        """Processors of the starting configuration."""

    @property
    def walltime_s(self) -> float:
        """Run time limit, s."""

    @property
    def size(self) -> int:
        """Processors of the present configuration."""

    @property
    def smaller(self) -> Sequence[int]:
        """Sizes that the job may contract to, the largest first."""

    @property
    def groups(self) -> Mapping[int, ProcSet]:
        """Group number -> processors, oldest first."""

    @property
    def topology(self) -> Topology | None:
        """Rule for the valid sizes, if it is known."""

    @property
    def resize(self) -> Resize | None:
        """The resize under way, if there is one."""

    @property
    def resizes(self) -> int:
        """Number of resizes begun so far."""

    @property
    def restarts(self) -> int:
        """Number of restarts so far."""

    @property
    def submitted_at(self) -> float:
        """Time of submission, s."""

    @property
    def started_at(self) -> float | None:
        """Time of the start, s."""

    @property
    def estimate_s(self) -> float:
        """Expected run time, s."""

    @property
    def expected_end(self) -> float:
        """Time (s) by which a started job ends if its walltime is right."""

    @property
    def estimated_end(self) -> float:
        """Time (s) by which a started job ends if its estimate is right."""

    @property
    def ends_by_progress(self) -> float:
        """Time (s) by which the iterations that are left pass at its speed; inf: unknown."""

    @property
    def history(self) -> HistoryView:
        """Performance history."""
