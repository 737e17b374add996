"""The submission of a job script: its own options, and those beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from reshape.cli.options import refuse_empty
from reshape.errors import ReshapeError
from scheduler.client.job_options import job_options
from scheduler.client.options import is_given
from scheduler.client.scripts.script_file import JobScript
from scheduler.client.scripts.slurm_options import processors
from scheduler.client.submission import prepare
from scheduler.protocol.messages import Submission

#: Options of submit that have no effect on a script, by name of the parameter.
_OF_RESIZABLE = {
    "min_processors": "--min",
    "max_processors": "--max",
    "topology": "--topology",
    "performance": "--performance",
}


@refuse_empty
@click.command(add_help_option=False)
@job_options
def _line(**_fields: Any) -> None:
    """Read the options of the lines of a script."""


def script_submission(
    script: JobScript, arguments: Sequence[str], fields: dict[str, Any]
) -> Submission:
    """Build the submission of a script.

    Parameters
    ----------
    arguments : of the script.
    fields : parameters of `prepare`, those of the script included; without `processors` the
        options of Slurm in the script count.

    Raises
    ------
    ReshapeError : an option has no effect on a script, or a value is invalid.
    """
    for name, option in _OF_RESIZABLE.items():
        if fields.get(name):
            raise ReshapeError(f"{option}: a job script runs once and is not resized: leave it out")
    name = fields.get("name") or script.name
    count = fields.get("processors") or processors(script.sizes)
    own = {"processors": count, "name": name, "script": True, "text": script.text}
    own["per_process"] = fields.get("per_process") or script.sizes.get("cpus-per-task", 1)
    return prepare(script.argv(arguments), **fields | own, ignored=" ".join(script.ignored))


def options_of(script: JobScript) -> dict[str, Any]:
    """Values of the options that a script has, by parameter.

    Raises
    ------
    ReshapeError : an option is unknown, or a value is wrong.
    """
    return fields_of(script.words, script.path or "--wrap")


def fields_of(words: Sequence[str], where: str) -> dict[str, Any]:
    """Values of options of submit, by parameter.

    Parameters
    ----------
    where : file and line of the options, for messages.

    Raises
    ------
    ReshapeError : an option is unknown, or a value is wrong.
    """
    try:
        with _line.make_context(where, [*words]) as context:
            return {name: v for name, v in context.params.items() if is_given(context, name)}
    except click.ClickException as error:
        raise ReshapeError(f"{where}: {error.format_message()}") from None
