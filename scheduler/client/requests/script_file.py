"""Job scripts: their options, the command that runs them, and the submission.

Options are in comments that begin with ``#RESHAPE`` or ``#SBATCH``, before the first line that is
neither empty nor a comment.

Options of Slurm's sbatch are translated into the words of ``reshape submit`` and read as such. The
names are those of sbatch(1). An option without a counterpart here is named and left out. The
options that say how many processors a job has belong together and may be on several lines, so their
values are collected (`processors`).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import click

from reshape.errors import ReshapeError
from reshape.key_values import whole_number
from reshape.times import parse_duration
from scheduler.client.options import is_given
from scheduler.client.requests.job_options import OF_RESIZABLE, option_reader
from scheduler.client.requests.slurm_manual import SBATCH
from scheduler.client.requests.submission import prepare
from scheduler.node.launching.job_command import MOST_BYTES, check_script, check_size
from scheduler.protocol.messages import Submission

OWN, SLURM = "#RESHAPE", "#SBATCH"
_OPTIONS = re.compile(rf"^({OWN}|{SLURM}) (.*)$", re.MULTILINE)
#: The begin of a line that is neither empty nor a comment.
_COMMAND = re.compile(r"^[^\S\n]*[^\s#]", re.MULTILINE)
#: Options of sbatch with a value, and without one, that submit has too.
_SAME = (
    *("output", "error", "partition", "dependency", "begin", "chdir", "reservation", "signal"),
    *("constraint", "array", "open-mode", "time", "job-name"),
)
_FLAGS = ("hold", "requeue", "no-requeue", "exclusive")
#: Options of sbatch that have another name here.
_RENAMED = {"time": "walltime", "job-name": "name"}
#: Options that say how many processors a job has; the value of `nodes` may be a range, as in 2-4.
_SIZES = ("ntasks", "nodes", "ntasks-per-node", "cpus-per-task")
#: Largest number of tasks, nodes or processors.
MOST = 10**9


@dataclass
class ScriptOptions:
    """Options of a job, some of which were options of sbatch.

    Attributes
    ----------
    fields : values of options of submit, by parameter.
    ignored : name and value of the options of sbatch without a meaning here.
    sizes : values of those that say how many processors the job has.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    ignored: dict[str, str | None] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        """The options without a meaning here, as users write them."""
        values = self.ignored.items()
        return [f"--{name}" + ("" if value is None else f"={value}") for name, value in values]

    def add(self, options: Iterable[tuple[str, str | None]]) -> None:
        """Add options of sbatch, by name and value.

        Raises
        ------
        ReshapeError : a value is wrong.
        """
        for name, value in options:
            text = value or ""
            own = f"--{_RENAMED.get(name, name)}"
            if name == "time":
                text = _time_limit(text)
            elif name == "open-mode":
                text = {"a": "append", "t": "truncate"}.get(text[:1].lower(), text)
            if name in _SAME:
                self.fields |= fields_of([own, text], name)
            elif name in _FLAGS and value is None:
                self.fields |= fields_of([own], name)
            elif name in _SIZES:
                self.sizes[name] = count(name, text)
            elif name == "kill-on-invalid-dep":
                self.fields["kill_on_invalid"] = _yes(name, text)
            else:
                self.ignored[name] = value


class JobScript(NamedTuple):
    """A script that was read.

    Attributes
    ----------
    path : of the file; "" if there is none.
    text : its contents, which are copied at the submission; "" if it is one command.
    options : of its lines.
    late : numbers of lines with options that have no effect, because a command precedes them.
    command : command of the shell that is run in place of a text.
    """

    path: str
    text: str
    options: ScriptOptions
    late: list[int]
    command: str = ""

    @property
    def name(self) -> str:
        """Name of the file, or what stands for it."""
        return Path(self.path).name if self.path else "wrap"

    def argv(self, arguments: Sequence[str]) -> list[str]:
        """Return the name of the script with its arguments, or the program that runs a command."""
        if not self.text:
            return ["/bin/sh", "-c", self.command, self.name, *arguments]
        return [self.path or self.name, *arguments]


def read_script(path: Path) -> JobScript:
    """Read a script and its options.

    Raises
    ------
    ReshapeError : the file cannot be read or is no script, or a line with options is invalid.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
            check_size(max(len(content), os.fstat(file.fileno()).st_size), str(path))
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
        number = text.count("\n", 0, text.index("\r\n")) + 1
        raise ReshapeError(
            f"{path}:{number}: the line ends as in DOS, with a carriage return: convert the file,"
            f" by sed -i 's/\\r$//' {path}"
        )
    check_script(text, path or "the script")
    script = JobScript(path, text, ScriptOptions(), [])
    command = _COMMAND.search(text)
    for line in _OPTIONS.finditer(text):
        number = text.count("\n", 0, line.start()) + 1
        if command is not None and line.start() > command.start():
            script.late.append(number)
            continue
        try:
            words = shlex.split(line[2], comments=True)
            if line[1] == SLURM:
                script.options.add(SBATCH.read(words))
            else:
                script.options.fields |= fields_of(words)
        except (ValueError, ReshapeError) as error:
            raise ReshapeError(f"{path}:{number}: {error}") from None
    return script


def wrapped(command: str) -> JobScript:
    """Make a script of one command for the shell."""
    return JobScript("", "", ScriptOptions(), [], command)


def script_submission(
    script: JobScript, arguments: Sequence[str], fields: dict[str, Any]
) -> Submission:
    """Build the submission of a script.

    Parameters
    ----------
    arguments : of the script.
    fields : parameters of `prepare`, which precede those of the script; without `processors` in
        either, the options of Slurm in the script count.

    Raises
    ------
    ReshapeError : an option has no effect on a script, or a value is invalid.
    """
    fields = script.options.fields | fields
    for name in OF_RESIZABLE:
        if fields.get(name):
            option = f"--{name.removesuffix('_processors')}"
            raise ReshapeError(f"{option}: a job script runs once and is not resized: leave it out")
    name = fields.get("name") or script.name
    sizes = script.options.sizes
    size = fields.get("processors") or processors(sizes)
    own = {"processors": size, "name": name, "script": True, "text": script.text}
    own["per_process"] = fields.get("per_process") or sizes.get("cpus-per-task", 1)
    return prepare(script.argv(arguments), **fields | own, ignored=" ".join(script.options.texts))


def fields_of(words: Sequence[str], written: str = "") -> dict[str, Any]:
    """Values of options of submit, by parameter.

    Parameters
    ----------
    written : name of the option of sbatch that the words stand for, for messages.

    Raises
    ------
    ReshapeError : an option is unknown, or a value is wrong.
    """
    try:
        with option_reader.make_context("options", [*words]) as context:
            return {name: v for name, v in context.params.items() if is_given(context, name)}
    except click.ClickException as error:
        is_value = isinstance(error, click.BadParameter) and written
        why = f"--{written}: {error.message}" if is_value else error.format_message()
        raise ReshapeError(why) from None


def _yes(name: str, value: str) -> bool:
    if value.lower() not in ("yes", "no"):
        raise ReshapeError(f"--{name}: expected yes or no, got {value[:40]!r}")
    return value.lower() == "yes"


def _time_limit(value: str) -> str:
    """Return the time limit in our words: 0 and -1 ask for none."""
    try:
        is_none = value.strip() == "-1" or parse_duration(value) == 0
    except ValueError:  # `reshape.times` says what is wrong, or UNLIMITED
        is_none = False
    return "UNLIMITED" if is_none else value


def count(name: str, value: str) -> int:
    """Read the value of an option that is a number.

    Raises
    ------
    ReshapeError : it is none, or less than 1.
    """
    least = value.partition("-")[0] if name == "nodes" else value
    if not (number := whole_number(least, MOST)):
        raise ReshapeError(f"--{name}: expected a number >= 1, got {value[:40]!r}")
    return number


def tasks(sizes: Mapping[str, int]) -> int:
    """Return the number of tasks that options of sbatch request, 1 without any."""
    if "ntasks" in sizes:
        return sizes["ntasks"]
    return sizes.get("nodes", 1) * sizes.get("ntasks-per-node", 1)


def processors(sizes: Mapping[str, int]) -> int:
    """Return the number of processors that options of sbatch request, 1 without any."""
    return tasks(sizes) * sizes.get("cpus-per-task", 1)
