"""Segments: files in shared memory that hold the local parts of a job's arrays.

A segment lies in the job's shared-memory folder, on a memory file system such as ``/dev/shm``, and
is named after array, epoch and rank. A NumPy array covers its mapping. The segment outlives its
process. A resize creates segments of a new epoch and keeps the old ones until it is committed, so
that a job can restart from them (`reshape.resizing.restart_point`). A `FolderPlace` says on which
host that folder is.
"""

from __future__ import annotations

import logging
import math
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

from redistribution import Layout
from redistribution.layout import MemoryOrder
from reshape.data import mapped_files
from reshape.data.declarations import Declaration
from reshape.data.mapped_files import Mapping
from reshape.errors import ReshapeError
from reshape.files.private_folder import open_file, open_folder, remove_file

log = logging.getLogger(__name__)

#: Suffix of a file without data, whose memory is kept for the next resize.
SPARE = ".spare"
_FILE = re.compile(rf".+\.e(?P<epoch>\d+)\.r\d+(?P<spare>{re.escape(SPARE)})?")


class RankMemory(NamedTuple):
    """The memory of one rank in one configuration of a job.

    Attributes
    ----------
    folder : shared-memory folder of the job; None: private memory.
    epoch : serial number of the resize that the memory belongs to.
    rank : rank whose local parts it holds.
    """

    folder: Path | None
    epoch: int
    rank: int

    def file_name(self, array: str) -> str:
        """Name of the file that holds the local part of an array."""
        return f"{array}.e{self.epoch}.r{self.rank}"


class Segment(msgspec.Struct, eq=False):
    """A local part and the file that holds it.

    Attributes
    ----------
    array : the local part; all zeros when new.
    path : its file; None if the memory is private, if the array has no elements, or if the file has
        no name yet.
    mapping : the memory of the file, which may be longer than the array.
    descriptor : of a file that has no name yet; otherwise -1.
    """

    array: NDArray[Any]
    path: Path | None
    mapping: Mapping | None = None
    descriptor: int = -1

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return 0 if self.mapping is None else self.mapping.size

    @property
    def outlives(self) -> bool:
        """Whether the contents survive the process."""
        return self.path is not None or self.array.size == 0

    def discard(self) -> None:
        """Remove the file. The array can still be read, but not written."""
        self.array.flags.writeable = False
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            self.path = None
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def rename(self, path: Path) -> None:
        """Give the file a name, for another epoch or rank; none if there is no file any more."""
        try:
            if self.path is not None:
                os.rename(self.path, path)
            else:
                with open_folder(path.parent) as directory:
                    os.link(f"/proc/self/fd/{self.descriptor}", path.name, dst_dir_fd=directory)
                os.close(self.descriptor)
                self.descriptor = -1
        except (OSError, ReshapeError) as error:
            log.debug("%s cannot be named %s: %s", self.path or "spare memory", path, error)
            self.path = None
        else:
            self.path = path


def create(memory: RankMemory, declaration: Declaration, layout: Layout) -> Segment:
    """Allocate the local part that a rank has of an array in a layout, all zeros.

    If the folder has no room, the memory is private, and a process logs that once: the job can run
    and resize, but it cannot restart after a failed resize.

    Raises
    ------
    ReshapeError : the folder belongs to another user, or is open to other users.
    MemoryError : there is no private memory either.
    """
    form = _form(memory, declaration, layout)
    folder, size = memory.folder, bytes_of(*form[:2])
    if folder is None or size == 0:
        return Segment(np.zeros(*form), None)
    file = memory.file_name(declaration.name)
    try:
        with open_folder(folder, create=True) as directory:
            remove_file(directory, file)
            descriptor = open_file(directory, file, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            try:
                mapping = mapped_files.new_memory(descriptor, size)
            except OSError:
                remove_file(directory, file)
                raise
            finally:
                os.close(descriptor)
    except OSError as error:
        _warn_once(folder, error.strerror or str(error))
        return Segment(np.zeros(*form), None)
    return Segment(mapping.array(*form), folder / file, mapping)


def _form(
    memory: RankMemory, declaration: Declaration, layout: Layout
) -> tuple[tuple[int, ...], np.dtype[Any], MemoryOrder]:
    """Shape, element type and memory order of a local part."""
    return layout.local_shape(memory.rank), declaration.element_type, declaration.order


def reopen(memory: RankMemory, declaration: Declaration, layout: Layout) -> Segment:
    """Map the local part that a process of an earlier run has left; parameters as of `create`.

    Raises
    ------
    ReshapeError : the file does not exist, is too short, or belongs to another user.
    """
    try:
        segment = _opened(memory, declaration, layout, os.O_RDWR)
    except (ReshapeError, OSError) as error:
        raise ReshapeError(f"cannot restart: {error}; submit the job again") from None
    if segment.mapping is not None:
        mapped_files.populate(segment.mapping)
    return segment


def view(memory: RankMemory, declaration: Declaration, layout: Layout) -> NDArray[Any]:
    """Map the local part of another process for reading; parameters as of `create`.

    Raises
    ------
    ReshapeError : the file does not exist, is too short, or belongs to another user.
    OSError : it cannot be mapped.
    """
    return _opened(memory, declaration, layout, os.O_RDONLY).array  # it keeps the mapping alive


def _opened(memory: RankMemory, declaration: Declaration, layout: Layout, flags: int) -> Segment:
    """Map an existing file."""
    form, file = _form(memory, declaration, layout), memory.file_name(declaration.name)
    folder, size = memory.folder, bytes_of(*form[:2])
    if folder is None or size == 0:
        return Segment(np.zeros(*form), None)
    try:
        with open_folder(folder) as directory:
            descriptor = open_file(directory, file, flags)
    except FileNotFoundError:
        raise ReshapeError(f"{folder / file} is missing") from None
    try:
        length = os.fstat(descriptor).st_size
        if length < size:  # it is longer if the memory was spare
            raise ReshapeError(f"{folder / file} has {length} bytes, expected {size}")
        mapping = mapped_files.map_file(descriptor, length, writable=flags == os.O_RDWR)
    finally:
        os.close(descriptor)
    return Segment(mapping.array(*form), folder / file, mapping)


def prepare(folder: Path, size: int) -> Segment:
    """Create a segment without a name, all of whose pages are present and mapped.

    A thread may call this: the other threads of the process are not held up.

    Raises
    ------
    ReshapeError : the folder belongs to another user, or is open to other users.
    OSError : no room, or a file system without such files.
    """
    with open_folder(folder, create=True) as directory:
        flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
        descriptor = os.open(".", flags, 0o600, dir_fd=directory)
    try:
        mapping = mapped_files.new_memory(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return Segment(mapping.array((size,), np.uint8, "C"), None, mapping, descriptor)


def sweep(folder: Path, keep_epoch: int | None = None, *, spares: bool = True) -> None:
    """Remove the segments of all other epochs, which a failed resize or dead processes have left.

    Parameters
    ----------
    spares : whether to remove spare segments of all epochs too.

    Raises
    ------
    ReshapeError : the folder belongs to another user, or is open to other users.
    """
    with open_folder(folder) as directory:
        for file in os.listdir(directory):
            match = _FILE.fullmatch(file)
            if match is None:
                continue
            if spares if match["spare"] else int(match["epoch"]) != keep_epoch:
                remove_file(directory, file)


def bytes_of(shape: tuple[int, ...], dtype: DTypeLike) -> int:
    """Bytes of an array."""
    return math.prod(shape) * np.dtype(dtype).itemsize


@lru_cache
def _warn_once(folder: Path, reason: str) -> None:
    log.warning("arrays go to private memory: %s in %s", reason, folder)


class FolderPlace(NamedTuple):
    """A folder among those of all hosts.

    Device and inode number files of one kernel only; another boot is another kernel.

    Attributes
    ----------
    host : name of the host, for messages.
    boot : identifies the running kernel.
    device, inode : as of `os.stat`.
    """

    host: str
    boot: str
    device: int
    inode: int


def place_of(folder: Path | None) -> FolderPlace | None:
    """Place of a folder on this host; None if it does not exist."""
    try:
        status = None if folder is None else folder.stat()
    except OSError:
        return None
    if status is None:
        return None
    return FolderPlace(os.uname().nodename, boot_id(), status.st_dev, status.st_ino)


@lru_cache
def boot_id() -> str:
    """Return what distinguishes this kernel from every other one."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else os.uname().nodename
