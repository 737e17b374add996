"""The files of a checkpoint: the manifest, and a file with the local parts of each process.

    DIR/owner.json                     the run that writes checkpoints here
    DIR/iteration-400/rank-0.data      the local parts of process 0, one array after another
    DIR/iteration-400/rank-1.data
    DIR/iteration-400/manifest.json    written last: a folder without it is no checkpoint

Local parts follow one another in the order of registration. Each begins at a multiple of 4096 bytes
and has the memory order of its array. Places and sizes follow from the declarations, the number of
processes and the cuts. Of an array with copies, the holders of the first one write their parts.

CRC-32 of all bytes would take longer than writing them to a fast disk. For their checksums the
64-bit words of each page of 4 KiB are therefore added modulo 2**64, and the sums of the pages of a
chunk go into its CRC-32. One changed word in a page always changes the checksum, any other change
of contents, order or length with a probability of about 1 - 2**-32. Words that change places within
one page are not detected. A restart verifies all bytes first, each by one rank. Then each rank
copies its part of the arrays out of the mapped files, by the plan that moves the data of a resize.
"""

from __future__ import annotations

import logging
import math
import mmap
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redistribution import Layout, Plan
from reshape.checkpoints.directory import MANIFEST_FILE
from reshape.data import segments
from reshape.data.declarations import AllCuts, Declaration, RaggedCuts
from reshape.data.ragged import Ragged, cuts_at
from reshape.data.segments import RankMemory, Segment
from reshape.errors import ReshapeError
from reshape.files.private_folder import open_file, open_folder, read_file, write_file
from reshape.ranks.agree import agreed, found_by
from reshape.resizing.restart_point import SavedState

log = logging.getLogger(__name__)

#: Bytes with a checksum of their own: 16 checksums for each GiB.
CHUNK_BYTES = 64 << 20
#: Bytes that are summed up at a time; they stay in the cache of a core for what follows.
BATCH_BYTES = 512 << 10
_PAGE_BYTES = 4096
_WORD = np.dtype("<u8")


def chunk_sum(data: NDArray[np.uint8]) -> int:
    """Checksum of a chunk: (bytes,) uint8, contiguous."""
    checksum = len(data)
    for begin in range(0, len(data), BATCH_BYTES):
        checksum = extended(checksum, data[begin : begin + BATCH_BYTES])
    return checksum


def extended(checksum: int, batch: NDArray[np.uint8]) -> int:
    """Checksum of a chunk, given that of the batches before; the first follows its length."""
    return zlib.crc32(_page_sums(batch).data, checksum)


def chunk_ranges(size: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each chunk of `size` bytes."""
    for begin in range(0, size, CHUNK_BYTES):
        yield begin, min(size, begin + CHUNK_BYTES)


def _page_sums(data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Sums of the words of each page; a last page that is not complete is filled with zeros."""
    whole = len(data) // _PAGE_BYTES * _PAGE_BYTES
    sums: NDArray[np.uint64] = (
        data[:whole].view(_WORD).reshape(-1, _PAGE_BYTES // _WORD.itemsize).sum(axis=1)
    )
    if whole == len(data):
        return sums
    page = np.zeros(_PAGE_BYTES, np.uint8)
    page[: len(data) - whole] = data[whole:]
    return np.append(sums, page.view(_WORD).sum())


def data_file(process: int) -> str:
    """Name of the file with the local parts of a process."""
    return f"rank-{process}.data"


class Piece(NamedTuple):
    """One local part in the file of its process; `offset` and `size` in bytes."""

    array: str
    shape: tuple[int, ...]
    offset: int
    size: int


def pieces_of(
    process: int, arrays: tuple[Declaration, ...], size: int, cuts: AllCuts
) -> tuple[dict[str, Piece], int]:
    """Local parts of a process by array, and the length of their file in bytes."""
    pieces, end = dict[str, Piece](), 0
    for declaration in arrays:
        layout = declaration.layout(size, cuts)
        if layout.places[process][0]:  # it has another copy than the first one
            continue
        shape = layout.local_shape(process)
        count = math.prod(shape) * declaration.element_type.itemsize
        offset = -(-end // _PAGE_BYTES) * _PAGE_BYTES if count else end
        pieces[declaration.name] = Piece(declaration.name, shape, offset, count)
        end = offset + count
    return pieces, end


def write_pieces(
    folder: Path, process: int, pieces: Mapping[str, Piece], data: Mapping[str, NDArray[np.uint8]]
) -> dict[str, list[int]]:
    """Write the local parts of a process to its file, durably.

    Parameters
    ----------
    data : contents of each piece as bytes, (size,) uint8.

    Returns
    -------
    checksums of the chunks of each piece.

    Raises
    ------
    OSError, ReshapeError : the file cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with (
        open_folder(folder) as directory,
        os.fdopen(open_file(directory, data_file(process), flags), "wb") as file,
    ):
        sums = {name: _write_at(file, piece.offset, data[name]) for name, piece in pieces.items()}
        file.flush()
        os.fsync(file.fileno())
    return sums


def _write_at(file: BinaryIO, offset: int, data: NDArray[np.uint8]) -> list[int]:
    """Write bytes to a place in a file; return the checksums of their chunks.

    Each batch is written when its checksum has just brought it into the cache, so that the checksum
    costs hardly more than the write alone.
    """
    sums = []
    file.seek(offset)
    for begin, end in chunk_ranges(len(data)):
        checksum = end - begin
        for start in range(begin, end, BATCH_BYTES):
            batch = data[start : min(end, start + BATCH_BYTES)]
            checksum = extended(checksum, batch)
            file.write(batch.data)
        sums.append(checksum)
    return sums


class Manifest(SavedState, frozen=True, kw_only=True):
    """What a checkpoint holds.

    Attributes
    ----------
    written_at : Unix seconds.
    arrays : declarations of all plain arrays, including the parts of ragged data.
    sums : checksums of the chunks of each local part, by array, then by process; none for a
        process that has written no part.
    """

    written_at: float
    arrays: tuple[Declaration, ...]
    sums: dict[str, list[list[int]]]

    def pieces(self, process: int) -> tuple[dict[str, Piece], int]:
        """Local parts of a process by array, and the length of their file in bytes."""
        return pieces_of(process, self.arrays, self.size, self.cuts)

    def write(self, directory: int) -> None:
        """Write the manifest to an open folder, durably: the folder is a checkpoint from now on.

        Raises
        ------
        OSError : no room, or no right to write.
        """
        body = msgspec.json.encode(self)
        text = b'{"crc32":%d,\n"manifest":%s}\n' % (zlib.crc32(body), body)
        write_file(directory, MANIFEST_FILE, text)  # after those of the data files

    @staticmethod
    def read(folder: Path) -> Manifest:
        """Read the manifest of a checkpoint.

        Raises
        ------
        ReshapeError : there is none, it is damaged or of another format, or other users can change
            it.
        """
        path = folder / MANIFEST_FILE
        try:
            envelope = msgspec.json.decode(read_file(folder, MANIFEST_FILE), type=_Envelope)
            crc32 = zlib.crc32(envelope.manifest)
            if crc32 != envelope.crc32:
                raise ReshapeError(f"its checksum is {crc32}, expected {envelope.crc32}")
            return msgspec.json.decode(envelope.manifest, type=Manifest)
        except FileNotFoundError:
            raise ReshapeError(f"there is no {path}") from None
        except (OSError, ReshapeError, msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ReshapeError(f"{path} cannot be read: {error}") from None


class _Envelope(msgspec.Struct):
    """The manifest as it is in the file, and its checksum."""

    crc32: int
    manifest: msgspec.Raw


# ---------------------------------------------------------------- reading


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
        try:
            checkpoint = SavedCheckpoint(folder, found_by(comm, partial(Manifest.read, folder)))
            with agreed(comm, "", OSError, ReshapeError):
                checkpoint.verify(comm.rank, comm.size)
        except ReshapeError as error:
            damages.append(str(error))
            if comm.rank == 0:
                log.warning("checkpoint %s cannot be used: %s", folder, error)
            continue
        if damages and comm.rank == 0:
            log.warning("restarting from the earlier checkpoint %s", folder)
        return checkpoint
    raise ReshapeError(
        f"cannot restart: {'; '.join(damages)}; restart from another directory, or remove "
        f"{folders[0].parent} to start from the beginning"
    )


class SavedCheckpoint:
    """A checkpoint that a program restarts from.

    Parameters
    ----------
    folder : folder of the checkpoint.
    manifest : its manifest.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self._mappings: dict[int, mmap.mmap] = {}

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
        with self._opened(process) as file:
            file.seek(piece.offset + begin)
            data = np.fromfile(file, np.uint8, end - begin)
        if len(data) < end - begin or chunk_sum(data) != expected:
            first, last = piece.offset + begin, piece.offset + end
            raise ReshapeError(
                f"{path} is damaged: the checksum of bytes {first} to {last} of array "
                f"{piece.array!r} differs"
            )

    # ------------------------------------------------------------ the data of a restart

    def check(self, declarations: Sequence[Declaration], complete: bool) -> None:
        """Compare the registrations of the program with those of the checkpoint.

        Parameters and errors are those of `SavedState.check`.
        """
        self.manifest.check(declarations, complete, f" from {self.folder}")

    def cuts_of(self, ragged: Ragged, size: int) -> RaggedCuts:
        """Cuts of a ragged array on `size` processes, as a resize would choose them."""
        declaration = ragged.counts.declaration
        layout = declaration.layout(self.manifest.size, self.manifest.cuts)
        parts = [self._part(declaration, layout, process) for process in range(layout.nprocs)]
        counts = np.concatenate(parts)
        return cuts_at(ragged.next_rows(counts, size).offsets, counts)

    def segment_of(self, memory: RankMemory, declaration: Declaration, layout: Layout) -> Segment:
        """Allocate the local part of an array in a layout, and read its data.

        Raises
        ------
        ReshapeError, OSError : a file cannot be read.
        MemoryError : there is no memory for it.
        """
        segment = segments.create(memory, declaration, layout)
        saved = declaration.layout(self.manifest.size, self.manifest.cuts)
        plan = Plan(saved, layout)
        plan.gather(memory.rank, lambda p: self._part(declaration, saved, p), segment.array)
        return segment

    def _part(self, declaration: Declaration, layout: Layout, process: int) -> NDArray[Any]:
        """Map the local part of a process, which the holder of it in the first copy has saved."""
        process = layout.holders[0][layout.places[process][1]]
        pieces, _ = self.manifest.pieces(process)
        piece = pieces[declaration.name]
        if piece.size == 0:
            return np.zeros(piece.shape, declaration.element_type, declaration.order)
        if process not in self._mappings:
            with self._opened(process) as file:
                self._mappings[process] = mmap.mmap(
                    file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ
                )
        return np.ndarray(
            piece.shape,
            declaration.element_type,
            self._mappings[process],
            offset=piece.offset,
            order=declaration.order,
        )

    @contextmanager
    def _opened(self, process: int) -> Iterator[BinaryIO]:
        """Open the file of a process for reading."""
        with (
            open_folder(self.folder) as directory,
            os.fdopen(open_file(directory, data_file(process), os.O_RDONLY), "rb") as file,
        ):
            yield file
