"""Write the end of a file to the standard output, and append a line to the file.

This file is executed as a script, in a process of its own:

    python -I -S tail.py FILE NOTE

Nothing is appended if NOTE is empty, and nothing is done if FILE is not a regular file.
"""

from __future__ import annotations

import os
import stat
import sys

#: Bytes that are read, at most.
MOST_BYTES = 16 << 10


def main() -> None:
    """Carry out the arguments."""
    path, note = sys.argv[1:]
    # Without O_NONBLOCK, opening a named pipe waits for the other end.
    flags = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode):
        begin = max(0, found.st_size - MOST_BYTES)
        text = os.pread(descriptor, MOST_BYTES, begin)
        if begin:  # the first line is cut
            text = text.partition(b"\n")[2] or text
        os.write(1, text)  # the buffer of a pipe is larger
        if note:
            os.write(descriptor, f"{note}\n".encode())


if __name__ == "__main__":
    try:
        main()
    except OSError:  # the file was removed, or cannot be read
        sys.exit(1)
