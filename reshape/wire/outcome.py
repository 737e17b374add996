"""How a resize ended, and where its time was spent."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec


class ResizeTimes(msgspec.Struct, frozen=True, gc=False):
    """Times of one resize, in seconds, and the bytes that went from one process to another.

    The group starts in the background while the job computes, which takes `start_s`. The other four
    phases are the pause of the job.

    Attributes
    ----------
    start_s : start of the joining group, as the service measures it.
    join_s : stop of the iterations, restart point, accept and merge.
    plan_s, move_s : planning and moving the registered data.
    resume_s : commit, and forming the new communicator.
    moved_bytes : bytes that went from one process to another, by messages or shared memory.
    """

    start_s: float = 0.0
    join_s: float = 0.0
    plan_s: float = 0.0
    move_s: float = 0.0
    resume_s: float = 0.0
    moved_bytes: int = 0

    @property
    def pause_s(self) -> float:
        """Pause of the application, seconds."""
        return self.join_s + self.plan_s + self.move_s + self.resume_s


@dataclass
class ResizeOutcome:
    """The end of a resize on one rank.

    Attributes
    ----------
    serial : serial number of the resize; 0 if there was none yet.
    why : reason of the roll back; empty if the resize was committed.
    times : what this rank measured.
    """

    serial: int
    why: str = ""
    times: ResizeTimes = field(default_factory=ResizeTimes)
