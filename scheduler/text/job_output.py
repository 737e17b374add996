"""The output files of jobs: their names, and their last lines.

The names have the placeholders of Slurm's `sbatch`.

==============  ====================================================
``%j``          number of the job
``%A``          number of its array, if it is a task; otherwise of the job
``%{JOB_ID}``   number of the job; 17_4 of task 4 of array 17
``%J``          the same; 17.0 of step 0 of job 17
``%s``          index of a step in its job; otherwise 0
``%a``          index of a task in its array; otherwise 0
``%t``          0: there is one file for a job
``%x``, ``%u``  name of the job, and of its user
``%N``          short name of the host that starts the processes
``%%``          a percent sign
==============  ====================================================

A number between the percent sign and the letter is the least number of digits, as in ``%4j``.

Escape sequences and other characters that are not printable are removed from the last lines, so
that the output of a program cannot control the terminal on which another user reads it. The lines
that mpiexec prints at the end of a process are left out: the exit code has the same information,
and they would hide the lines of the program.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from reshape.errors import ReshapeError

_PLACEHOLDER = re.compile(r"%(?:\{JOB_ID\}|(\d*)([jJAastxuN%]))")
_ANY = re.compile(r"%(?:\{JOB_ID\}|(\d*)([A-Za-z%]))", re.ASCII)
#: The most digits to which a number is filled up.
_DIGITS = 10
_KNOWN = "%j %J %A %a %s %t %x %u %N %% and %{JOB_ID}"


def check_output_name(text: str, what: str = "output") -> None:
    """Refuse an empty name, and one with an unknown placeholder.

    Parameters
    ----------
    what : the file, for the message.

    Raises
    ------
    ReshapeError : the message names the placeholder.
    """
    if not text:
        raise ReshapeError(f"the name of the {what} is empty: name a file, or leave it out")
    unknown = _PLACEHOLDER.sub("", text).find("%")
    if unknown < 0:
        return
    wrong = _PLACEHOLDER.sub("", text)[unknown : unknown + 2]
    raise ReshapeError(f"the {what} {text!r} has the placeholder {wrong!r}: known are {_KNOWN}")


def filled(text: str, values: Mapping[str, int | str]) -> str:
    """Replace placeholders in the name of an output file; others stay as they are.

    Parameters
    ----------
    values : of letters, and of "" for ``%{JOB_ID}``; numbers are filled up to the least digits.
    """

    def value(match: re.Match[str]) -> str:
        digits, letter = match.groups(default="")
        own = values.get(letter, match.group())
        return own if isinstance(own, str) else str(own).zfill(min(int(digits or 0), _DIGITS))

    return _ANY.sub(value, text)


def output_name(
    text: str, *, job: int, name: str, user: str, host: str = "", is_array: bool = False
) -> str:
    """Return the name of an output file; of an array that of its tasks, with placeholders.

    Parameters
    ----------
    text : the name as submitted; what is no placeholder stays as it is.
    host : that of the processes, of which the part before the first dot is used; "": it is not
        known, and `%N` stays.
    """
    texts = {"x": name, "u": user, "N": host.partition(".")[0] or "%N", "%": "%"}
    words = {letter: word.replace("/", "_") for letter, word in texts.items()}
    numbers = {"A": job, "s": 0, "t": 0}
    if is_array:
        return filled(text, {**words, **numbers, "": f"{job}_%a"})
    return filled(text, {**words, **numbers, "": job, "j": job, "J": job, "a": 0})


def task_output(text: str, array: int, index: int) -> str:
    """Replace the placeholders of an array and an index in the name of an output file."""
    return filled(text, {"": f"{array}_{index}", "A": array, "a": index})


def step_output(text: str, job: int, label: str) -> str:
    """Replace the placeholders of the job and the index in the name of a step's output file.

    Parameters
    ----------
    job : number of the job of the step.
    label : the step as users write it, 17.0.
    """
    index = int(label.rpartition(".")[2])
    return filled(text, {"": label, "J": label, "j": job, "s": index})


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
#: What the agent appends to the output of a group that it has ended, also in an earlier start.
_WERE_ENDED = re.compile(r"reshape: the processes of group \d+ were ended: ")


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

    Returns
    -------
    "" if the program has said nothing.
    """
    told = [line for line in lines.split("\n") if not _WERE_ENDED.match(line)] or [""]
    if _TRACEBACK in told:
        begin = len(told) - told[::-1].index(_TRACEBACK)
        exception = next((line for line in told[begin:] if not line.startswith(" ")), "")
        if exception:
            return exception
    return next((line for line in reversed(told) if not _ABORT.match(line)), told[-1])
