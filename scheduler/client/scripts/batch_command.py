"""``reshape batch``: submit a script that runs once, with the options of its own lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from reshape.cli.options import example
from reshape.errors import ReshapeError
from scheduler.client.job_options import job_options
from scheduler.client.options import is_given, json_option, service_option
from scheduler.client.scripts.script_file import JobScript, read_script, wrapped
from scheduler.client.scripts.slurm_options import processors
from scheduler.client.submission import prepare
from scheduler.client.submit_command import submit_here
from scheduler.protocol.messages import Submission

#: Options of submit that have no effect on a script, by name of the parameter.
_OF_RESIZABLE = {
    "max_processors": "--max",
    "topology": "--topology",
    "performance": "--performance",
}


@click.command(add_help_option=False)
@job_options
def _line(**_fields: Any) -> None:
    """Read the options of the lines of a script."""


@click.command(context_settings={"allow_interspersed_args": False})
@service_option
@job_options
@click.option("--wrap", metavar="COMMAND", help="Run this command of the shell, without a script.")
@click.option(
    "--wait",
    "waits",
    is_flag=True,
    help="Wait for the end of the job, and exit with its exit code.",
)
@json_option
@click.argument("words", nargs=-1, metavar="SCRIPT [ARGS]...", type=click.UNPROCESSED)
@example(
    "reshape batch -n 4 --walltime 10:00 job.sh case.yaml",
    "reshape batch -n 2 --wrap 'python prepare.py && mpiexec -n 2 python solve.py'",
)
def batch(
    directory: Path,
    wrap: str | None,
    waits: bool,
    as_json: bool,
    words: Sequence[str],
    **fields: Any,
) -> None:
    """Submit SCRIPT, which runs once, on the first of -n processors (1 by default).

    Lines #RESHAPE OPTIONS and #SBATCH OPTIONS before the first command of the script have further
    options; those of the command line take precedence. Options of Slurm without a meaning here are
    named in a warning. The exit code of the script is that of the job. The script may start
    programs on the processors of the job by mpiexec.
    """
    if (wrap is None) == (not words):
        raise click.UsageError("give either SCRIPT or --wrap COMMAND")
    script = wrapped(wrap) if wrap is not None else read_script(Path(words[0]))
    warn(script)
    context = click.get_current_context()
    given = {name: value for name, value in fields.items() if is_given(context, name)}
    submission = script_submission(script, words[1:], options_of(script) | given)
    submit_here(directory, submission, waits, as_json)


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
    name = fields.get("name") or (Path(script.path).name if script.path else "wrap")
    count = fields.get("processors") or processors(script.sizes)
    own = {"processors": count, "name": name, "script": True, "ignored": " ".join(script.ignored)}
    return prepare(script.command(arguments), **fields | own)


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
    where : place of the options, for messages.

    Raises
    ------
    ReshapeError : an option is unknown, or a value is wrong.
    """
    try:
        with _line.make_context(where, [*words]) as context:
            return {name: v for name, v in context.params.items() if is_given(context, name)}
    except click.ClickException as error:
        raise ReshapeError(f"{where}: {error.format_message()}") from None


def warn(script: JobScript) -> None:
    """Name the options of a script that have no effect."""
    if script.ignored:
        text = ", ".join(script.ignored)
        click.echo(f"reshape: warning: without effect here: {text}", err=True)
    if script.late:
        lines = ", ".join(map(str, script.late))
        click.echo(
            f"reshape: warning: {script.path}:{lines}: options after the first command have no"
            " effect: move them up",
            err=True,
        )
