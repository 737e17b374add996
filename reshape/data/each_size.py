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
import gc
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Generic, TypeVar

from mpi4py import MPI

from reshape.errors import ReshapeError

_Value = TypeVar("_Value")

_CLOSED = (
    "{0}() is called while {0} is closed: it has a value from the start of the first loop of "
    "app.iterations() until the end of the block 'with reshape.application()'; call it in the loop"
)
_ONE_YIELD = (
    "{} of app.each_size {}: it needs one yield, with the code that opens above it and the code "
    "that closes below it"
)

#: Methods that derive communicators, and the types of mpi4py that define them. Communicators with
#: other programs, as of Spawn and Accept, are not derived: they end by Disconnect.
_DERIVE = {
    MPI.Comm: "Dup Dup_with_info Clone Idup Idup_with_info Create Split Split_type",
    MPI.Intracomm: "Create_group Create_from_group Create_cart Create_graph Create_dist_graph "
    "Create_dist_graph_adjacent Create_intercomm",
    MPI.Cartcomm: "Sub",
    MPI.Intercomm: "Create_from_groups Merge",
}


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
        self._derived = _Derived()

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
        with self._derived.noted():
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
            with self._derived.noted():
                for _ in generator:
                    raise ReshapeError(_ONE_YIELD.format(self.name, "has a second yield"))
            self._derived.free()
        except SystemExit as end:  # which would end this rank alone, perhaps as a success
            why = f"{self.name} of app.each_size exits with {end.code!r} while it closes"
            raise ClosingError from ReshapeError(why)
        except BaseException as error:
            error.add_note(f"raised by {self.name} of app.each_size while it closed")
            raise ClosingError from error
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(generator))


class _Derived:
    """Communicators that a function has derived and not freed.

    The program may free a communicator by a copy of its handle, as ``MPI.Intracomm(comm)`` makes
    one. MPI calls the delete function of an attribute when the communicator is freed by any handle.
    """

    _numbers = count()
    _keyval = MPI.KEYVAL_INVALID

    def __init__(self) -> None:
        self._comms: dict[int, MPI.Comm] = {}  # in the order of their creation

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the communicators that are derived within the block."""
        replaced = []
        for kind, names in _DERIVE.items():
            methods = gc.get_referents(vars(kind))[0]  # mpi4py's types refuse setattr
            for name in names.split():
                replaced.append((kind, methods, name, methods[name]))
                methods[name] = self._noting(methods[name])
            ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
        try:
            yield
        finally:
            for kind, methods, name, method in replaced:
                methods[name] = method
                ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))

    def free(self) -> None:
        """Collective over each of them. Free them, the last one first."""
        for comm in reversed(list(self._comms.values())):
            if comm != MPI.COMM_NULL:
                comm.Free()
        self._comms.clear()

    def _noting(self, method: Any) -> Any:
        """Return the method, which also notes its result."""
        if isinstance(method, classmethod):
            return classmethod(self._noting(method.__func__))

        @functools.wraps(method)
        def derive(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            if isinstance(result, tuple):  # of Idup, with a request that is not complete
                self._comms[next(self._numbers)] = result[0]
            elif result != MPI.COMM_NULL:
                self._note(result)
            return result

        return derive

    def _note(self, comm: MPI.Comm) -> None:
        if _Derived._keyval == MPI.KEYVAL_INVALID:
            _Derived._keyval = MPI.Comm.Create_keyval(delete_fn=_forget)
        number = next(self._numbers)
        self._comms[number] = comm
        comm.Set_attr(_Derived._keyval, (self._comms, number))


def _forget(comm: MPI.Comm, keyval: int, noted: tuple[dict[int, MPI.Comm], int]) -> None:
    """Drop a communicator that is being freed."""
    comms, number = noted
    comms.pop(number, None)
