"""The checkpoints of one run of a program: when one is due, and what it restarts from.

Each rank writes its local parts, and rank 0 the manifest.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import time
from functools import partial
from operator import index
from pathlib import Path

import numpy as np

from reshape.checkpoints.directory import RESTART_VARIABLE, CheckpointDirectory, Owner
from reshape.checkpoints.manifest import (
    Manifest,
    SavedCheckpoint,
    data_file,
    open_newest,
    pieces_of,
    write_pieces,
)
from reshape.data.job_context import JobContext, pickled_state
from reshape.errors import ReshapeError
from reshape.files.private_folder import open_folder
from reshape.ranks.agree import RolledBackError, agreed, found_by
from reshape.resizing.move import pack_all
from reshape.resizing.restart_point import state_of
from reshape.times import parse_duration
from reshape.wire.identity import Identity

log = logging.getLogger(__name__)


def parse_every(every: int | str) -> tuple[int, float]:
    """Read a number of iterations, or a time such as "10min" or "2:00:00".

    Returns
    -------
    iterations, and seconds; one of them is 0.

    Raises
    ------
    ReshapeError : it is neither, or not above 0.
    """
    try:
        if isinstance(every, str):
            # "10" would be minutes as a time, and 10 is a number of iterations
            seconds = 0.0 if every.strip().isdecimal() else parse_duration(every)
            if seconds > 0:
                return 0, seconds
        elif not isinstance(every, bool) and index(every) >= 1:
            return index(every), 0.0
    except (TypeError, ValueError):
        pass
    raise ReshapeError(
        f"app.checkpoint(every={every!r}): expected a number of iterations >= 1, or a time "
        "such as '30s', '10min', '2h', '1d' or '1-12:00:00'"
    )


class Checkpointing:
    """Collective over job.comm. Writes checkpoints at the ends of iterations.

    Parameters
    ----------
    who : identity of the process in its job; None: no service has started it.
    every, keep, directory : as of `Application.checkpoint`.

    Attributes
    ----------
    directory : used by rank 0.

    Raises
    ------
    ReshapeError : a value is out of range.
    """

    def __init__(
        self,
        job: JobContext,
        who: Identity | None,
        every: int | str,
        keep: int,
        directory: str | os.PathLike[str] | None,
    ) -> None:
        self._iterations, self._seconds = parse_every(every)
        self._keep = index(keep)
        if self._keep < 1:
            raise ReshapeError(f"app.checkpoint(keep={keep}): expected at least 1")
        if directory is not None and not os.fspath(directory):
            raise ReshapeError("app.checkpoint(dir=''): name a directory, or leave dir out")
        owner = owner_of(job, who)
        name = "checkpoints" if who is None else f"reshape-{who.job}-{owner.key[:6]}.checkpoints"
        path = Path(name if directory is None else directory).absolute()
        self.directory = CheckpointDirectory(path, owner)

    def find_restart(self, job: JobContext) -> SavedCheckpoint | None:
        """Collective over job.comm. Claim the directory, and open what the run restarts from.

        That is the newest checkpoint of its own which is not damaged, or else the one that
        RESHAPE_RESTART_FROM names; None if there is neither.

        Raises
        ------
        ReshapeError : on every rank: the directory belongs to another run, or there is no
            checkpoint to restart from.
        """
        named = os.environ.get(RESTART_VARIABLE, "")
        source = Path(named).absolute() if named else None
        folders = found_by(job.comm, partial(self.directory.claim, source))
        return open_newest(job.comm, folders) if folders else None

    def end_of_iteration(self, job: JobContext) -> dict[str, int | float | str]:
        """Collective over job.comm. Write a checkpoint if one is due; the job survives a failure.

        Returns
        -------
        facts about the new checkpoint; empty if none was written.
        """
        if not self._is_due(job):
            return {}
        began, facts = time.perf_counter(), dict[str, int | float | str]()
        try:
            folder = self._write(job)
            facts["checkpoint"], facts["checkpoint_iteration"] = str(folder), job.done
            facts["checkpoint_s"] = round(time.perf_counter() - began, 3)
        except RolledBackError as error:
            if job.comm.rank == 0:
                log.warning(
                    "no checkpoint of iteration %d was written, the job continues: %s; the earlier "
                    "checkpoints remain valid",
                    job.done,
                    error,
                )
        job.checkpointed_at = time.monotonic()
        return facts

    def _write(self, job: JobContext) -> Path:
        """Collective over job.comm. Write all registered data, then remove old checkpoints.

        Returns
        -------
        folder of the checkpoint.

        Raises
        ------
        RolledBackError : on every rank, if it cannot be written. Nothing remains of it, and the
            earlier checkpoints are as they were.
        """
        try:
            pack_all(job, job.comm.size)
            folder, state = Path(), b""
            with agreed(job.comm, "", *_ERRORS):
                if job.comm.rank == 0:
                    state = pickled_state(job.state)
                    folder = self.directory.begin(job.done)
            folder = Path(job.comm.bcast(folder, root=0))
            try:
                _write_files(job, folder, state)
            except RolledBackError:
                if job.comm.rank == 0:
                    self.directory.remove(folder)
                raise
        finally:
            for ragged in job.ragged.values():
                ragged.roll_back()
            job.spares.settle(job.live_segments)
        if job.comm.rank == 0:
            self.directory.prune(folder, self._keep)
        return folder

    def _is_due(self, job: JobContext) -> bool:
        if self._iterations:
            return job.done % self._iterations == 0
        since_s = time.monotonic() - job.checkpointed_at
        return bool(job.comm.bcast(since_s >= self._seconds, root=0))


def owner_of(job: JobContext, who: Identity | None) -> Owner:
    """Collective over job.comm. Return the present run: a job, or this start of the program."""
    if who is not None:
        digest = hashlib.sha256(f"checkpoints of {who.token}".encode())
        return Owner(digest.hexdigest()[:16], f"job {who.job} of {who.server}")
    key = job.comm.bcast(os.urandom(8).hex(), root=0)
    return Owner(key, f"process {os.getpid()} on {platform.node()}")


_ERRORS = (OSError, ReshapeError)


def _write_files(job: JobContext, folder: Path, state: bytes) -> None:
    """Collective over job.comm. Write data and manifest, or raise an error on every rank."""
    declarations = tuple(array.declaration for array in job.arrays.values())
    cuts = {name: ragged.cuts for name, ragged in job.ragged.items()}
    pieces, _ = pieces_of(job.comm.rank, declarations, job.comm.size, cuts)
    own, file = dict[str, list[int]](), folder / data_file(job.comm.rank)
    with agreed(job.comm, f"rank {job.comm.rank} cannot write {file}", *_ERRORS):
        # The local parts as bytes in their memory order, without copies.
        data = {n: a.local.ravel(order="K").view(np.uint8) for n, a in job.arrays.items()}
        own = write_pieces(folder, job.comm.rank, pieces, data)
    gathered = job.comm.gather(own, root=0)
    with agreed(job.comm, f"cannot write the manifest in {folder}", *_ERRORS):
        if gathered is not None:
            sums = {d.name: [sums.get(d.name, []) for sums in gathered] for d in declarations}
            saved = state_of(job, state)
            manifest = Manifest(written_at=time.time(), arrays=declarations, sums=sums, **saved)
            with open_folder(folder) as directory:
                manifest.write(directory)
