"""The application object, which makes a program resizable."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from math import inf, isnan
from operator import index
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from mpi4py import MPI

from reshape.data.each_size import ClosingError, EachSize
from reshape.data.equal_ranks import check_ranks
from reshape.data.job_context import Fact, JobContext, SizeRequest, plain_facts
from reshape.data.spares import Spares
from reshape.errors import ReshapeError
from reshape.files.job_folder import AT, PLACE, Slot
from reshape.ranks.abort import (
    abort,
    add_notes,
    explain_later_errors,
    show_crashes,
    tell,
    write_whole_lines,
)
from reshape.ranks.derived import retire_derived, text_of_many, watch
from reshape.ranks.leak_report import omit_descriptions
from reshape.ranks.world import WORLD, allow_finalize, check_initialized, refuse_finalize, retire
from reshape.registrations import Registrations
from reshape.resizing.joining import Address
from reshape.resizing.resize_points import assemble, await_join, greet, join_job, resize_point
from reshape.resizing.transaction import begin_anew, disconnect
from reshape.topology import Topology
from reshape.wire.identity import TRIAL_VARIABLE, Pace, identity
from reshape.wire.link import Link

if TYPE_CHECKING:
    from reshape.checkpoints.checkpointing import Checkpointing

_OVER = "{} {!r}: the block 'with reshape.application()' is over; copy what is needed later"
_Value = TypeVar("_Value")
#: Largest number of processes that may be requested.
_MOST_PROCESSES = 2**31 - 1
#: Share of the work below which the number of iterations is not known yet.
_LEAST_SHARE = 1e-9
log = logging.getLogger(__name__)


def application(
    topology: str | Topology | None = None,
    verify: bool | None = None,
    spare_bytes: int | None = None,
) -> Application:
    """Make this program resizable; use it as ``with reshape.application() as app:``.

    Under the scheduler the program starts a job, or joins the job it was started for. Without the
    scheduler it is an MPI program of fixed size on COMM_WORLD.

    Parameters
    ----------
    topology : valid sizes, such as "nearly-square" (see `reshape.topology`); that of the
        submission if None.
    verify : compare checksums of all registered arrays before and after each move; the setting of
        the service if None.
    spare_bytes : memory that a process may keep for the next resize beside its data; 0: none, and
        resizes of large arrays take about twice as long. None: what its largest resize has
        needed, in which old and new data exist at the same time.

    Raises
    ------
    ValueError : the topology is none of the accepted forms, or `spare_bytes` is negative.

    Notes
    -----
    The data that a program registers follows the job through resizes: arrays, sparse matrices,
    particles, work items and streams of random numbers (`Application.rows` and the like), and the
    values in `Application.state`; docs/data.md says what to use. **All other data belongs to one
    process**: a variable computed before a resize does not exist in the processes that join. Derive
    such values from `app.comm` in each iteration, or keep them in `app.state`. Communicators
    derived from `app.comm` are made in a function of `Application.each_size`, or freed before the
    iteration ends. After a resize, operations on MPI.COMM_WORLD raise an error. Every
    process must make the same registrations in the same order before it calls `app.iterations()`.
    """
    if isinstance(topology, str):
        topology = Topology.parse(topology)
    if spare_bytes is not None and spare_bytes < 0:
        raise ValueError(f"spare_bytes must be >= 0, got {spare_bytes}")
    return Application(topology, verify, spare_bytes)


class Application(Registrations):
    """The interface of a program to its job; `application` creates it."""

    _submitted: ClassVar[bool] = False  # whether this process has begun or joined a job

    def __init__(
        self, topology: Topology | None, verify: bool | None, spare_bytes: int | None = None
    ) -> None:
        super().__init__()
        self._fresh_start_was_read = False
        self._iterates = False  # whether one of them has not ended
        self._link: Link | None = None
        self._address: Address | None = None  # where a group joins that has not joined yet
        self._topology = topology
        self._verify = verify
        self._spare_bytes = spare_bytes
        self._checkpointing: Checkpointing | None = None

    # ------------------------------------------------------------ the block

    def __enter__(self) -> Application:
        """Collective over COMM_WORLD. Start the job, or prepare to join it.

        In a process that joins, and in a job that starts with several groups, MPI.COMM_WORLD is
        not the communicator of the job: all operations on it but `Abort` raise an error from here.

        Raises
        ------
        ReshapeError : the service refuses the job, the program contradicts its submission, or
            there is no restart point to restart from.
        """
        try:
            self._set_up()
        except BaseException as error:
            self._fail(error)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Collective over app.comm. End the job; after an error, abort all its processes."""
        check_initialized()
        if error is None and self._address is not None:
            error = ReshapeError(
                f"the job is in loop {self._address.loop + 1} of app.iterations(), but the program "
                f"of the group that joins ends after {self._loops}: all processes must have the "
                "same loops"
            )
            self._fail(error)
            raise error
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            self._close_each_size()
            if error is None and self._checkpointing is not None and self._here().comm.rank == 0:
                self._checkpointing.directory.release()
            self._close()
            explain_later_errors(self._link)
        else:
            self._fail(error)

    def _set_up(self) -> None:
        watch()
        omit_descriptions()
        show_crashes()
        write_whole_lines()
        refuse_finalize()
        who = identity()
        world = WORLD.Dup()
        group, folder = (0, None) if who is None else (who.group, who.folder)
        job = JobContext(world, group, folder, (group,) * world.size, topology=self._topology)
        trial = "" if who is None else os.environ.get(TRIAL_VARIABLE)
        if trial:
            from reshape.data.trial import Trial  # other runs do not need it

            job.trial = Trial(Path(trial))
        job.spares = Spares(folder, self._spare_bytes if job.trial is None else 0)
        self._job = job
        job.verify = bool(self._verify)
        if who is None:
            return
        if Application._submitted:
            raise ReshapeError(
                "a submitted program may have one block 'with reshape.application()', not two"
            )
        Application._submitted = True
        job.slot = Slot.claim(who.folder, who.group)
        self._link, self._role, job.pace = Link(who), who.role, Pace.of()
        self._is_fresh_start = self._role == "first"
        if self._role == "join" or len(who.groups) > 1:
            retire()
            retire_derived(WORLD.size)
        if len(who.assembling) > 1:
            assemble(job, who.assembling, self._link)
        if self._role == "first":
            begin_anew(job)
        if self._role == "restart":
            self._restart(who.folder)
        if self._role != "join":
            greet(job, self._link, self._topology, self._verify)

    def _close_each_size(self) -> None:
        """Collective over app.comm. Close what depends on the size, at the end of the block."""
        job = self._here()
        if not job.each_size:
            return
        try:
            job.close_each_size()
        except ClosingError as failed:
            error = failed.__cause__ or failed
            self._fail(error)
            raise error from None

    def _close(self) -> None:
        """Leave the job and release the resources of this process."""
        allow_finalize()
        job = self._here()
        if self._link is not None:
            self._link.close()
        for array in job.arrays.values():
            array.vacate(_OVER.format("array", array.name))
        for ragged in job.ragged.values():
            ragged.vacate(_OVER.format(ragged.declaration.kind, ragged.name))
        job.spares.close()
        if job.trial is not None and (text := text_of_many()):
            job.trial.note(text)
        if job.comm != MPI.COMM_NULL:
            job.comm.Free()
        disconnect(job)

    def _fail(self, error: BaseException) -> None:
        """Abort the other processes of this world, which may wait for this one."""
        arrays = () if self._job is None else self._job.arrays.values()
        add_notes(error, [(array.name, part) for array in arrays for part in array.earlier_parts()])
        if self._checkpointing is not None and identity() is None:  # no service restarts it
            self._checkpointing.directory.release()
        comm = WORLD if self._job is None else self._job.comm
        if comm != MPI.COMM_NULL and comm.size > 1:
            abort(error, self._link)
        tell(self._link, error)
        if self._job is not None:
            self._close()

    # ------------------------------------------------------------ data of the program

    @property
    def is_fresh_start(self) -> bool:
        """Whether the program has to fill its data; False if its processes join or restart."""
        self._fresh_start_was_read = True
        return self._is_fresh_start

    @property
    def state(self) -> dict[str, Any]:
        """Small picklable values by name, which the program keeps equal on all ranks.

        Processes that join receive the values of rank 0, which are also in the restart point.
        """
        return self._here().state

    @property
    def topology(self) -> Topology | None:
        """Valid sizes as the program or the submission declares them; None if neither does."""
        return self._here().topology

    # ------------------------------------------------------------ reports and requests

    def report(self, **facts: Fact) -> None:
        """Report facts of the result, such as ``verified=True``, which `reshape info` shows.

        Only rank 0 reports. Without a service this does nothing.

        Raises
        ------
        ReshapeError : a value is not a bool, number or string, or a number is not finite or does
            not fit into 64 bits.
        """
        checked = plain_facts(facts)
        if self._link is not None and self.comm.rank == 0:
            self._link.facts(checked)

    def progress(self, done: float, total: float) -> None:
        """Report how much of the work is done, which `reshape queue` shows and forecasts use.

        It takes the place of the number of iterations, for programs that end when they have
        converged, or whose iterations take different times. Call it in an iteration, as often as
        is convenient: what was reported last goes with the next request of a resize point, every
        50 ms at most. The value of rank 0 counts.

        Parameters
        ----------
        done, total : work done when this iteration ends, and all work, in any unit. A residual may
            grow, or fall below its tolerance: less than nothing counts as nothing, and more than
            all as all.

        Raises
        ------
        ReshapeError : `total` is not above 0 and finite, or `done` is not a number.
        """
        if isnan(done) or not 0 < total < inf:
            raise ReshapeError(
                f"app.progress({done!r}, {total!r}): expected numbers, and a finite total > 0"
            )
        job = self._here()
        share = min(done / total, 1.0)
        if share > _LEAST_SHARE:
            job.expected = max(job.done + 1, round((job.done + 1) / share))

    def request(self, minimum: int | None = None, maximum: int | None = None) -> SizeRequest:
        """Request bounds on the number of processes from now on, in place of any earlier ones.

        The service answers at a resize point. If it accepts, the job gets a size between the bounds
        at that resize point or, if there are too few processors, at a later one; it is then
        resized within the bounds only. They cannot exceed what the submission allows. All ranks
        call this in the same iteration, with the same values.

        Parameters
        ----------
        minimum, maximum : numbers of processes; None: no bound but that of the submission.

        Returns
        -------
        the request, whose `state` becomes "accepted" or "declined", for the reason in `why`.
        Without a service it is declined.

        Raises
        ------
        ReshapeError : a bound is no whole number from 1 on that a job can have, or the minimum is
            above the maximum.
        """
        job = self._here()
        try:
            # NumPy numbers become those that a message can hold.
            minimum, maximum = (None if b is None else index(b) for b in (minimum, maximum))
            bounds = [bound for bound in (minimum, maximum) if bound is not None]
        except TypeError:
            bounds = [0]
        if any(not 1 <= bound <= _MOST_PROCESSES for bound in bounds) or bounds != sorted(bounds):
            raise ReshapeError(
                f"app.request(minimum={minimum!r}, maximum={maximum!r}): expected whole numbers >= "
                f"1 and <= {_MOST_PROCESSES}, the minimum not above the maximum"
            )
        job.request = SizeRequest(minimum, maximum)
        if self._link is None:
            job.request.answer("the program runs without a service, on a fixed number of processes")
        return job.request

    # ------------------------------------------------------------ checkpoints and iterations

    def checkpoint(
        self, *, every: int | str, keep: int = 2, dir: str | os.PathLike[str] | None = None
    ) -> None:
        """Collective over app.comm. Write checkpoints, and restart from them after a failure.

        A checkpoint holds all registered data and `app.state` at the end of an iteration. It is
        complete or does not exist, and it can be read on any number of processes. A checkpoint that
        cannot be written is reported in a warning; the program continues, and the earlier
        checkpoints remain valid. docs/checkpoints.md describes the files and restarts.

        Parameters
        ----------
        every : number of iterations, or a time such as "30s", "10min", "2h" or "1d".
        keep : number of checkpoints that remain. While one is written there is one more.
        dir : directory of the checkpoints, used by this program only. By default one in the working
            directory: "checkpoints", for a job "reshape-JOB-KEY.checkpoints".

        Raises
        ------
        ReshapeError : a value is out of range; something is registered or `is_fresh_start` was read
            before; the directory belongs to another run or cannot be used; or all checkpoints to
            restart from are damaged.
        """
        from reshape.checkpoints.checkpointing import Checkpointing  # few programs need it

        job = self._here()
        if self._checkpointing is not None:
            raise ReshapeError("app.checkpoint() is called twice: call it once")
        if job.signature or self._fresh_start_was_read or self._loops:
            raise ReshapeError(
                "app.checkpoint() is called too late: it decides whether the program restarts; "
                "call it first in the block, before arrays are registered or is_fresh_start is read"
            )
        self._checkpointing = Checkpointing(job, identity(), every, keep, dir)
        if self._role != "first":
            return  # the data comes from the running job, or from its restart point
        saved = self._checkpointing.find_restart(job)
        if saved is not None:
            self._continue_from(saved)
            self.report(restarted_from=str(saved.folder))

    def each_size(self, function: Callable[[MPI.Intracomm], Iterator[_Value]]) -> EachSize[_Value]:
        """Make what depends on the size of the job in one place; use it as a decorator.

        It is for what belongs to the processes of one size: communicators derived from `app.comm`,
        files opened by several ranks, windows, persistent requests, solvers and plans of libraries.
        The function is a generator with one ``yield``. The part above it opens: at the first entry
        into a loop, also after a restart, and after each resize, before the next iteration,
        together with the processes that have joined. The part below it closes: before each resize,
        in all processes of the old size, those that leave included, and at the end of the block.
        Both parts may be collective over the communicator. Several functions are opened in the
        order in which they were given, and closed in reverse. Communicators derived within the
        function are freed behind its last line.

        After a resize that was rolled back, what was closed is opened again at the old size. After
        an error nothing is closed, ``finally`` clauses included, because other processes may not
        take part. An error while a function closes aborts the job.

        Parameters
        ----------
        function : generator function of `app.comm`.

        Returns
        -------
        function without parameters that returns the value of ``yield`` at the present size.

        Raises
        ------
        ReshapeError : `function` has no ``yield``, or a loop has begun and not ended.

        Examples
        --------
        ::

            @app.each_size
            def files(comm):
                cart = comm.Create_cart([comm.size], [True])
                out = MPI.File.Open(comm, "x.bin", MPI.MODE_CREATE | MPI.MODE_WRONLY)
                yield cart, out
                out.Close()  # all ranks of the old size together, before anyone leaves

            for step in app.iterations(100):
                cart, out = files()
        """
        job, each = self._here(), EachSize(function)
        if self._iterates:
            raise ReshapeError(
                f"{each.name} is given to app.each_size within a loop of app.iterations(), where "
                "processes that join would not find it: define it above the loop"
            )
        job.each_size.append(each)
        return each

    def iterations(self, total: int | None) -> Iterator[int]:
        """Collective over app.comm. Iterate, with a resize point between any two iterations.

        Joining processes continue here with the current iteration of the job. Leaving processes end
        here by SystemExit(0), so that ``finally`` clauses run. A program may leave the loop early,
        on all ranks in the same iteration, and may have several loops, one after another. Processes
        that join, and those of a job that restarts, pass the earlier loops without an iteration.
        They run the code between them; what must run once is a loop of one iteration.

        Parameters
        ----------
        total : number of iterations, equal in all processes of the job. None: not known; the loop
            ends when the program leaves it, and `progress` may say how far it is.

        Returns
        -------
        iterator over the numbers of the iterations, from 0 at a fresh start.

        Raises
        ------
        ReshapeError : the program calls this within such a loop, or `total` is negative; the ranks
            have registered other data, or have another total in the first loop; or this process
            has left the job.
        """
        job = self._here()
        _ = self.comm  # raises the error of a process that has left
        if self._iterates:
            raise ReshapeError(
                "app.iterations() is called within a loop of app.iterations(): processes that join "
                "could not find their place; use one loop after another, and keep no iterator of a "
                "loop that was left early"
            )
        total = None if total is None else index(total)
        if total is not None and total < 0:
            raise ReshapeError(f"app.iterations({total}): the number of iterations must be >= 0")
        loop, self._loops = self._loops, self._loops + 1
        if loop == 0:
            self._begin_iterations(job, total)
        if loop < job.loop or (self._address is not None and loop < self._address.loop):
            return iter(())  # the job has passed this loop
        is_next = loop > job.loop and self._address is None
        if is_next:
            job.iteration = 0
        job.loop, job.total = loop, total
        if self._address is not None:
            address, self._address = self._address, None
            join_job(job, address)
            if self._link is not None:
                self._link.close()
        return self._steps(job, loop, is_next)

    def _begin_iterations(self, job: JobContext, total: int | None) -> None:
        """Collective over job.comm. End the registrations; let a group that joins wait for it."""
        check_ranks(job, total)
        source = os.environ.get("RESHAPE_RESTART_FROM")
        if source and self._checkpointing is None:
            raise ReshapeError(
                f"the program is to restart from {source}, but does not call app.checkpoint(): "
                "call it first in the block, or start without a restart"
            )
        self._close_registrations()
        job.checkpointed_at = time.monotonic()
        if self._role == "join" and self._link is not None:
            self._address = await_join(job, self._link)

    def _steps(self, job: JobContext, loop: int, is_next: bool) -> Iterator[int]:
        """Iterate; between two loops there is a resize point at the begin of the next one."""
        if loop != job.loop:
            raise ReshapeError(
                f"loop {loop + 1} of app.iterations() begins after loop {job.loop + 1} was made"
            )
        self._iterates = True
        job.slot.enter(loop, job.iteration, job.comm.rank)
        try:
            if is_next and job.goes_on and self._link is not None:
                resize_point(job, self._link)
            job.open_each_size()
            yield from self._iterate(job)
        finally:
            self._iterates = False
            job.slot.leave()

    def _iterate(self, job: JobContext) -> Iterator[int]:
        words = job.slot.words
        while job.goes_on:
            began = time.monotonic()
            words[PLACE] = job.iteration
            yield job.iteration
            job.iteration, job.done = job.iteration + 1, job.done + 1
            ended = time.monotonic()
            words[PLACE], words[AT] = job.iteration - 0.5, ended
            job.pace.passed(ended - began)
            if self._checkpointing is not None:
                facts = self._checkpointing.end_of_iteration(job)
                if facts:
                    self.report(**facts)
            if job.goes_on and self._link is not None:
                resize_point(job, self._link)
