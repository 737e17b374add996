"""``reshape batch``: submit a script that runs once, with the options of its own lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from reshape.cli.options import example
from scheduler.client.job_options import job_options
from scheduler.client.options import is_given, json_option, service_option
from scheduler.client.scripts.script_file import JobScript, read_script, wrapped
from scheduler.client.scripts.script_submission import options_of, script_submission
from scheduler.client.submit_command import submit_here


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
    if words and not words[0]:
        raise click.UsageError("SCRIPT is empty: name a file")
    script = wrapped(wrap) if wrap is not None else read_script(Path(words[0]))
    _warn(script)
    context = click.get_current_context()
    given = {name: value for name, value in fields.items() if is_given(context, name)}
    submission = script_submission(script, words[1:], options_of(script) | given)
    submit_here(directory, submission, waits, as_json)


def _warn(script: JobScript) -> None:
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
