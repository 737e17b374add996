"""Submission files: a submission in each line.

A line has the options and the program of one submission, as on the command line of ``reshape
submit``; these two words may be left out before them. Words are separated as in a shell. Variables
and patterns are not expanded. A line may continue after a backslash. Empty lines and lines that
begin with ``#`` have no submission.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

import click

from reshape.cli.lazy_group import unknown_word
from reshape.cli.options import refuse_empty
from reshape.errors import ReshapeError
from scheduler.client.requests.job_options import submission_options
from scheduler.client.requests.submission import prepare
from scheduler.protocol import messages as m
from scheduler.text.formats import counted

#: Errors that one message quotes.
SHOWN = 20
_PREFIX = ["reshape", "submit"]


@refuse_empty
@click.command(context_settings={"allow_interspersed_args": False}, add_help_option=False)
@submission_options
def line(**fields: Any) -> m.Submission:
    """Read the words of one line of a submission file."""
    return submission_of(fields)


def submission_of(fields: Mapping[str, Any]) -> m.Submission:
    if fields["processors"] is None:
        raise click.UsageError("Missing option '-n'.")
    if not fields["argv"]:
        raise click.UsageError("Missing argument 'PROGRAM [ARGS]...'.")
    return prepare(**fields)


def read_submissions(file: TextIO, defaults: Mapping[str, Any]) -> dict[str, m.Submission]:
    """Read all submissions of a file and check what can be checked without the service.

    Parameters
    ----------
    defaults : values of the options of `line` that a line does not have.

    Returns
    -------
    FILE:LINE -> submission

    Raises
    ------
    ReshapeError : lines are invalid, or there is none.
    """
    submissions: dict[str, m.Submission] = {}
    faults = []
    for where, text in _lines(file):
        try:
            words = shlex.split(text)
            words = words[2:] if words[:2] == _PREFIX else words
            with line.make_context("line", words, default_map=defaults) as context:
                submissions[where] = line.invoke(context)
        except click.NoSuchOption as error:
            faults.append(f"{where}: {unknown_word(error)}")
        except click.ClickException as error:
            faults.append(f"{where}: {error.format_message()}")
        except (ReshapeError, ValueError) as error:
            faults.append(f"{where}: {error}")
    if faults:
        raise refusal(faults, len(submissions) + len(faults))
    if not submissions:
        raise ReshapeError(f"{file.name} has no submission: write one in each line")
    return submissions


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


def refusal(faults: Sequence[str], count: int) -> ReshapeError:
    invalid = f"{len(faults)} of {counted(count, 'line')}"
    return ReshapeError(f"nothing was submitted, {invalid} cannot be:\n{shown(faults)}")


def shown(faults: Sequence[str]) -> str:
    more = [f"and {len(faults) - SHOWN} more"] if len(faults) > SHOWN else []
    return "\n".join([*faults[:SHOWN], *more])
