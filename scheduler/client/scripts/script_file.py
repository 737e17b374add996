"""Job scripts: the lines with options before the first command, and the command that runs them.

Options are in comments that begin with ``#RESHAPE`` or ``#SBATCH``, before the first line that is
neither empty nor a comment. Those of ``#SBATCH`` are translated (`slurm_options`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from reshape.errors import ReshapeError
from scheduler.client.scripts.slurm_options import translated
from scheduler.launchers.arguments import LONGEST_TEXT

#: Bytes of a script that is copied: it is an argument of its interpreter (execve(2)).
MOST_BYTES = LONGEST_TEXT - 1
OWN, SLURM = "#RESHAPE", "#SBATCH"
#: Interpreters that take a program as an argument after this option, so that it is copied.
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh", "ash")
_OPTION = "-c"


class JobScript(NamedTuple):
    """A script that was read.

    Attributes
    ----------
    path : of the file; "" if the command line has the script.
    text : its contents.
    words : options of its lines, those of Slurm translated, as on the command line of submit.
    ignored : options of Slurm without a meaning here.
    late : numbers of lines with options that have no effect, because a command precedes them.
    sizes : values of the options of Slurm that say how many processors the job has.
    """

    path: str
    text: str
    words: list[str]
    ignored: list[str]
    late: list[int]
    sizes: dict[str, int]

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the program and arguments that run the script.

        Scripts of a shell or of Python are copied into the command, so that the file may change
        after the submission. Other interpreters read the file when the job starts.

        Raises
        ------
        ReshapeError : a script that is copied is too large.
        """
        first = self.text.split("\n", 1)[0]
        interpreter = first.removeprefix("#!").split(None, 1)
        name = interpreter[-1] if Path(interpreter[0]).name == "env" else interpreter[0]
        name = Path(name.split()[0]).name
        if name in _SHELLS or name.startswith("python"):
            self._check_size()
        if name in _SHELLS:
            return [*interpreter, _OPTION, self.text, self.path or "wrap", *arguments]
        if name.startswith("python"):
            return [*interpreter, _OPTION, self.text, *arguments]
        return [*interpreter, str(Path(self.path).absolute()), *arguments]

    def _check_size(self) -> None:
        size = len(self.text.encode())
        if size > MOST_BYTES:
            raise ReshapeError(
                f"{self.path or '--wrap'} has {size} bytes, and a script has at most {MOST_BYTES}:"
                " put data and further programs into files of their own"
            )


def read_script(path: Path) -> JobScript:
    """Read a script and its options.

    Raises
    ------
    ReshapeError : the file cannot be read or is no script, or a line with options is invalid.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ReshapeError(f"cannot read the script {path}: {error.strerror}") from None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ReshapeError(f"{path} is not UTF-8 text: it is no script") from None
    return script_of_text(str(path), text)


def script_of_text(path: str, text: str) -> JobScript:
    """Read the options of a script.

    Parameters
    ----------
    path : of its file, for messages.

    Raises
    ------
    ReshapeError : it is no script, or a line with options is invalid.
    """
    if "\r\n" in text:
        line = text[: text.index("\r\n")].count("\n") + 1
        raise ReshapeError(
            f"{path}:{line}: the line ends as in DOS, with a carriage return: convert the file, by"
            f" sed -i 's/\\r$//' {path}"
        )
    if not text.startswith("#!") or not text.split("\n", 1)[0][2:].strip():
        what = path or "the script"
        raise ReshapeError(f"{what} does not begin with an interpreter: write #!/bin/bash first")
    return _with_options(path, text)


def wrapped(command: str) -> JobScript:
    """Make a script of one command for the shell."""
    return JobScript("", f"#!/bin/sh\n{command}\n", [], [], [], {})


def _with_options(path: str, text: str) -> JobScript:
    words: list[str] = []
    ignored: list[str] = []
    late: list[int] = []
    sizes: dict[str, int] = {}
    for number, prefix, line, is_late in _option_lines(text):
        if is_late:
            late.append(number)
            continue
        try:
            found = shlex.split(line, comments=True)
            if prefix == SLURM:
                found, without_meaning, requested = translated(found)
                ignored += without_meaning.values()
                sizes |= requested
        except ValueError as error:
            raise ReshapeError(f"{path}:{number}: {error}") from None
        words += found
    return JobScript(path, text, words, ignored, late, sizes)


def _option_lines(text: str) -> Iterator[tuple[int, str, str, bool]]:
    """Yield number, prefix and rest of each line with options, and whether it is too late."""
    has_begun = False
    for number, line in enumerate(text.split("\n"), 1):
        prefix = next((each for each in (OWN, SLURM) if line.startswith(f"{each} ")), None)
        if prefix is not None:
            yield number, prefix, line[len(prefix) :], has_begun
        elif line.strip() and not line.lstrip().startswith("#"):
            has_begun = True
