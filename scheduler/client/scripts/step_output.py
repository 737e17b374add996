"""Where the output of a step goes that has no file of its own: to that of `reshape run`.

The same holds for its standard error. If that of `reshape run` is a file, the step appends to it by
itself. For a pipe or a terminal, the step writes to a file in the working directory, which
`reshape run` follows and removes. The `srun` of `reshape slurm-commands` does so for its jobs.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
            while part:
                part = part[os.write(self._descriptor, part) :]

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
