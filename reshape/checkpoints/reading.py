"""Reading a checkpoint on any number of processes.

All bytes are verified first, each by one rank. Then each rank copies what it needs of the arrays
out of the mapped files, by the plan that moves the data of a resize.
"""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from redistribution import Layout, Plan
from reshape.checkpoints.manifest import (
    Manifest,
    Piece,
    chunk_ranges,
    chunk_sum,
    data_file,
    saved_layout,
)
from reshape.data import segments
from reshape.data.declarations import Declaration, RaggedCuts
from reshape.data.ragged import Ragged, cuts_at
from reshape.data.segments import RankMemory, Segment
from reshape.errors import ReshapeError
from reshape.files.private_folder import open_file, open_folder

if TYPE_CHECKING:
    from mpi4py import MPI

log = logging.getLogger(__name__)


def open_newest(comm: MPI.Intracomm, folders: Sequence[Path]) -> SavedCheckpoint:
    """Collective over comm. Open the first of these checkpoints that is not damaged.

    Parameters
    ----------
    folders : at least one, the newest first, the same on every rank.

    Raises
    ------
    ReshapeError : on every rank, if all are damaged.
    """
    damages = list[str]()
    for folder in folders:
        checkpoint, why = _open_verified(comm, folder)
        if checkpoint is not None:
            if damages and comm.rank == 0:
                log.warning("restarting from the earlier checkpoint %s", folder)
            return checkpoint
        damages.append(why)
        if comm.rank == 0:
            log.warning("checkpoint %s cannot be used: %s", folder, why)
    raise ReshapeError(
        f"cannot restart: {'; '.join(damages)}; restart from another directory, or remove "
        f"{folders[0].parent} to start from the beginning"
    )


def _open_verified(comm: MPI.Intracomm, folder: Path) -> tuple[SavedCheckpoint | None, str]:
    """Collective over comm. Return a checkpoint if it is not damaged, else why it is."""
    why, manifest = "", None
    if comm.rank == 0:
        try:
            manifest = Manifest.read(folder)
        except ReshapeError as error:
            why = str(error)
    manifest, why = comm.bcast((manifest, why), root=0)
    if manifest is None:
        return None, why
    checkpoint = SavedCheckpoint(folder, manifest)
    try:
        checkpoint.verify(comm.rank, comm.size)
    except (OSError, ReshapeError) as error:
        why = str(error)
    why = next((reason for reason in comm.allgather(why) if reason), "")
    return (None, why) if why else (checkpoint, "")


class SavedCheckpoint:
    """A checkpoint that a program restarts from; see `reshape.resizing.restart_point.SavedData`.

    Parameters
    ----------
    folder : folder of the checkpoint.
    manifest : its manifest.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self._arrays = {declaration.name: declaration for declaration in manifest.arrays}
        self._mappings: dict[int, mmap.mmap] = {}

    @property
    def saved_state(self) -> Manifest:
        """The state of the job between two iterations."""
        return self.manifest

    # ------------------------------------------------------------ verification

    def verify(self, rank: int, size: int) -> None:
        """Verify the share of `rank` of `size` ranks: lengths of files, checksums of chunks.

        Raises
        ------
        ReshapeError : a file is missing, has another length, or a checksum differs.
        OSError : a file cannot be read.
        """
        chunks: list[tuple[int, Piece, int, int, int]] = []  # process, piece, begin, end, checksum
        for process in range(self.manifest.size):
            pieces, length = self.manifest.pieces(process)
            if process % size == rank:
                self._check_length(process, length)
            for piece in pieces.values():
                sums = self.manifest.sums[piece.array][process]
                for (begin, end), expected in zip(chunk_ranges(piece.size), sums, strict=True):
                    chunks.append((process, piece, begin, end, expected))
        for share in chunks[rank * len(chunks) // size : (rank + 1) * len(chunks) // size]:
            self._check_chunk(*share)

    def _check_length(self, process: int, expected: int) -> None:
        path = self.folder / data_file(process)
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise ReshapeError(f"{path} is missing") from None
        if size != expected:
            raise ReshapeError(f"{path} has {size} bytes, expected {expected}")

    def _check_chunk(self, process: int, piece: Piece, begin: int, end: int, expected: int) -> None:
        path = self.folder / data_file(process)
        data = np.empty(end - begin, np.uint8)
        with open_folder(self.folder) as directory:
            file = open_file(directory, path.name, os.O_RDONLY)
        try:
            done = 0
            while done < len(data):
                count = os.preadv(file, [data.data[done:]], piece.offset + begin + done)
                if count == 0:
                    raise ReshapeError(f"{path} ends at byte {piece.offset + begin + done}")
                done += count
        finally:
            os.close(file)
        if chunk_sum(data) != expected:
            first, last = piece.offset + begin, piece.offset + end
            raise ReshapeError(
                f"{path} is damaged: the checksum of bytes {first} to {last} of array "
                f"{piece.array!r} differs"
            )

    # ------------------------------------------------------------ the data of a restart

    def check(self, given: Sequence[Declaration], complete: bool) -> None:
        """Compare the registrations of the program, so far or all, with those of the checkpoint.

        Raises
        ------
        ReshapeError : the first difference.
        """
        saved = self.manifest.signature
        for theirs, ours in zip_longest(saved if complete else saved[: len(given)], given):
            if theirs == ours:
                continue
            if ours is None:
                what = f"it holds {theirs}, which the program does not register"
            elif theirs is None or theirs.name != ours.name:
                held = ", ".join(declaration.name for declaration in saved) or "nothing"
                what = f"the program registers {ours} as number {list(given).index(ours) + 1}, "
                what += f"it holds {held} in this order"
            else:
                pairs = zip(Declaration._fields, theirs, ours, strict=True)
                field, old, new = next(each for each in pairs if each[1] != each[2])
                what = f"its array {ours.name!r} has {field} {old!r}, the program registers {new!r}"
            raise ReshapeError(
                f"cannot restart from {self.folder}: {what}; restart the program that wrote it, "
                "or start from the beginning"
            )

    def cuts_of(self, ragged: Ragged, size: int) -> RaggedCuts:
        """Cuts of a ragged array on `size` processes, as a resize would choose them."""
        name = ragged.counts.name
        declaration = self._arrays[name]
        layout = saved_layout(declaration, self.manifest.size, self.manifest.cuts)
        parts = [self._part(declaration, process) for process in range(layout.nprocs)]
        counts = np.concatenate(parts)
        return cuts_at(ragged.next_rows(counts, size).offsets, counts)

    def segment_of(self, memory: RankMemory, declaration: Declaration, layout: Layout) -> Segment:
        """Allocate the local part of an array in a layout, and read its data.

        Raises
        ------
        ReshapeError, OSError : a file cannot be read.
        MemoryError : there is no memory for it.
        """
        shape = layout.local_shape(memory.rank)
        segment = segments.create(
            memory, declaration.name, shape, declaration.element_type, declaration.order
        )
        source = saved_layout(declaration, self.manifest.size, self.manifest.cuts)
        plan = Plan(source, layout)
        plan.gather(memory.rank, lambda process: self._part(declaration, process), segment.array)
        return segment

    def _part(self, declaration: Declaration, process: int) -> NDArray[Any]:
        """Map the local part that a process has saved."""
        pieces, _ = self.manifest.pieces(process)
        piece = pieces[declaration.name]
        if piece.size == 0:
            return np.zeros(piece.shape, declaration.element_type, declaration.order)
        if process not in self._mappings:
            with open_folder(self.folder) as directory:
                file = open_file(directory, data_file(process), os.O_RDONLY)
            try:
                self._mappings[process] = mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ)
            finally:
                os.close(file)
        return np.ndarray(
            piece.shape,
            declaration.element_type,
            self._mappings[process],
            offset=piece.offset,
            order=declaration.order,
        )
