"""What a program makes for one size of its job, and closes before the size changes.

A function of `reshape.app.Application.each_size` has one ``yield``. The code above it opens
communicators, files, windows and requests; the code below it closes them. All processes run either
part together, so both may be collective.

The generator is never finalised before it has run to its end: its ``finally`` clauses may call
collective functions, for which the other ranks do not wait after an error. The interpreter
finalises a generator when the last reference to it is gone, so each one has a reference that is
dropped only when the generator has ended.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from mpi4py import MPI

from reshape.errors import ReshapeError
from reshape.ranks.derived import free, owned_by

_Value = TypeVar("_Value")

_CLOSED = (
    "{0}() is called while {0} is closed: it has a value from the start of the first loop of "
    "app.iterations() until the end of the block 'with reshape.application()'; call it in the loop"
)
_ONE_YIELD = (
    "{} of app.each_size {}: it needs one yield, with the code that opens above it and the code "
    "that closes below it"
)


class ClosingError(Exception):
    """A function of `app.each_size` failed while it closed; its cause is the error.

    The ranks cannot continue together: others may have closed, or wait in a collective call.
    """


class EachSize(Generic[_Value]):
    """A function of `app.each_size`. Calling it returns its value at the present size.

    Parameters
    ----------
    function : generator function of the communicator of the job, with one ``yield``.

    Raises
    ------
    ReshapeError : it is not a generator function.
    """

    def __init__(self, function: Callable[[MPI.Intracomm], Iterator[_Value]]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self.name = str(getattr(function, "__qualname__", function))
        if not inspect.isgeneratorfunction(inspect.unwrap(function)):
            raise ReshapeError(_ONE_YIELD.format(self.name, "has no yield"))
        self._generator: Iterator[_Value] | None = None
        self._values: list[_Value] = []  # the present one, if it is open

    def __call__(self) -> _Value:
        """Return the value at the present size; call it again in each iteration.

        Raises
        ------
        ReshapeError : it is closed.
        """
        if not self._values:
            raise ReshapeError(_CLOSED.format(self.name))
        return self._values[0]

    @property
    def is_open(self) -> bool:
        """Whether it has a value."""
        return self._generator is not None

    def open(self, comm: MPI.Intracomm) -> None:
        """Collective over comm. Run the function up to its ``yield``.

        Raises
        ------
        ReshapeError : it ended without a ``yield``.
        """
        generator = self._function(comm)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(generator))
        with owned_by(self):
            for value in generator:
                self._generator, self._values = generator, [value]
                return
        raise ReshapeError(_ONE_YIELD.format(self.name, "ends without a yield"))

    def close(self) -> None:
        """Collective over the processes that opened it. Run the rest, free derived communicators.

        Raises
        ------
        ClosingError : it raised an exception, or has a second ``yield``.
        """
        assert self._generator is not None
        generator, self._generator = self._generator, None
        self._values.clear()
        try:
            with owned_by(self):
                for _ in generator:
                    raise ReshapeError(_ONE_YIELD.format(self.name, "has a second yield"))
            free(self)
        except SystemExit as end:  # which would end this rank alone, perhaps as a success
            why = f"{self.name} of app.each_size exits with {end.code!r} while it closes"
            raise ClosingError from ReshapeError(why)
        except BaseException as error:
            error.add_note(f"raised by {self.name} of app.each_size while it closed")
            raise ClosingError from error
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(generator))
