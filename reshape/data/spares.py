"""Spare memory: segments whose pages exist before a resize needs them.

The first access to a page of shared memory costs ten to twenty times the copy of its contents,
because the kernel has to find, clear and map the page. A resize that only copies therefore needs
memory that a process has touched before. There are two sources of it:

- segments that a resize has replaced are kept, and the next resize writes into them. This serves
  contractions, which nothing announces;
- a process that learns that an expansion is under way prepares segments of the right size in a
  thread, while the program computes or, in a process that joins, before the group is ready.

A kept segment has the suffix ``.spare`` in the job's shared-memory folder. A prepared one has no
name until a resize uses it, so that nothing remains of processes that die before they have joined.

Memory is bounded: the segments of a process, spare ones included, never exceed what one of its
resizes has needed for the old and the new local parts together.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from threading import Thread

from redistribution import Layout
from reshape.data import segments
from reshape.data.declarations import Declaration
from reshape.data.segments import RankMemory, Segment, bytes_of
from reshape.errors import ReshapeError

log = logging.getLogger(__name__)

_SIZE = attrgetter("size")
#: Smaller segments are not kept: to create one takes less than a millisecond.
SMALLEST_BYTES = 1 << 20
#: A spare segment serves local parts of at least this fraction of its length.
SMALLEST_FRACTION = 0.25
#: Seconds after a resize until its spare segments are given back to the system.
IDLE_S = 300.0


class Spares:
    """The spare memory of one process.

    Parameters
    ----------
    folder : shared-memory folder of the job; None: private memory, and nothing is kept.
    limit_bytes : length of all spare segments together, at most; None: only the bound above.
    """

    def __init__(self, folder: Path | None = None, limit_bytes: int | None = None) -> None:
        self._folder, self._limit = folder, limit_bytes
        self._spares: list[Segment] = []
        self._most = 0  # bytes of old and new local parts in one resize, the most so far
        self._live = 0  # bytes of the segments that hold data
        self._replaced = 0  # bytes of the segments that this resize has replaced
        self._expected: tuple[int, ...] = ()  # sizes for which memory was prepared
        self._hidden = 0  # segments so far; several may have the same array, epoch and rank
        self._used_at = 0.0
        self._thread: Thread | None = None  # at work, unless it has ended

    @property
    def nbytes(self) -> int:
        """Bytes of all spare segments."""
        return _bytes_in(self._spares)

    # ------------------------------------------------------------ before a resize

    def expect(self, sizes: Sequence[int], live: Sequence[Segment]) -> None:
        """Prepare memory in a thread for new local parts of these sizes.

        Parameters
        ----------
        sizes : bytes of the local part of each array after the resize.
        live : segments that hold data.
        """
        large = tuple(size for size in sizes if size >= SMALLEST_BYTES)
        if self._folder is None or self._limit == 0 or large == self._expected:
            return
        self.wait()
        self._expected, self._used_at = large, time.monotonic()
        self._live = _bytes_in(live)
        self._most = max(self._most, self._live + sum(large))
        rest, missing = list(self._spares), list[int]()
        for size in sorted(large, reverse=True):
            fit = min((s for s in rest if _fits(s, size)), key=_SIZE, default=None)
            if fit is None:
                missing.append(size)
            else:
                rest.remove(fit)
        room = self._room() - self.nbytes - sum(missing)
        superfluous = self._take_out(rest, -room)
        if missing or superfluous:
            self._run(superfluous, missing)

    def wait(self) -> None:
        """Wait until the thread has done its work."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    # ------------------------------------------------------------ in a resize

    def segment(self, memory: RankMemory, declaration: Declaration, layout: Layout) -> Segment:
        """Return memory for the new local part of an array, with any contents.

        It is spare memory if there is any that fits, else new memory, with the errors of
        `reshape.data.segments.create`.
        """
        self.wait()
        shape, dtype = layout.local_shape(memory.rank), declaration.element_type
        size = bytes_of(shape, dtype)
        fits = [s for s in self._spares if _fits(s, size) and _is_free(s)]
        for spare in sorted(fits, key=_SIZE):
            self._spares.remove(spare)
            assert memory.folder is not None
            assert spare.mapping is not None
            spare.rename(memory.folder / memory.file_name(declaration.name))
            if spare.path is not None:
                array = spare.mapping.array(shape, dtype, declaration.order)
                return Segment(array, spare.path, spare.mapping)
            spare.discard()
        return segments.create(memory, declaration, layout)

    def keep(self, segment: Segment) -> None:
        """Keep a segment that holds no data any more, unless it is small or private."""
        segment.array.flags.writeable = False
        self._replaced += segment.size
        if segment.path is None or self._folder is None or segment.size < SMALLEST_BYTES:
            segment.discard()
            return
        self.hide(segment)
        if segment.path is not None:
            self._spares.append(segment)

    def hide(self, segment: Segment) -> None:
        """Give the file of a segment a new name, under which no restart finds it."""
        if segment.path is not None:
            self._hidden += 1
            name = segment.path.name.removesuffix(segments.SPARE)
            segment.rename(segment.path.with_name(f"{self._hidden}.{name}{segments.SPARE}"))

    def settle(self, live: Sequence[Segment]) -> None:
        """End a resize: a thread gives back what exceeds the bounds.

        Parameters
        ----------
        live : segments that hold data.
        """
        self._expected, self._used_at = (), time.monotonic()
        self._live = _bytes_in(live)
        self._most = max(self._most, self._replaced + self._live)
        self._replaced = 0
        if excess := self._take_out(self._spares, self.nbytes - self._room()):
            self.wait()
            self._run(excess, [])

    def release_if_idle(self) -> None:
        """Give everything back if there was no resize for a while."""
        if self._spares and time.monotonic() - self._used_at > IDLE_S:
            self.wait()
            self._expected = ()
            self._run(self._take_out(self._spares, self.nbytes), [])

    def close(self) -> None:
        """Give everything back, when the thread has done its work."""
        self.wait()
        while self._spares:
            self._spares.pop().discard()

    # ------------------------------------------------------------ helpers

    def _room(self) -> int:
        """Bytes of spare memory that may be kept."""
        room = self._most - self._live
        return room if self._limit is None else min(room, self._limit)

    def _take_out(self, candidates: Sequence[Segment], excess: int) -> list[Segment]:
        """Take spares of at least `excess` bytes out of the list, the smallest ones first.

        A large one serves more sizes.
        """
        out = list[Segment]()
        for spare in sorted(candidates, key=_SIZE):
            if excess <= 0:
                break
            self._spares.remove(spare)
            out.append(spare)
            excess -= spare.size
        return out

    def _run(self, superfluous: list[Segment], missing: Sequence[int]) -> None:
        thread = Thread(None, self._exchange, "reshape-spares", (superfluous, missing))
        try:
            thread.start()
        except RuntimeError as error:  # the account has too many threads
            log.debug("no memory is prepared: %s", error)
            self._exchange(superfluous, [])
        else:
            self._thread = thread

    def _exchange(self, superfluous: list[Segment], missing: Sequence[int]) -> None:
        """Give memory back, then prepare memory; runs in the thread."""
        while superfluous:
            superfluous.pop().discard()
        assert self._folder is not None
        try:
            for size in missing:
                self._spares.append(segments.prepare(self._folder, size))
        except (OSError, ReshapeError) as error:  # the resize will say what is missing
            log.debug("no memory was prepared: %s", error)


def _is_free(spare: Segment) -> bool:
    """Whether the program holds no reference to the array that was there.

    Writing through a view that a program has kept would change the data of another array.
    """
    return sys.getrefcount(spare.array) == 2


def _fits(spare: Segment, size: int) -> bool:
    return SMALLEST_FRACTION * spare.size <= size <= spare.size


def _bytes_in(segments: Sequence[Segment]) -> int:
    """Bytes of the files of segments."""
    return sum(segment.size for segment in segments)
