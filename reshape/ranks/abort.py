"""The output of a rank, what is said of an error, and the end of a program after it.

mpiexec joins the output of all ranks. A pipe is buffered by blocks, so mpiexec would put parts of
lines between one another; with PYTHONUNBUFFERED=1 text and newline of a `print` are separate
writes, too.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import time
import traceback
from collections.abc import Sequence
from io import TextIOWrapper
from types import TracebackType
from typing import NoReturn

from mpi4py import MPI

from reshape.errors import ReshapeError
from reshape.ranks.derived import explain, innermost
from reshape.ranks.world import NOTE, WORLD, is_retired
from reshape.wire.link import Link


def write_whole_lines() -> None:
    """Write each line of standard output and error at once, when it ends."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # not a stream that the program has put there
            stream.reconfigure(line_buffering=True, write_through=False)


def show_crashes() -> None:
    """Let a signal that ends this process, as SIGSEGV, print where its threads are first.

    Until the interpreter ends; a handler that the MPI library has installed is called next.
    """
    if not faulthandler.is_enabled():
        faulthandler.enable(2)  # `sys.stderr` may have no file


_FORWARD_S = 0.3  # for mpiexec to forward the output before the abort
_RANK_0_FIRST_S = 0.6  # head start of rank 0, so that it prints an error of all ranks
_ABORTED_S = 10.0
_MOST_CHARACTERS = 500
_READ_ONLY = "read-only"
_APART = (
    "a message was longer than its receiver expected: all ranks make the same collective calls in "
    "the same order, among them gather, save, exchange, and each step of app.iterations"
)


def abort(error: BaseException, link: Link | None) -> NoReturn:
    """Print the error and abort this process's world, whose other ranks may wait for this one.

    Connected worlds are not aborted: the process that started them has to end them. An error that
    occurs on every rank is printed once. The exit code is 1, or that of a SystemExit.
    """
    if WORLD.rank != 0:
        time.sleep(_RANK_0_FIRST_S)
    code = 1
    if isinstance(error, SystemExit):
        if isinstance(error.code, int):
            code = error.code
        else:
            print(error.code, file=sys.stderr)
    elif isinstance(error, ReshapeError):
        print(f"reshape: error: {_with_place(error)}", file=sys.stderr)
    else:
        traceback.print_exception(error)
    tell(link, error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or without a reader
            stream.flush()
    time.sleep(_FORWARD_S)
    WORLD.Abort(code)
    time.sleep(_ABORTED_S)  # Abort of MPICH 5 returns; mpiexec ends the process
    os._exit(code)


def tell(link: Link | None, error: BaseException) -> None:
    """Report an error to the service, which names it as the reason of the end of the group."""
    why = describe(error)
    if link is not None and why:
        link.fault(why)


def describe(error: BaseException) -> str:
    """Describe an error in one line with its notes; empty for an exit code."""
    if isinstance(error, SystemExit):
        text = error.code if isinstance(error.code, str) else ""
    elif isinstance(error, ReshapeError):
        text = _with_place(error)
    else:
        lines = traceback.format_exception_only(error)
        text = lines[-1] if isinstance(error, SyntaxError) else lines[0]
    first = text.strip().split("\n")[0].removesuffix(", error stack:")
    return "; ".join([first, *getattr(error, "__notes__", ())])[:_MOST_CHARACTERS]


def _with_place(error: ReshapeError) -> str:
    """Return an error, which is shown without a traceback, with the line of the program."""
    frame, line = innermost(error.__traceback__)
    return str(error) if frame is None else f"{error} ({frame.f_code.co_filename}:{line})"


def explain_later_errors(link: Link | None) -> None:
    """Let an error of MPI.COMM_WORLD that ends the program after its block say what to use."""
    if not is_retired():
        return
    hook = sys.excepthook

    def explain(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        add_notes(error)
        tell(link, error)
        hook(kind, error, trace)

    sys.excepthook = explain


# ---------------------------------------------------------------- notes


def add_notes(error: BaseException, earlier: Sequence[tuple[str, object]] = ()) -> None:
    """Add to an error notes that say what to do.

    They are about what belongs to an earlier size of the job, and about ranks that make different
    collective calls.

    Parameters
    ----------
    earlier : names of arrays, with their local parts of before a resize that something refers to.
    """
    _explain_stale(error, earlier)
    if explain(error):
        return
    cause: BaseException | None = error
    while cause is not None:
        kind = cause.Get_error_class() if isinstance(cause, MPI.Exception) else MPI.SUCCESS
        if kind in (MPI.ERR_COMM, MPI.ERR_TRUNCATE):
            note = NOTE if is_retired() else ""
            note = _APART if kind == MPI.ERR_TRUNCATE else note
            if note and note not in getattr(error, "__notes__", ()):
                error.add_note(note)
            return
        cause = cause.__cause__ or cause.__context__


def _explain_stale(error: BaseException, earlier: Sequence[tuple[str, object]]) -> None:
    """Add to an error of a write to an earlier local part a note that says what to use.

    NumPy's message does not say which array is read-only. The arrays remember their earlier local
    parts as long as something refers to them, and the variables of the functions that the error has
    passed are compared with these.
    """
    if not isinstance(error, ValueError) or _READ_ONLY not in str(error) or not earlier:
        return
    stale = {
        f"variable {variable!r} is array {name!r}"
        for frame, _ in traceback.walk_tb(error.__traceback__)
        for variable, value in (*frame.f_globals.items(), *frame.f_locals.items())
        for name, part in earlier
        if value is part
    }
    what = ", ".join(sorted(stale)) or "it may be a registered array"
    error.add_note(
        f"{what} of before a resize, which is read-only: read `local` again in each iteration"
    )
