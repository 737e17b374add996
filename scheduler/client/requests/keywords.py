"""Submissions and changes from keyword arguments, which are the options of the commands.

The options of ``reshape submit`` are the parameters, with their types and checks: a text is read as
on the command line, a value of another type is taken as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import click

from reshape.errors import ReshapeError, nearest
from scheduler.client.options import WALLTIME
from scheduler.client.requests.job_options import Changes, JobOptions, option_reader
from scheduler.client.requests.script_file import options_of, read_script, script_submission
from scheduler.client.requests.submission import prepare
from scheduler.model.arrays import JobName
from scheduler.protocol import messages as m

#: Parameters by keyword.
_PARAMETERS = {
    {"walltime_s": "walltime"}.get(str(option.name), str(option.name)): option
    for option in option_reader.params
}


#: All keywords of a submission.
_KEYWORDS = get_type_hints(JobOptions)


def submission(argv: Sequence[str], processors: int, options: Mapping[str, Any]) -> m.Submission:
    """Build the submission of a program; `options` are `JobOptions`.

    Raises
    ------
    ReshapeError : an option is unknown, or its value is invalid.
    """
    if isinstance(argv, str) or not argv:
        raise ReshapeError(f"argv: expected a list of program and arguments, got {argv!r}")
    read = fields(options, _KEYWORDS)
    return prepare([str(word) for word in argv], _value("processors", processors), **read)


def batch_submission(
    script: Path | str, arguments: Sequence[str], processors: int | None, options: Mapping[str, Any]
) -> m.Submission:
    """Build the submission of a job script; `options` are `JobOptions` and precede its own lines.

    Parameters
    ----------
    processors : None: as the lines of the script say.

    Raises
    ------
    ReshapeError : the script cannot be read, an option is unknown, or a value is invalid.
    """
    job_script = read_script(Path(script))
    given = fields(options, _KEYWORDS)
    if processors is not None:
        given["processors"] = _value("processors", processors)
    return script_submission(
        job_script, [str(argument) for argument in arguments], options_of(job_script) | given
    )


def changes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of an `UpdateJob` from `Changes`.

    Raises
    ------
    ReshapeError : an option is unknown, or its value is invalid.
    """
    removed = {"dependency": ""} if options.get("dependency") == "" else {}
    others = {name: value for name, value in options.items() if name not in removed}
    return fields(others, Changes.__annotations__) | removed


def fields(options: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a message from keyword arguments.

    Parameters
    ----------
    known : the keywords that there are.

    Raises
    ------
    ReshapeError : an option is unknown, or its value is invalid.
    """
    for name in options:
        if name not in known:
            raise ReshapeError(f"there is no option {name!r}{nearest(name, sorted(known))}")
    given = {name: value for name, value in options.items() if value is not None}
    return {
        "walltime_s" if name == "walltime" else name: _value(name, value)
        for name, value in given.items()
    }


def _value(name: str, value: Any) -> Any:
    """Check one value as the command line does."""
    parameter = _PARAMETERS.get(name)
    if parameter is None:  # it is no option of the command line
        return value
    if isinstance(value, Mapping):
        value = ",".join(f"{key}={amount}" for key, amount in value.items())
    elif isinstance(value, int | float) and name == "walltime":
        value = f"{value}s"
    try:
        return parameter.type.convert(value, parameter, None)
    except click.ClickException as error:
        raise ReshapeError(f"{name}: {error.message}") from None


def job_name(job: int | str) -> JobName:
    """Read the name of a job: 17, "17_4" (a task), "17_[3-7]", "17.0" (a step) or "last".

    Raises
    ------
    ReshapeError : it is none.
    """
    try:
        return JobName.parse(str(job))
    except ValueError as error:
        raise ReshapeError(str(error)) from None


def seconds(value: float | str | None) -> float | None:
    """Read a time limit: seconds, or a text such as ``"10:00"``.

    Raises
    ------
    ReshapeError : it is none.
    """
    if value is None or not isinstance(value, str):
        return value
    try:
        return WALLTIME.convert(value, None, None)
    except click.ClickException as error:
        raise ReshapeError(error.message) from None
