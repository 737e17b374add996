"""Options and arguments that several commands share."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from reshape.key_values import amounts
from reshape.times import parse_duration, parse_moment
from reshape.topology import KINDS, Topology
from scheduler.model.arrays import JobName
from scheduler.model.resources import checked
from scheduler.protocol.job_requests import LONGEST_WALLTIME_S


class Walltime(click.ParamType[float]):
    """A positive time such as 2h or 2:00:00, converted to seconds."""

    name = "TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse the text of an option."""
        if isinstance(value, int | float):
            return float(value)
        try:
            seconds = parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds == 0:
            self.fail(f"must be above 0, got {value!r}", param, ctx)
        return seconds


class TimeLimit(Walltime):
    """A run time limit: a time, or ``UNLIMITED`` for the longest one (`LONGEST_WALLTIME_S`)."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse the text of an option."""
        if isinstance(value, str) and value.strip().upper() in ("UNLIMITED", "INFINITE"):
            return LONGEST_WALLTIME_S
        return super().convert(value, param, ctx)


class Priority(click.ParamType[float | str]):
    """A priority: a finite number or a name."""

    name = "PRIORITY"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | str:
        """Parse the text of an option."""
        try:
            number = float(value)
        except ValueError:
            return str(value)
        if not isfinite(number):
            self.fail(f"must be a finite number or a name, got {value!r}", param, ctx)
        return number


class ResourceAmounts(click.ParamType[dict[str, int]]):
    """Amounts by name.

    Parameters
    ----------
    example : for messages.
    """

    name = "NAME=AMOUNT,..."

    def __init__(self, example: str = "memory_gib=16") -> None:
        self._example = example

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, int]:
        """Parse the text of an option."""
        if isinstance(value, dict):
            return value
        try:
            values = amounts(value.split(","))
            checked(values)
        except ValueError as error:
            self.fail(f"{error}; an example is {self._example}", param, ctx)
        return values


class TopologyText(click.ParamType[Topology]):
    """The sizes on which a job can run."""

    name = "TOPOLOGY"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Topology:
        """Parse the text of an option."""
        if isinstance(value, Topology):
            return value
        try:
            return Topology.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Forms that begin with what was typed."""
        forms = [f"{kind}:" if kind == "list" else kind for kind in KINDS]
        return [CompletionItem(form) for form in forms if form.startswith(incomplete)]


class Moment(click.ParamType[float]):
    """A local date, or date and time, converted to Unix seconds."""

    name = "TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse the text of an option."""
        if isinstance(value, int | float):
            return float(value)
        try:
            return datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a date: write 2026-05-01 or 2026-05-01T12:00", param, ctx)


class LaterMoment(Moment):
    """A moment as sbatch(1) writes it, in Unix seconds; see `parse_moment`."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse the text of an option."""
        if not isinstance(value, str):
            return super().convert(value, param, ctx)
        try:
            return parse_moment(value, time.time())
        except ValueError as error:
            self.fail(str(error), param, ctx)


class JobText(click.ParamType[JobName]):
    """The name of a job: 17, ``last``, a task 17_4, tasks 17_[3-7], or a step 17.0."""

    name = "JOB"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> JobName:
        """Parse the text of an argument."""
        if isinstance(value, JobName):
            return value
        try:
            return JobName.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


_ACCESS = "reshape.access"  # key of the context's further data
_Callback = Callable[[click.Context, click.Parameter, Any], Any]
_Command = TypeVar("_Command", bound=Callable[..., Any])


def _directory(callback: _Callback) -> Callable[[_Command], _Command]:
    return click.option(
        "--dir",
        "directory",
        metavar="DIR",
        envvar="RESHAPE_DIR",
        show_envvar=True,
        default="~/.reshape",
        show_default=True,
        callback=callback,
        help="Directory of the service.",
    )


def _place(ctx: click.Context, param: click.Parameter, value: str) -> Path:
    """Return the path of a text that may begin with the home directory of a user."""
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise click.BadParameter(f"there is no user of {value!r}", ctx, param) from None


def _note_access(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    path = _place(ctx, param, value)
    if not path.is_file():
        raise click.BadParameter(f"there is no access file {path}", ctx, param)
    ctx.meta[_ACCESS] = (path, is_given(ctx, "access"))


def _choose_service(ctx: click.Context, param: click.Parameter, value: str) -> Path:
    """Return the access file or the directory; what the command line names overrides variables."""
    access, access_given = ctx.meta.get(_ACCESS, (None, False))
    directory_given = is_given(ctx, "directory")
    path = _place(ctx, param, value)
    if directory_given and path.is_file():
        raise click.BadParameter(f"{value} is a file; an access file needs --access", ctx, param)
    if access_given and directory_given:
        raise click.UsageError("--access and --dir both name a service; remove one", ctx)
    if access is None or directory_given:
        return path
    return Path(access)


def is_given(ctx: click.Context, name: str) -> bool:
    """Whether the command line has the option or argument of this parameter."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def service_option(command: _Command) -> _Command:
    """Add --dir and --access; `directory` is the directory of the service or the access file."""
    command = _directory(_choose_service)(command)
    return click.option(
        "--access",
        metavar="FILE",
        envvar="RESHAPE_ACCESS",
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=_note_access,
        help="Access file of a service on TCP; in place of --dir.",
    )(command)


directory_option = _directory(_place)
sites_option = click.option(
    "--sites",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Address all services that FILE names; in place of --dir. See docs/sites.md.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
parsable_option = click.option(
    "--parsable", is_flag=True, help="Separate the fields by |, for programs."
)
