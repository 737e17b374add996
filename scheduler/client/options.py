"""Options and arguments that several commands share."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
import msgspec
from click.core import ParameterSource

from reshape.cli.options import ParsedText
from reshape.key_values import amounts, whole_number
from reshape.times import parse_duration, parse_moment
from reshape.topology import Topology
from scheduler.model.arrays import NAME_FORM, JobName, names
from scheduler.model.resources import checked
from scheduler.protocol.job_requests import LONGEST_WALLTIME_S
from scheduler.text.tables import Table, render

T = TypeVar("T")


def parse_walltime(text: str) -> float:
    """Read a positive time such as 2h or 2:00:00, in seconds; raises ValueError otherwise."""
    seconds = parse_duration(text)
    if seconds == 0:
        raise ValueError(f"must be above 0, got {text!r}")
    return seconds


def _time_limit(text: str) -> float:
    is_longest = text.strip().upper() in ("UNLIMITED", "INFINITE")
    return LONGEST_WALLTIME_S if is_longest else parse_walltime(text)


def _priority(text: str) -> float | str:
    try:
        number = float(text)
    except ValueError:
        return text
    if not isfinite(number):
        raise ValueError(f"must be a finite number or a name, got {text!r}")
    return number


def resource_amounts(example: str = "memory_gib=16") -> ParsedText[dict[str, int]]:
    """Make the type of amounts by name; `example` is for messages."""

    def parse(text: str) -> dict[str, int]:
        try:
            values = amounts(text.split(","))
            checked(values)
        except ValueError as error:
            raise ValueError(f"{error}; an example is {example}") from None
        return values

    return ParsedText("NAME=AMOUNT,...", parse, dict)


def _moment(text: str) -> float:
    return parse_moment(text, time.time(), past=True)


#: A positive time such as 2h or 2:00:00, in seconds.
WALLTIME = ParsedText("TIME", parse_walltime, int, float)
#: A run time limit: a positive time, or UNLIMITED for `LONGEST_WALLTIME_S`.
TIME_LIMIT = ParsedText("TIME", _time_limit, int, float)
#: A finite number or a name.
PRIORITY = ParsedText("PRIORITY", _priority)
#: The sizes on which a job can run.
TOPOLOGY = ParsedText("TOPOLOGY", Topology.parse, Topology)
#: A moment in the past as sacct(1) writes it, in Unix seconds; see `parse_moment`.
MOMENT = ParsedText("TIME", _moment, int, float)
#: A moment as sbatch(1) writes it, in Unix seconds; see `parse_moment`.
LATER_MOMENT = ParsedText("TIME", lambda text: parse_moment(text, time.time()), int, float)
#: The name of a job: 17, ``last``, a task 17_4, tasks 17_[3-7], or a step 17.0.
JOB = ParsedText("JOB", JobName.parse, JobName)


class JobRange(NamedTuple):
    """A job, or the queued and running jobs between two numbers, at a site ("": without --sites).

    Attributes
    ----------
    first : a job or tasks of an array; of a range the first job.
    last : number of the last job of a range; None: there is one job, `first`.
    """

    site: str
    first: JobName
    last: int | None = None

    def __str__(self) -> str:
        """Write its first job as the commands name it."""
        return f"{self.site}:{self.first}" if self.site else str(self.first)


def _one_at_site(text: str) -> JobRange:
    *site, job = names(text, ":")
    return JobRange(":".join(site), JobName.parse(job))


def _ranges_at_site(text: str) -> list[JobRange]:
    *site, jobs = names(text, ":")
    return [_range(":".join(site), part) for part in names(jobs)]


def _ranges(text: str) -> list[JobRange]:
    if len(names(text, ":")) > 1:
        raise ValueError(f"{text!r} is not a job: write {NAME_FORM}")
    return _ranges_at_site(text)


def _range(site: str, text: str) -> JobRange:
    first, dash, last = text.partition("-")
    if not dash or "_" in text:
        return JobRange(site, JobName.parse(text))
    begin, end = whole_number(first), whole_number(last)
    if begin is None or end is None:
        raise ValueError(f"{text!r} is not a range of jobs such as 3-8")
    if not 0 < begin <= end:
        raise ValueError(f"the range {text!r} must ascend from 1 or more")
    return JobRange(site, JobName(begin), end)


#: One job: a number, `last`, or with --sites SITE:JOB.
SITE_JOB = ParsedText("JOB", _one_at_site, JobRange)
#: Jobs such as ``3,5-8,17_[1-4],last``.
JOBS = ParsedText("JOBS", _ranges, list)
#: The same, with --sites after the name of a site and a colon.
JOBS_AT_SITES = ParsedText("JOBS", _ranges_at_site, list)


def _place(ctx: click.Context, param: click.Parameter, value: str) -> Path:
    """Return the path of a text that may begin with the home directory of a user."""
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise click.BadParameter(f"there is no user of {value!r}", ctx, param) from None


directory_option = click.option(
    "--dir",
    "directory",
    metavar="DIR",
    envvar="RESHAPE_DIR",
    show_envvar=True,
    default="~/.reshape",
    show_default=True,
    callback=_place,
    help="Directory of the service.",
)


def is_given(ctx: click.Context, name: str) -> bool:
    """Whether the command line has the option or argument of this parameter."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def refuse_given(names: Collection[str], why: str) -> None:
    """Refuse options of the command line that would have no effect.

    Parameters
    ----------
    names : of their parameters.
    why : what follows the option in the message, such as "needs --start".
    """
    context = click.get_current_context()
    for option in context.command.params:
        if option.name in names and is_given(context, option.name):
            raise click.UsageError(f"{max(option.opts, key=len)} {why}")


sites_option = click.option(
    "--sites",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Address the services that FILE names, in place of --dir; their jobs are SITE:JOB. See"
    " docs/sites.md.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def echo_list(
    things: Sequence[T], columns: Mapping[str, Callable[[T], object]], left: str, as_json: bool
) -> None:
    """Print things as JSON or as a table; see `Table.of`."""
    if as_json:
        echo_json(things)
    else:
        click.echo(render(Table.of(things, columns, left)))


def echo_json(value: Any) -> None:
    """Print a value as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
