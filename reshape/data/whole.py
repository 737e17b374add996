"""A whole distributed array: in the memory of rank 0, or in a file of NumPy or HDF5.

A file is written from its first byte to its last, slab after slab. A slab consists of consecutive
elements of the file and is bounded in size. Each process sends rank 0 its elements of the slab,
which are contiguous ranges of its local indices, because these ascend with the global ones.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redistribution import Cuts, Layout, Plan, Replicated
from redistribution.axes import Indices
from redistribution.layout import MemoryOrder
from reshape.errors import ReshapeError
from reshape.files.durable_files import durable_file
from reshape.ranks.agree import RolledBackError, agreed

#: Most bytes of a slab. Rank 0 holds one slab and the elements of one process in it.
SLAB_BYTES = 16 << 20
_TAG = 27184
#: Suffixes of files of HDF5; all others are files of NumPy.
HDF5_SUFFIXES = (".h5", ".hdf5")
#: Names of data sets in an error, at most.
MOST_NAMED = 10

#: First and last (exclusive) global index of a slab on each axis.
Slab: TypeAlias = tuple[tuple[int, int], ...]


class Saved(NamedTuple):
    """An array and its local part on this rank, which a file is to hold.

    In the file, an array in Fortran order is as its transpose would be in C order.

    Attributes
    ----------
    comm : all ranks that hold parts of it.
    order : memory order of the local part, and order of the elements in a file of NumPy.
    """

    comm: MPI.Intracomm
    name: str
    layout: Layout
    local: NDArray[Any]
    order: MemoryOrder

    @property
    def axes(self) -> slice:
        """Takes the axes of the array to those of the file."""
        return slice(None) if self.order == "C" else slice(None, None, -1)

    @property
    def turned(self) -> NDArray[Any]:
        """The local part with its axes in the order of the file."""
        return self.local if self.order == "C" else self.local.T

    def slabs(self, number: int) -> Iterator[tuple[Slab, NDArray[Any]]]:
        """Yield all slabs with their contents, on rank 0, while the other ranks send.

        Parameters
        ----------
        number : which of their arrays the others send.
        """
        cuts = list(slabs(self.layout.shape[self.axes], self.local.dtype.itemsize))
        largest = max((math.prod(_extents(slab)) for slab in cuts), default=0)
        # For a slab, and what is received of it: no rank may send what rank 0 has no memory for.
        buffers = np.empty((2, largest), self.local.dtype)
        for slab in cuts:
            self.comm.bcast((number, slab), root=0)
            yield slab, self.received(slab, buffers)

    @property
    def holders(self) -> tuple[int, ...]:
        """Ranks that send; the others have copies of the same elements."""
        return self.layout.holders[0]

    def share(self, process: int, slab: Slab) -> tuple[tuple[slice, ...], tuple[Indices, ...]]:
        """Local indices of a process in a slab by axis, and the positions of these elements."""
        local, positions = [], []
        indices_by_axis = self.layout.global_indices(process)[self.axes]
        for (first, last), indices in zip(slab, indices_by_axis, strict=True):
            begin, end = np.searchsorted(indices, [first, last])
            local.append(slice(begin, end))
            positions.append(indices[begin:end] - first)
        return tuple(local), tuple(positions)

    def send(self, slab: Slab) -> None:
        """Send rank 0 the elements of this rank in a slab."""
        if self.comm.rank in self.holders:
            own = self.turned[self.share(self.comm.rank, slab)[0]]
            if own.size:
                self.comm.Send(_bytes(own), 0, _TAG)

    def received(self, slab: Slab, buffers: NDArray[Any]) -> NDArray[Any]:
        """Put a slab together from the elements of all ranks, on rank 0, in these buffers."""
        contents = _shaped(buffers[0], _extents(slab))
        for process in self.holders:
            local, positions = self.share(process, slab)
            shape = tuple(map(len, positions))
            if 0 in shape:
                continue
            elements = self.turned[local] if process == 0 else _shaped(buffers[1], shape)
            if process != 0:
                self.comm.Recv(_bytes(elements), process, _TAG)
            contents[_box(positions)] = elements
        return contents


#: A RuntimeError: a link leads to itself.
_UNWRITABLE = (ValueError, TypeError, MemoryError, RuntimeError, ReshapeError)


def _place(path: str | os.PathLike[str]) -> Path:
    """File that is written: a link stays, and its target is replaced."""
    place = Path(path).resolve()
    if place.exists() and not place.is_file():
        raise ReshapeError("it is a folder, a device or a pipe, and no file")
    return place


class Savable:
    """Registered data that a file can hold."""

    def as_saved(self) -> Saved:
        """Collective over app.comm. Return what is written: the whole of it is one array."""
        raise NotImplementedError

    def gather(self) -> NDArray[Any] | None:
        """Collective over app.comm. Return the whole array on rank 0, and None elsewhere.

        Particles are the records of all ranks, in the order of the ranks.

        Raises
        ------
        ReshapeError : on every rank: rank 0 has no memory for it. Also if this process has no part
            of it yet, or no longer.
        """
        comm, _, layout, local, order = self.as_saved()
        whole = None
        with _agreed(comm, f"an array of shape {layout.shape} cannot be gathered", MemoryError):
            if comm.rank == 0:
                whole = np.empty(layout.shape, local.dtype, order)
        Plan(layout, Replicated(layout.shape, 1)).run(comm, local, whole, order=order)
        return whole

    def save(self, path: str | os.PathLike[str], *more: Savable) -> None:
        """Collective over app.comm. Write the whole array to a file of NumPy or HDF5.

        `numpy.load` reads a file of NumPy. In a file of HDF5 each array is a data set with its
        name, which any program with HDF5 reads. `load` reads either on any number of processes.

        Rank 0 writes the file, and holds no more than 32 MiB of the array at a time beside its
        local part. The file has its name when it is complete and on disk; an existing one is
        replaced.

        Parameters
        ----------
        path : name of the file on the host of rank 0. With the suffix .h5 or .hdf5 it is one of
            HDF5, which needs h5py (``pip install 'reshape-mpi[hdf5]'``); no h5py with MPI.
        more : further arrays, or particles, for the same file of HDF5.

        Raises
        ------
        ReshapeError : on every rank: the file cannot be written, h5py is not installed, or HDF5 has
            no such element type, as for times and for texts other than "S8". There is no part of it
            then, and an existing file is as it was. Also if this process has no part of the array
            yet, or no longer.
        """
        for each in more:
            if not isinstance(each, Savable):
                raise ReshapeError(
                    f"cannot save {each!r:.200} to {os.fspath(path)}: it is neither a registered"
                    " array nor particles"
                )
        arrays = [each.as_saved() for each in (self, *more)]
        comm, is_hdf5 = arrays[0].comm, Path(path).suffix in HDF5_SUFFIXES
        if is_hdf5:
            arrays = [each._replace(order="C") for each in arrays]
        what = f"cannot save {', '.join(each.name for each in arrays)} to {os.fspath(path)}"
        if len(arrays) > 1 and not is_hdf5:
            raise ReshapeError(f"{what}: only files of HDF5 (.h5) hold several arrays")
        # Another rank whose memory ends does not wait here: rank 0 would wait for its part.
        with _agreed(comm, what, *(_UNWRITABLE if comm.rank == 0 else ())):
            if comm.rank == 0:
                try:
                    with durable_file(_place(path)) as file:
                        (_write_hdf5 if is_hdf5 else _write_npy)(file, arrays)
                except OSError as error:
                    raise ReshapeError(error.strerror or str(error)) from None  # names no draft
                finally:
                    comm.bcast(None, root=0)
            else:
                while (sent := comm.bcast(None, root=0)) is not None:
                    number, slab = sent
                    arrays[number].send(slab)


def _write_npy(file: BinaryIO, arrays: Sequence[Saved]) -> None:
    (array,) = arrays
    _begin(file, array.layout.shape, array.local.dtype, array.order)
    for _, contents in array.slabs(0):
        file.write(_bytes(contents).data)


def _write_hdf5(file: BinaryIO, arrays: Sequence[Saved]) -> None:
    with _h5py().File(file, "w") as written:
        for number, each in enumerate(arrays):
            data = written.create_dataset(each.name, each.layout.shape, each.local.dtype)
            for slab, contents in each.slabs(number):
                data[tuple(slice(*ends) for ends in slab)] = contents


def load(array: Saved, path: str | os.PathLike[str]) -> None:
    """Collective over app.comm. Read an array from a file of NumPy or HDF5 into the local parts.

    Each rank reads an equal share of the file, along the longest axis, and a plan moves the shares.

    Raises
    ------
    ReshapeError : on every rank: the file cannot be read, or holds another array. Nothing is
        changed then.
    """
    comm, name, layout, local, order = array
    share = Cuts.even(layout.shape, comm.size, int(np.argmax(layout.shape)))
    read = None
    with _agreed(comm, f"cannot load {name} from {os.fspath(path)}", *_UNREADABLE):
        read = _read(array, path, share)
    Plan(share, layout).run(comm, read, local, order=order)


def _read(array: Saved, path: str | os.PathLike[str], share: Cuts) -> NDArray[Any]:
    """Read this rank's part of a layout from a file, with the element type of the array."""
    comm, name, layout, local, _ = array
    ends = zip(share.coordinates(comm.rank), share.axes, strict=True)
    where = tuple(slice(*axis.offsets[part : part + 2]) for part, axis in ends)  # type: ignore[union-attr]
    with _stored(name, path) as data:
        if data.shape != layout.shape or not np.can_cast(data.dtype, local.dtype, "same_kind"):
            raise ReshapeError(
                f"it has shape {data.shape} and dtype {data.dtype}, expected {layout.shape} and "
                f"{local.dtype}"
            )
        return np.array(data[where], local.dtype)


_UNREADABLE = (OSError, KeyError, ValueError, TypeError, MemoryError, ReshapeError)


def stored_length(comm: MPI.Intracomm, name: str, path: str | os.PathLike[str]) -> int:
    """Collective over comm. Return the length of the first axis of what `load` would read.

    Raises
    ------
    ReshapeError : on every rank: the file cannot be read, or has no such array.
    """
    length = 0
    with _agreed(comm, f"cannot load {name} from {os.fspath(path)}", *_UNREADABLE):
        if comm.rank == 0:
            with _stored(name, path) as data:
                if not data.shape:
                    raise ReshapeError("it is a single value, and no array")
                length = len(data)
    return int(comm.bcast(length, root=0))


@contextmanager
def _agreed(comm: MPI.Intracomm, what: str, *errors: type[Exception]) -> Iterator[None]:
    """Collective over comm. As `agreed`; nothing is rolled back."""
    try:
        with agreed(comm, what, *errors):
            yield
    except RolledBackError as error:
        raise ReshapeError(str(error)) from None


@contextmanager
def _stored(name: str, path: str | os.PathLike[str]) -> Iterator[Any]:
    """Open what a file holds: the data set of this name, or the only array of a file of NumPy."""
    if Path(path).suffix in HDF5_SUFFIXES:
        h5py = _h5py()
        with h5py.File(path, "r") as file:
            if not isinstance(file.get(name), h5py.Dataset):
                others = (each for each in file if isinstance(file.get(each), h5py.Dataset))
                names = ", ".join(islice(others, MOST_NAMED)) or "none at all"
                raise ReshapeError(f"it has no data set {name!r}, but {names}")
            yield file[name]
    else:
        try:
            data = np.lib.format.open_memmap(os.fspath(path), mode="r")
        except ValueError as error:
            raise ReshapeError(f"it is no complete array of NumPy (.npy): {error}") from None
        yield data


def _h5py() -> Any:
    try:
        return import_module("h5py")  # only programs that use it load it
    except ImportError:
        raise ReshapeError(
            "files of HDF5 need h5py: pip install 'reshape-mpi[hdf5]', or choose a name with .npy"
        ) from None


def slabs(shape: tuple[int, ...], itemsize: int) -> Iterator[Slab]:
    """Divide an array in C order into consecutive parts of at most `SLAB_BYTES`, as boxes."""
    if 0 in shape:
        return
    axis, inner = len(shape) - 1, itemsize  # the last axis that is cut, and bytes of one index
    while axis > 0 and inner * shape[axis] <= SLAB_BYTES:
        inner *= shape[axis]
        axis -= 1
    step = max(1, SLAB_BYTES // inner)
    whole = tuple((0, extent) for extent in shape[axis + 1 :])
    for outer in np.ndindex(shape[:axis]):
        for begin in range(0, shape[axis], step):
            cut = (begin, min(shape[axis], begin + step))
            yield (*((index, index + 1) for index in outer), cut, *whole)


def _begin(
    file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any], order: MemoryOrder
) -> None:
    """Write the header, and make sure that there is room for the rest."""
    # as numpy.save: C order if the array is contiguous in both orders
    is_fortran = order == "F" and 0 not in shape and sum(extent > 1 for extent in shape) > 1
    header = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": is_fortran,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(file, header)
    file.flush()
    length = file.tell() + math.prod(shape) * dtype.itemsize
    os.posix_fallocate(file.fileno(), 0, length)


def _extents(slab: Slab) -> tuple[int, ...]:
    """Shape of a slab."""
    return tuple(last - first for first, last in slab)


def _shaped(buffer: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Begin of a buffer as a contiguous array of a shape."""
    return buffer[: math.prod(shape)].reshape(shape)


def _box(positions: tuple[Indices, ...]) -> tuple[Any, ...]:
    """Index of these positions: slices, which are faster, if all of them are contiguous."""
    if all(along[-1] - along[0] == len(along) - 1 for along in positions):
        return tuple(slice(int(along[0]), int(along[-1]) + 1) for along in positions)
    return np.ix_(*positions)


def _bytes(part: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the elements as bytes, without a copy if they are contiguous."""
    return np.ascontiguousarray(part).reshape(-1).view(np.uint8)
