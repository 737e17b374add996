"""The messages between the processes of a job and the service, and what all messages share.

The `type` of a message names its class (:mod:`reshape.wire.codec` encodes it). A request has an
`id`, which its answer repeats. The answer to a peer of another version, and to an unknown or
malformed message, is :class:`Failure`.

    from an application       Hello, AtResizePoint, JoinPort, ResizeReport, Facts, ProgramFault
    from a joining group      GroupReady, repeated until the answer is Connect or Abandon

`scheduler.protocol.messages` has the messages of commands and agents, too.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec

from reshape.topology import SizeBounds, Topology
from reshape.wire.access import AccessRole

#: What the service does with a message while its journal cannot be written. A question changes
#: nothing: it is answered, and its answer never waits for the journal. A report of a process that
#: runs is held until the journal can be written. A command is refused.
Kind: TypeAlias = Literal["question", "report", "command"]

#: Who may send a command that every user may give; see `MessageBase.senders`.
EVERY_USER: frozenset[AccessRole] = frozenset({"administrator", "user"})


class MessageBase(msgspec.Struct, tag=True, kw_only=True):
    """Base of all messages; `id` pairs an answer with its request.

    Each class declares how the service treats its messages.

    Attributes
    ----------
    senders : roles that may send it to the service; empty: it is sent by the service or refused.
    kind : see `Kind`.
    supersedes : whether a report makes an earlier one of the same peer superfluous.
    """

    senders: ClassVar[frozenset[AccessRole]] = frozenset()
    kind: ClassVar[Kind] = "command"
    supersedes: ClassVar[bool] = False
    id: int = 0


class JobMessage(MessageBase):
    """A message from a process of a job, which the token of the job proves."""

    senders: ClassVar = frozenset({"job"})
    kind: ClassVar = "report"
    job: int
    token: str


class Question(MessageBase):
    """A message that changes nothing, which every user may send."""

    senders: ClassVar = EVERY_USER
    kind: ClassVar = "question"


class Done(MessageBase):
    """The request is done, or recorded."""


class Failure(MessageBase):
    """The request is refused; one sentence says why, and how to correct it."""

    message: str


# ---------------------------------------------------------------- how a resize ended


#: An amount that a process of a job reports.
_Amount = Annotated[int, msgspec.Meta(ge=0)]
_Seconds = Annotated[float, msgspec.Meta(ge=0)]


class ResizeTimes(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Times of one resize, in seconds, and the bytes that went from one process to another.

    The group starts in the background while the job computes, which takes `start_s`. The other five
    phases are the pause of the job.

    Attributes
    ----------
    start_s : from the decision until the joining group has started, as the service measures it.
    close_s : closing what depends on the size, by functions of the program.
    join_s : stop of the iterations, restart point, accept and merge.
    plan_s, move_s : planning and moving the registered data.
    resume_s : commit, and forming the new communicator.
    moved_bytes : bytes that went from one process to another, by messages or shared memory.
    spare_bytes : memory beside the data that all processes keep for the next resize.
    """

    start_s: _Seconds = 0.0
    close_s: _Seconds = 0.0
    join_s: _Seconds = 0.0
    plan_s: _Seconds = 0.0
    move_s: _Seconds = 0.0
    resume_s: _Seconds = 0.0
    moved_bytes: _Amount = 0
    spare_bytes: _Amount = 0

    @property
    def pause_s(self) -> float:
        """Pause of the application, seconds."""
        return self.close_s + self.join_s + self.plan_s + self.move_s + self.resume_s


class ResizeOutcome(msgspec.Struct):
    """The end of a resize on one rank.

    Attributes
    ----------
    serial : serial number of the resize; 0 if there was none yet.
    why : reason of the roll back; empty if the resize was committed.
    times : what this rank measured.
    """

    serial: int
    why: str = ""
    times: ResizeTimes = ResizeTimes()


# ---------------------------------------------------------------- application -> service


class Hello(JobMessage):
    """The first group of a job, or a restarted one, has started on `size` processes."""

    group: int
    size: int
    pid: int
    topology: Topology | None = None


class ResizeReport(JobMessage):
    """The application has committed a resize (`ok`), or rolled it back for the reason `why`."""

    serial: int
    ok: bool
    why: str = ""
    times: ResizeTimes = ResizeTimes()


class AtResizePoint(JobMessage):
    """The job is at a resize point; answered by Proceed, Join or Leave.

    Attributes
    ----------
    epoch : serial number of the last committed resize (0: none). It shows the service whether a
        resize was committed, even if the report was lost.
    registered_bytes : data that a resize has to move, over all processes; it determines how long a
        resize may take.
    iteration : number of finished iterations.
    iteration_s : mean time of the iterations since the last request (:mod:`reshape.wire.identity`).
    iterations : number of all iterations of the job; 0 if not known.
    requests : bounds that the program requests on its size, until an answer has come.
    """

    supersedes: ClassVar = True
    epoch: int
    size: int
    registered_bytes: _Amount
    iteration: _Amount
    iteration_s: _Seconds
    topology: Topology | None = None
    iterations: int = 0
    requests: SizeBounds | None = None


class JoinPort(JobMessage):
    """The job has opened an MPI port, on which it is about to accept a group.

    Attributes
    ----------
    serial : number of the resize; 0 while groups assemble.
    group : group that is accepted by the groups with which it assembles; 0 in a resize.
    """

    serial: int
    port: str
    group: int = 0


#: Facts of a job, at most.
MOST_FACTS = 200


class Facts(JobMessage):
    """Facts of the program's result, such as `verified` or `residual`."""

    facts: dict[str, bool | int | float | str]


class ProgramFault(JobMessage):
    """The program of a group ends with an error, which `why` describes in one line."""

    group: int
    why: str


class GroupReady(JobMessage):
    """A group waits for a port: of the job that it joins, or of groups with which it assembles.

    `size` is the number of its processes. For several groups that join together, which are one
    communicator then, the first of them sends it, with the number of all their processes.
    """

    supersedes: ClassVar = True
    group: int
    size: int
    pid: int


# ---------------------------------------------------------------- service -> application


class Welcome(MessageBase):
    """Answer to Hello; `topology` is that of the submission, None if it has none."""

    topology: Topology | None = None
    verify: bool = False


class Proceed(MessageBase):
    """Continue with the next iteration.

    `answers` says whether this answers the bounds that the program requested on its size;
    `declined` is why they are declined, empty if they apply. `expands_to` is the number of
    processes that the job has when an expansion that is under way is done; 0: there is none.
    """

    answers: bool = False
    declined: str = ""
    expands_to: int = 0


class Join(MessageBase):
    """Expand by this group now: open a port, send JoinPort, accept, merge, move the data.

    If several groups join together, `group` is the first of them, and `size` the number of all
    their processes.
    """

    serial: int
    group: int
    size: int


class Leave(MessageBase):
    """Contract by these groups now: move their data to the others, commit; end the groups."""

    serial: int
    groups: list[int]


class Connect(MessageBase):
    """A joining group must connect to this port."""

    port: str


class Abandon(MessageBase):
    """A joining group is not needed any more and must end."""

    why: str


ApplicationMessage: TypeAlias = (
    Hello
    | AtResizePoint
    | JoinPort
    | ResizeReport
    | Facts
    | ProgramFault
    | GroupReady
    | Welcome
    | Proceed
    | Join
    | Leave
    | Connect
    | Abandon
    | Done
    | Failure
)
