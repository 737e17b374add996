"""Writing a checkpoint: each rank writes its local parts, rank 0 the manifest."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reshape.checkpoints.directory import CheckpointDirectory
from reshape.checkpoints.manifest import FORMAT, Manifest
from reshape.checkpoints.pieces import data_file, pieces_of, write_pieces
from reshape.data.job_context import JobContext, pickled_state
from reshape.errors import ReshapeError
from reshape.files.private_folder import open_folder
from reshape.resizing.agree import RolledBackError, agree
from reshape.resizing.ragged_moves import pack_all

_ERRORS = (OSError, ReshapeError)


def write_checkpoint(job: JobContext, directory: CheckpointDirectory, keep: int) -> Path:
    """Collective over job.comm. Write all registered data, then remove old checkpoints.

    Parameters
    ----------
    directory : used by rank 0.
    keep : number of checkpoints that remain.

    Returns
    -------
    folder of the checkpoint.

    Raises
    ------
    RolledBackError : on every rank, if it cannot be written. Nothing remains of it, and the
        earlier checkpoints are as they were.
    """
    try:
        if job.ragged:
            agree(job.comm, pack_all(job))
        folder, state, why = Path(), b"", ""
        if job.comm.rank == 0:
            try:
                state = pickled_state(job.state)
                folder = directory.begin(job.iteration)
            except _ERRORS as error:
                why = str(error)
        agree(job.comm, why)
        folder = Path(job.comm.bcast(str(folder), root=0))
        try:
            _write_files(job, folder, state)
        except RolledBackError:
            if job.comm.rank == 0:
                directory.remove(folder)
            raise
    finally:
        for ragged in job.ragged.values():
            ragged.roll_back()
    if job.comm.rank == 0:
        directory.prune(folder, keep)
    return folder


def _write_files(job: JobContext, folder: Path, state: bytes) -> None:
    """Collective over job.comm. Write data and manifest.

    Raises
    ------
    RolledBackError : on every rank.
    """
    declarations = tuple(array.declaration for array in job.arrays.values())
    cuts = {name: ragged.cuts for name, ragged in job.ragged.items()}
    pieces, _ = pieces_of(job.comm.rank, declarations, job.comm.size, cuts)
    own, why = dict[str, list[int]](), ""
    try:
        own = write_pieces(folder, job.comm.rank, pieces, _bytes_of_arrays(job))
    except _ERRORS as error:
        why = f"rank {job.comm.rank} cannot write {folder / data_file(job.comm.rank)}: {error}"
    agree(job.comm, why)
    gathered = job.comm.gather(own, root=0)
    if gathered is not None:
        sums = {d.name: [each[d.name] for each in gathered if d.name in each] for d in declarations}
        try:
            manifest = Manifest(
                format=FORMAT,
                written_at=time.time(),
                iteration=job.iteration,
                size=job.comm.size,
                signature=job.signature,
                arrays=declarations,
                sums=sums,
                cuts=cuts,
                state=state,
            )
            with open_folder(folder) as directory:
                manifest.write(directory)
        except _ERRORS as error:
            why = f"cannot write the manifest in {folder}: {error}"
    agree(job.comm, why)


def _bytes_of_arrays(job: JobContext) -> dict[str, NDArray[np.uint8]]:
    """Local parts of all arrays as bytes in their memory order, without copies."""
    return {name: array.local.ravel(order="K").view(np.uint8) for name, array in job.arrays.items()}
