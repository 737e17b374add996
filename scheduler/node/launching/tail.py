"""Write the end of a file to the standard output, and append a line to the file.

This file is executed as a script, in a process of its own:

    python -I -S tail.py FILE NOTE [OTHER]

The first line that is written is the number, from 0, of the first one of FILE and OTHER whose file
system has no room, and empty if both have.

Nothing is appended if NOTE is empty. Nothing is done if FILE is not a regular file, or is one of
the service or of another user (`job_paths`): the job may have replaced its output by a link.
"""

from __future__ import annotations

import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING or __package__:
    from scheduler.node.launching import job_paths
else:  # importing the package takes longer than all that is done here
    sys.path.append(os.path.dirname(__file__))
    import job_paths

#: Bytes that are read, at most.
MOST_BYTES = 16 << 10
#: A file system has no room if fewer bytes are free; mpiexec writes as many at a time.
LEAST_ROOM = 64 << 10


def main() -> None:
    """Carry out the arguments."""
    path, note, *others = sys.argv[1:]
    full = [str(k) for k, file in enumerate((path, *others)) if lacks_room(file)]
    os.write(1, "".join([*full[:1], "\n"]).encode())
    own = os.environ.get(job_paths.VARIABLE, "").splitlines()
    descriptor = job_paths.open_output(path, os.O_RDWR | os.O_APPEND, 0, own)
    status = os.fstat(descriptor)
    if not job_paths.is_null(status):
        begin = max(0, status.st_size - MOST_BYTES)
        text = os.pread(descriptor, MOST_BYTES, begin)
        if begin:  # the first line is cut
            text = text.partition(b"\n")[2] or text
        os.write(1, text)  # the buffer of a pipe is larger
        if note:
            os.write(descriptor, f"{note}\n".encode())


def lacks_room(path: str) -> bool:
    """Whether a regular file can hardly grow."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        space = os.statvfs(path)
    except OSError:
        return False
    free = space.f_bavail if os.geteuid() else space.f_bfree
    return bool(space.f_blocks) and free * space.f_frsize < LEAST_ROOM


if __name__ == "__main__":
    try:
        main()
    except OSError:  # the file was removed, or cannot be read
        sys.exit(1)
