"""Streams of random numbers: one for each row of an array, each work item, or each rank.

The stream of a row is seeded by its index. Its state moves with the row, so that the numbers are
the same at any size. The states lie in a registered array; between two iterations, when the runtime
moves or writes it, the generators write their states into it. The stream of a work item is a
function of the number of the item, so that nothing has to move with the items. The stream of a rank
belongs to one configuration of the job: processes that join, and all processes after a resize or a
restart, begin streams that no process has had before.
"""

from __future__ import annotations

import zlib
from operator import index

import numpy as np

from reshape.data.arrays import Array, Processes
from reshape.data.declarations import ArrayDivision, Declaration, declare, divide
from reshape.errors import ReshapeError

_KIND = "PCG64DXSM"
#: Words of the state of a generator: state and increment of 128 bits, flags, a kept half of a draw.
_WORDS = 6
#: Number that `Generator.spawn` adds to the flags for each stream that it has made.
_SPAWNED = 2
_WORD = 2**64 - 1
#: Numbers of items are less: a larger one would have the stream of two smaller ones.
_ITEMS = 2**32


def declare_streams(name: str, seed: int, like: Declaration | None) -> Declaration:
    """Check the declaration of streams; parameters as of `Registrations.rng`.

    Raises
    ------
    ReshapeError : the seed is no integer in [0, 2**63), or `like` has neither items nor one axis
        along which it is divided.
    """
    try:
        number = index(seed)
    except TypeError:
        number = -1
    if not 0 <= number < 2**63:
        raise ReshapeError(f"app.rng({name!r}, seed={seed!r}): expected an integer in [0, 2**63)")
    if like is None or like.kind == "items":
        by = "" if like is None else like.name
        return declare(name, "streams", (0, _WORDS), (number,), "<u8", "C", ArrayDivision(by=by))
    if like.kind not in ("rows", "csr", "blocks") or len(like.division.cut) > 1:
        raise ReshapeError(
            f"app.rng({name!r}, like={like.name}): {like} is not divided along one axis; use an "
            "array of app.rows, a matrix of app.csr or items of app.items, or leave like out for a "
            "stream for each rank"
        )
    (axis,) = like.division.cut
    assert axis is not None
    shape = (like.shape[axis], _WORDS)
    division = divide(name, "rows", shape, (0,), None, like)._replace(cut=(), grid=())
    return declare(name, "streams", shape, (number,), "<u8", "C", division)


def _generator(declaration: Declaration, *key: int, spawned: int = 0) -> np.random.Generator:
    """Generator with a stream of its own for each name, seed and key.

    Parameters
    ----------
    spawned : number of streams that `Generator.spawn` has made of it.
    """
    from numpy.random import PCG64DXSM, Generator, SeedSequence

    (seed,), name = declaration.detail, zlib.crc32(declaration.name.encode())
    sequence = SeedSequence(seed, spawn_key=(name, *key), n_children_spawned=spawned)
    return Generator(PCG64DXSM(sequence))


class StreamStates(Array):
    """The states of the streams of rows, (rows, 6) uint64; zeros if a stream has not begun."""

    _generators: list[np.random.Generator] | None = None

    @property
    def generators(self) -> list[np.random.Generator]:
        """Generator of each local row."""
        states = self.local
        if self._generators is None:
            (rows, _) = self.layout.global_indices(self.job.comm.rank)
            self._generators = []
            for row, words in zip(rows.tolist(), states.tolist(), strict=True):
                generator = _generator(self.declaration, row, spawned=words[4] // _SPAWNED)
                if any(words):
                    generator.bit_generator.state = _state_of(words)
                self._generators.append(generator)
        return self._generators

    def pack(self) -> None:
        """Write the states of the generators into the local part.

        Raises
        ------
        ReshapeError : the program has put one of another kind into the list.
        """
        for row, generator in enumerate(self._generators or ()):
            kind = type(generator.bit_generator).__name__
            if kind != _KIND:
                raise ReshapeError(
                    f"streams {self.name!r}: row {row} has a generator of {kind} in the place of "
                    "its own: draw from those of local, and keep others in app.state or in items"
                )
            self.local[row] = _words_of(generator)

    def _forget(self) -> None:
        self._generators = None


def _words_of(generator: np.random.Generator) -> list[int]:
    state = generator.bit_generator.state
    sequence = generator.bit_generator.seed_seq
    spawned = sequence.n_children_spawned if isinstance(sequence, np.random.SeedSequence) else 0
    numbers = state["state"]["state"], state["state"]["inc"]
    halves = [half for number in numbers for half in (number & _WORD, number >> 64)]
    return [*halves, state["has_uint32"] + _SPAWNED * spawned, state["uinteger"]]


def _state_of(words: list[int]) -> dict[str, object]:
    return {
        "bit_generator": _KIND,
        "state": {"state": words[0] | words[1] << 64, "inc": words[2] | words[3] << 64},
        "has_uint32": words[4] % _SPAWNED,
        "uinteger": words[5],
    }


class Streams:
    """Streams of random numbers for the rows of this process.

    Parameters
    ----------
    states : registered array of their states.
    """

    def __init__(self, states: StreamStates) -> None:
        self._states = states

    @property
    def local(self) -> list[np.random.Generator]:
        """Generator of each row of this process, in order; another list after each resize.

        Raises
        ------
        ReshapeError : this process has no rows yet, or no longer.
        """
        return self._states.generators

    def __getitem__(self, row: int) -> np.random.Generator:
        """Generator of a row, by local index."""
        return self.local[row]

    def __len__(self) -> int:
        """Number of rows of this process."""
        return len(self.local)


class ItemStreams:
    """Streams of random numbers for work items, by the numbers that the program gives its items.

    Parameters
    ----------
    declaration : name and seed.
    """

    def __init__(self, declaration: Declaration) -> None:
        self._declaration = declaration

    def of(self, number: int, *more: int) -> np.random.Generator:
        """Return a generator at the beginning of the stream of an item.

        The stream depends on the name, the seed and these numbers only, and not on the process, the
        size or the time of the call. Two calls with the same numbers return two generators that
        draw the same.

        Parameters
        ----------
        number : number of the item.
        more : further numbers, each list of which has a stream of its own. For an item that takes
            several iterations: the iteration.

        Raises
        ------
        ReshapeError : a number is no integer in [0, 2**32).
        """
        try:
            key = tuple(map(index, (number, *more)))
        except TypeError:
            key = (-1,)
        if not all(0 <= each < _ITEMS for each in key):
            text = ", ".join(map(repr, (number, *more)))
            raise ReshapeError(
                f"streams {self._declaration.name!r}, of({text}): expected integers in [0, 2**32)"
            )
        return _generator(self._declaration, *key)


class RankStream:
    """A stream of random numbers for this process at the present size.

    Parameters
    ----------
    declaration : name and seed.
    job : the processes of the job.
    """

    def __init__(self, declaration: Declaration, job: Processes) -> None:
        self._declaration, self._job = declaration, job
        self._generator: np.random.Generator | None = None
        self._epoch = -1

    @property
    def local(self) -> np.random.Generator:
        """Generator of this process; after a resize or a restart, one with another stream."""
        job = self._job
        if self._generator is None or job.epoch != self._epoch:
            # A job that restarts is at a later iteration than when this configuration began.
            self._epoch = job.epoch
            key = job.group, job.epoch, job.done, job.comm.rank
            self._generator = _generator(self._declaration, *key)
        return self._generator
