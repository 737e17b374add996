"""Submissions of a file: one in each line, checked before any of them is submitted.

A line has the options and the program of one submission, as on the command line; the words
``reshape submit`` before them may be left out. Words are separated as in a shell. Variables and
patterns are not expanded. A line may continue after a backslash. Empty lines and lines that begin
with ``#`` have no submission.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import click

from reshape.cli.lazy_group import unknown_word
from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.times import in_local_time
from reshape.wire.connection import is_access_file
from scheduler.client.api.asking import ask_all
from scheduler.client.submission import check_places
from scheduler.model.intervals import joined
from scheduler.protocol import messages as m
from scheduler.text.formats import counted, noun

#: Errors that one message quotes.
SHOWN = 20
_PREFIX = ["reshape", "submit"]


class SubmissionLine(NamedTuple):
    """The submission of a line; `where` is ``FILE:LINE``."""

    where: str
    submission: m.Submission


def read_submissions(
    file: TextIO, command: click.Command, defaults: Mapping[str, Any]
) -> list[SubmissionLine]:
    """Read all submissions of a file and check what can be checked without the service.

    Parameters
    ----------
    command : reads the words of a line and returns its submission.
    defaults : values of the options of `command` that a line does not have.

    Raises
    ------
    ReshapeError : lines are invalid, or there is none.
    """
    lines, faults = [], []
    for where, text in _lines(file):
        try:
            words = shlex.split(text)
            words = words[2:] if words[:2] == _PREFIX else words
            with command.make_context("line", words, default_map=defaults) as context:
                lines.append(SubmissionLine(where, command.invoke(context)))
        except click.NoSuchOption as error:
            faults.append(f"{where}: {unknown_word(error)}")
        except click.ClickException as error:
            faults.append(f"{where}: {error.format_message()}")
        except (ReshapeError, ValueError) as error:
            faults.append(f"{where}: {error}")
    if faults:
        raise _refusal(faults, len(lines) + len(faults))
    if not lines:
        raise ReshapeError(f"{file.name} has no submission: write one in each line")
    return lines


def _lines(file: TextIO) -> Iterator[tuple[str, str]]:
    """Yield the lines that have a submission, joined where they continue, with their place."""
    begun, first, continues = "", 1, False
    try:
        for number, text in enumerate(file, 1):
            first = first if continues else number
            begun += text.removesuffix("\\\n")
            continues = text.endswith("\\\n")
            if continues:
                continue
            if begun.strip() and not begun.lstrip().startswith("#"):
                yield f"{file.name}:{first}", begun
            begun = ""
    except UnicodeDecodeError:
        raise ReshapeError(f"{file.name} is not UTF-8 text: write it in UTF-8") from None
    if continues:
        raise ReshapeError(f"{file.name}:{first}: nothing follows the backslash at the end")


def submit_all(directory: Path, lines: Sequence[SubmissionLine]) -> list[int]:
    """Submit all jobs, after the service has checked all of them; return their numbers.

    Raises
    ------
    ServiceUnavailable : there is no service, or it ends meanwhile; the message tells which lines
        were submitted.
    ReshapeError : the service refuses lines; the message tells which ones and why.
    """
    checks = (m.CheckSubmission(submission=line.submission) for line in lines)
    faults = [
        f"{line.where}: {in_local_time(answer.message)}"
        for line, answer in zip(lines, ask_all(directory, checks), strict=True)
        if isinstance(answer, m.Failure)
    ]
    faults += _in_folders_of_the_service(directory, lines)
    if faults:
        raise _refusal(faults, len(lines))
    jobs: list[int] = []
    submits = (m.Submit(submission=line.submission) for line in lines)
    try:
        for line, answer in zip(lines, ask_all(directory, submits), strict=True):
            if isinstance(answer, m.Submitted):
                jobs.append(answer.job)
            elif isinstance(answer, m.Failure):
                faults.append(f"{line.where}: {in_local_time(answer.message)}")
    except ServiceUnavailable as error:
        where = lines[len(jobs) + len(faults)].where
        raise ServiceUnavailable(
            f"{error}; {_submitted(jobs)}; the lines from {where} on were not answered, and some"
            " of them may have been submitted: 'reshape queue' shows them"
        ) from None
    if faults:
        count = counted(len(faults), "line")
        raise ReshapeError(f"the service refused {count}; {_submitted(jobs)}:\n{_shown(faults)}")
    return jobs


def _in_folders_of_the_service(directory: Path, lines: Sequence[SubmissionLine]) -> list[str]:
    """Return the faults of lines whose files would be among those of a service on this host."""
    faults: list[str] = []
    if not is_access_file(directory):
        for line in lines:
            try:
                check_places(line.submission, directory)
            except ReshapeError as error:
                faults.append(f"{line.where}: {error}")
    return faults


def _refusal(faults: Sequence[str], count: int) -> ReshapeError:
    invalid = f"{len(faults)} of {counted(count, 'line')}"
    return ReshapeError(f"nothing was submitted, {invalid} cannot be:\n{_shown(faults)}")


def _shown(faults: Sequence[str]) -> str:
    more = [f"and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
    return "\n".join([*faults[:SHOWN], *more])


def _submitted(jobs: Sequence[int]) -> str:
    return f"{noun(len(jobs), 'job')} {ranges(jobs)} submitted" if jobs else "none submitted"


def ranges(numbers: Iterable[int]) -> str:
    """Write numbers as ``3-5,8``."""
    pairs = joined(sorted((number, number) for number in numbers))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs)
