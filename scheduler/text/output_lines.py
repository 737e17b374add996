"""The last lines of a program's output, made fit for tables and terminals.

Escape sequences and other characters that are not printable are removed, so that what a program
prints cannot control the terminal of those who read about its job. What mpiexec prints about the
end of a process is left out: the exit code says it, and it would hide the lines of the program.
"""

from __future__ import annotations

import re

#: Lines that are kept, and characters of each.
MOST_LINES, WIDTH = 10, 200
#: Escape sequences (ECMA-48): strings such as titles, control sequences such as colours, others.
_ESCAPES = re.compile(
    r"\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]?", re.DOTALL
)
#: What hydra prints when a process fails or is ended.
_MPIEXEC = re.compile(
    r"={40,}|=   (?:BAD TERM|PID|EXIT CODE|CLEANING|YOU CAN)|YOUR APPLICATION TERMINATED WITH|"
    r"This typically refers to a problem with|Please see the FAQ page|\[(?:mpiexec|proxy)[@:]"
)
_TRACEBACK = "Traceback (most recent call last):"
_ABORT = re.compile(r"Abort\(-?\d+\) on node ")


def last_lines(text: str) -> str:
    """Return the last lines of an output, at most `MOST_LINES` of `WIDTH` characters."""
    lines = [_plain(line) for line in _ESCAPES.sub("", text).split("\n")]
    lines = [line for line in lines if line.strip() and not _MPIEXEC.match(line)]
    return "\n".join(lines[-MOST_LINES:])


def _plain(line: str) -> str:
    """Return what a terminal would show of a line: what follows the last carriage return."""
    shown = line.rstrip("\r").rpartition("\r")[2].expandtabs(4)
    shown = "".join(character for character in shown if character.isprintable()).rstrip()
    return shown if len(shown) <= WIDTH else f"{shown[: WIDTH - 3]}..."


def error_line(lines: str) -> str:
    """Return the line that says what went wrong: the exception of a traceback, else the last line.

    Parameters
    ----------
    lines : as `last_lines` returns them.
    """
    told = lines.split("\n")
    if _TRACEBACK in told:
        begin = len(told) - told[::-1].index(_TRACEBACK)
        exception = next((line for line in told[begin:] if not line.startswith(" ")), "")
        if exception:
            return exception
    return next((line for line in reversed(told) if not _ABORT.match(line)), told[-1])
