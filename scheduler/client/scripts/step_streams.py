"""The standard input and outputs of `srun` and `reshape run`, for the processes that they start.

They go through files that the hosts of a job share. A standard input that is a file is read by the
processes themselves. That of a pipe or a terminal is copied into a file in the working directory,
which the processes follow; the file is read-only when it is complete. Nothing is copied from
/dev/null, nor from a terminal in the background.

If the output of `reshape run` is a file, and the step has none of its own, the step appends to it
by itself. For a pipe or a terminal, the step writes to a file in the working directory, which
`reshape run` follows and removes. The same holds for the standard error.

    python -P -m scheduler.client.scripts.step_streams SOURCE PROGRAM [ARGUMENT]...

is a process of a program of which the first process gets the input, as under an mpiexec.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread


class StepOutput:
    """The standard output of this process, or its standard error, as that of a step.

    Parameters
    ----------
    cwd : working directory of the step.
    descriptor : 1 or 2.

    Attributes
    ----------
    path : file to which the step has to append.
    """

    def __init__(self, cwd: Path, descriptor: int) -> None:
        self._descriptor = descriptor
        self._spool: int | None = None
        own = own_file(descriptor)
        if own is not None:
            self.path = own
            return
        folder = cwd if os.access(cwd, os.W_OK) else None
        self._spool, path = tempfile.mkstemp(".out", ".reshape-run-", folder)
        self.path = Path(path)

    @property
    def name(self) -> str:
        """The path as the name of an output file, in which a percent sign is doubled."""
        return str(self.path).replace("%", "%%")

    def copy(self) -> None:
        """Copy what the step has written meanwhile, if it does not write to the output itself.

        Raises
        ------
        BrokenPipeError : the process that read the output has closed the pipe.
        """
        if self._spool is None:
            return
        while part := os.read(self._spool, 1 << 16):
            _write(self._descriptor, part)

    def close(self) -> None:
        """Remove the file that was followed; what follows this process writes behind the output."""
        if self._spool is not None:
            os.close(self._spool)
            self.path.unlink(missing_ok=True)
        elif str(self.path) != os.devnull:
            os.lseek(self._descriptor, 0, os.SEEK_END)


def own_file(descriptor: int) -> Path | None:
    """Path of the file that a descriptor of this process is; None if it is none that has a path."""
    try:
        status = os.fstat(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        is_file = stat.S_ISREG(status.st_mode) or str(path) == os.devnull
        return path if is_file and os.path.samestat(path.stat(), status) else None
    except OSError:  # it is closed, or its file was removed
        return None


def has_own_error() -> bool:
    """Whether the standard error of this process goes elsewhere than its standard output."""
    try:
        return not os.path.samestat(os.fstat(1), os.fstat(2))
    except OSError:  # one of them is closed
        return False


@contextmanager
def own_outputs(*, error: bool) -> Iterator[list[StepOutput]]:
    """Give the standard output of this process to a step, and its standard error if it differs.

    Parameters
    ----------
    error : whether the step gets the standard error, too.
    """
    outputs = [StepOutput(Path.cwd(), 1)]
    try:
        if error and has_own_error():
            outputs.append(StepOutput(Path.cwd(), 2))
        yield outputs
    finally:
        for output in outputs:
            output.close()


def files_of(outputs: list[StepOutput]) -> dict[str, str]:
    """Fields of the submission of a step that writes to these outputs."""
    names = zip(("output", "error"), outputs, strict=False)
    return {"open_mode": "append"} | {name: output.name for name, output in names}


#: Milliseconds between two looks at a file that grows.
LOOK_MS = 50


@contextmanager
def own_input() -> Iterator[str]:
    """Give the standard input of this process to others; yield what `open_input` takes.

    It is "" if there is none.
    """
    if not _has_input():
        yield ""
        return
    own = own_file(0)
    if own is not None:
        yield f"{os.lseek(0, 0, os.SEEK_CUR)}:{own}"
        os.lseek(0, 0, os.SEEK_END)  # all of it was given away
        return
    folder = Path.cwd() if os.access(".", os.W_OK) else None
    spool, path = tempfile.mkstemp(".in", ".reshape-run-", folder)
    Thread(target=_copy, args=(spool,), daemon=True).start()
    try:
        yield f":{path}"
    finally:
        Path(path).unlink(missing_ok=True)


def _has_input() -> bool:
    try:
        if os.path.samestat(os.fstat(0), Path(os.devnull).stat()):
            return False
        return not os.isatty(0) or os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # it is closed
        return False


def _copy(spool: int) -> None:
    """Copy the standard input into a file."""
    while part := os.read(0, 1 << 16):
        _write(spool, part)
    os.fchmod(spool, stat.S_IRUSR)
    os.close(spool)


def _write(descriptor: int, part: bytes) -> None:
    while part:
        part = part[os.write(descriptor, part) :]


def open_input(source: str) -> int:
    """Open an input in a process that gets it, and return the descriptor.

    Raises
    ------
    OSError : the file cannot be opened.
    """
    begin, _, path = source.partition(":")
    file = os.open(path, os.O_RDONLY)
    if begin or not os.fstat(file).st_mode & stat.S_IWUSR:
        os.lseek(file, int(begin or 0), os.SEEK_SET)
        return file
    get, put = os.pipe()
    child = os.fork()
    if child == 0:
        if os.fork() == 0:  # the program is not to have a child that it does not know
            _feed(file, put)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(file)
    os.close(put)
    return get


def _feed(file: int, put: int) -> None:
    """Copy a file that grows into a pipe, until it is complete or the pipe has no reader."""
    os.dup2(file, 0)
    os.dup2(put, 1)
    os.closerange(2, max(file, put) + 100)  # readers of the output wait until they are closed
    poll = select.poll()
    poll.register(1, 0)
    with suppress(OSError):
        while True:
            is_complete = not os.fstat(0).st_mode & stat.S_IWUSR
            part = os.read(0, 1 << 16)
            _write(1, part)
            if not part and (is_complete or poll.poll(LOOK_MS)):
                return


def for_first(source: str, argv: Sequence[str]) -> list[str]:
    """Return the command of a program whose first process gets an input."""
    return [sys.executable, "-P", "-m", __spec__.name, source, *argv]


def main(source: str, argv: Sequence[str]) -> None:
    """Become a program, of which the first process gets the input."""
    is_first = os.environ.get("PMI_RANK", "0") == "0" and os.environ["RESHAPE_ROLE"] != "join"
    try:
        os.dup2(open_input(source) if is_first else os.open(os.devnull, os.O_RDONLY), 0)
        os.execvp(argv[0], [*argv])
    except OSError as error:
        sys.exit(f"reshape: cannot start {argv[0]}: {error}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
