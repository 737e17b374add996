"""The options that describe a job: of submit, batch, lines of scripts and files, and `Client`.

`JobOptions` declares each of them once: the keyword of `Client.submit` with its type, and the
option of the commands. The values become the fields of the same names of a `Submission`; those that
`scheduler.client.requests.submission.prepare` names are adapted to this host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar, get_type_hints

import click

from reshape import topology
from reshape.cli.options import ANY_TEXT, WholeRange, completed, refuse_empty
from reshape.errors import ReshapeError, nearest
from reshape.speedup import FORMS as MODELS
from scheduler.client.options import LATER_MOMENT, PRIORITY, TIME_LIMIT, TOPOLOGY, resource_amounts
from scheduler.client.requests.submission import OUTPUT
from scheduler.model.arrays import ARRAY_FORM as ARRAYS
from scheduler.model.requests import CONSTRAINT_FORM as FEATURES
from scheduler.model.requests import DEPENDENCY_FORM as DEPENDENCIES
from scheduler.model.requests import SIGNAL_FORM as SIGNALS
from scheduler.protocol.job_requests import OpenMode, Placement

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _option(*names: str, **attributes: Any) -> partial[Any]:
    """Declare an option as users write it, with the attributes of `click.option`."""
    return partial(click.option, *names, **attributes)


def _text(*names: str, **attributes: Any) -> partial[Any]:
    """Declare an option with a text, which is empty without it."""
    return _option(*names, default="", **attributes)


def _flag(*names: str, **attributes: Any) -> partial[Any]:
    return _option(*names, is_flag=True, **attributes)


class RequestOptions(TypedDict, total=False):
    """The options that decide where and when a job can start, besides its number of processors.

    `walltime` is in seconds, or a text such as "2h" or "10:00"; `begin` is in Unix seconds, or a
    text such as "now+2h".
    """

    min_processors: Annotated[
        int,
        _option(
            "--min",
            type=WholeRange(min=1),
            help="Smallest number of processors, on which the job may start and to which it may"
            " contract.  [default: it never has fewer than it starts with]",
        ),
    ]
    max_processors: Annotated[
        int,
        _option(
            "--max",
            type=WholeRange(min=1),
            help="Largest number of processors.  [default: as -n]",
        ),
    ]
    topology: Annotated[
        topology.Topology | str,
        _option(
            "--topology",
            type=TOPOLOGY,
            shell_complete=completed(
                lambda: [f"{kind}:" if kind == "list" else kind for kind in topology.KINDS]
            ),
            help=f"Sizes on which the job can run: {topology.FORMS}.  [default: as the program"
            " declares]",
        ),
    ]
    walltime: Annotated[
        float | str,
        _option(
            "--walltime",
            "walltime_s",
            type=TIME_LIMIT,
            help="Limit of the run time: 90s, 30min, 2h or 1d, or as in Slurm M, M:S, H:M:S, D-H,"
            " D-H:M or D-H:M:S; UNLIMITED is the longest one of the partition or queue.  [default:"
            " as the queue says, usually 1h]",
        ),
    ]
    priority: Annotated[
        float | str,
        _option(
            "--priority",
            type=PRIORITY,
            help="Priority: a name that the service defines, such as gold, or a number; a larger"
            " one is more urgent.",
        ),
    ]
    queue: Annotated[
        str,
        _text("--queue", metavar="NAME", help="Queue.  [default: the first one of the service]"),
    ]
    partition: Annotated[
        str,
        _text(
            "--partition",
            "-p",
            metavar="NAME",
            help="Partition.  [default: the first one of the service]",
        ),
    ]
    resources: Annotated[
        Mapping[str, int] | str,
        _option(
            "--resources",
            type=resource_amounts(),
            help="Amounts of other resources for the whole job, such as memory_gib=16; see"
            " docs/machines.md.",
        ),
    ]
    per_process: Annotated[
        int,
        _option(
            "--per-process",
            type=WholeRange(min=1),
            metavar="N",
            help="Processors of each process of a program that is not resized, such as one with"
            " threads: mpiexec starts a process for each N of the -n processors, which are on one"
            " node.  [default: 1]",
        ),
    ]
    reservation: Annotated[
        str,
        _text(
            "--reservation",
            metavar="NAME",
            help="Run in this advance reservation; see reshape reserve.",
        ),
    ]
    constraint: Annotated[
        str,
        _text(
            "--constraint",
            "-C",
            metavar="FEATURES",
            help=f"Run only on nodes with these features: {FEATURES}; see reshape node list.",
        ),
    ]
    exclusive: Annotated[
        bool,
        _flag(
            "--exclusive",
            help="Run on whole nodes: no other job gets processors of them meanwhile.",
        ),
    ]
    begin: Annotated[
        float | str,
        _option(
            "--begin",
            type=LATER_MOMENT,
            help="Time before which the job does not start: 2026-05-01T12:00, or now+2h.",
        ),
    ]
    dependency: Annotated[
        str,
        _text(
            "--dependency",
            "-d",
            metavar="LIST",
            help="Other jobs that have to start or to end first:"
            f" {DEPENDENCIES}; see docs/jobs.md.",
        ),
    ]
    performance: Annotated[
        str,
        _text(
            "--performance",
            metavar="MODEL",
            help="Performance model, which predicts the speed on sizes that were not measured:"
            f" {MODELS}, or module:Class,KEY=VALUE if the service allows it.  [default: a fit to"
            " the measurements]",
        ),
    ]
    shared: Annotated[
        Mapping[str, int] | str,
        _option(
            "--demand",
            type=resource_amounts("memory_bandwidth=2000"),
            help="Demand of each process for the shared resources of its node; see"
            " docs/sharing.md.",
        ),
    ]


class JobOptions(RequestOptions, total=False):
    """The options of ``reshape submit``, as keywords of `Client.submit`.

    The job gets `environment` in place of the variables of the process.
    """

    name: Annotated[str, _text("--name", help="Name of the job.  [default: name of the program]")]
    output: Annotated[
        str,
        _option(
            "--output",
            default=OUTPUT,
            show_default=True,
            help="File for the output of the job; %j stands for its number, %x for its name, %u"
            " for its user, %N for the host, as in Slurm.",
        ),
    ]
    error: Annotated[
        str,
        _text(
            "--error",
            "-e",
            metavar="FILE",
            help="File for the standard error, with the same placeholders.  [default: as --output]",
        ),
    ]
    open_mode: Annotated[
        OpenMode,
        _option(
            "--open-mode",
            type=click.Choice(["truncate", "append"]),
            help="Whether the start of the job empties existing output files, or appends to them."
            "  [default: append with the default of --output, else truncate]",
        ),
    ]
    cwd: Annotated[
        Path | str,
        _option(
            "--chdir",
            metavar="FOLDER",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="Working directory of the job.  [default: the current one]",
        ),
    ]
    placement: Annotated[
        Placement,
        _option(
            "--placement",
            type=click.Choice(["block", "cyclic"]),
            default="block",
            show_default=True,
            help="Placement of ranks on several hosts: consecutive on each host, or dealt out in"
            " turn.",
        ),
    ]
    bind: Annotated[
        bool,
        _option(
            "--bind/--no-bind",
            default=True,
            show_default=True,
            help="Bind ranks to the CPUs of their processors where the service does that.",
        ),
    ]
    requeue: Annotated[
        bool,
        _option(
            "--requeue/--no-requeue",
            help="Queue the job again if its processes die or a node is lost; see"
            " docs/checkpoints.md.",
        ),
    ]
    restart_from: Annotated[
        Path | str,
        _option(
            "--restart-from",
            metavar="DIR",
            type=click.Path(path_type=Path),
            help="Restart the program from the checkpoints of another run in DIR.",
        ),
    ]
    array: Annotated[
        str,
        _text(
            "--array",
            metavar="INDICES",
            help=f"Tasks of an array: {ARRAYS}; see docs/jobs.md.",
        ),
    ]
    hook_end: Annotated[
        str,
        _text(
            "--hook-end",
            metavar="COMMAND",
            help="Command of the shell that the first node runs when the job has ended, within a"
            " minute; see docs/jobs.md.",
        ),
    ]
    signal: Annotated[
        str,
        _text(
            "--signal",
            metavar="SIGNAL",
            help="Signal that the processes get before the end of the walltime:"
            f" {SIGNALS}; after B: only the script gets it.  [default seconds: 60]",
        ),
    ]
    hold: Annotated[bool, _flag("--hold", help="Hold the job until reshape release.")]
    kill_on_invalid: Annotated[
        bool,
        _flag(
            "--kill-on-invalid-dep",
            help="End the job when its dependency can never be met.",
        ),
    ]
    environment: Mapping[str, str]


class Changes(TypedDict, total=False):
    """What ``reshape update`` changes; see `JobOptions`. An empty `dependency` removes it."""

    processors: int
    min_processors: int
    max_processors: int
    walltime: float | str
    priority: float | str
    name: str
    queue: str
    partition: str
    begin: float | str
    dependency: str


def _declared(options: type) -> dict[str, partial[Any]]:
    """Return the options that keywords are declared with, by keyword."""
    hints = get_type_hints(options, include_extras=True)
    return {
        keyword: option
        for keyword, hint in hints.items()
        for option in getattr(hint, "__metadata__", ())
    }


def _added(command: _Command, options: dict[str, partial[Any]]) -> _Command:
    """Add declared options to a command; the parameter is the keyword unless it is named."""
    for keyword, option in reversed(options.items()):
        is_named = not option.args[-1].startswith("-")
        command = option(*(() if is_named else (keyword,)))(command)
    return command


_processors = _option(
    "-n",
    "processors",
    type=WholeRange(min=1),
    help="Processors to start with; with --min the preferred number.",
)
#: Options that have no effect on a script, which is not resized.
OF_RESIZABLE = ("min_processors", "max_processors", "topology", "performance")


def request_options(command: _Command) -> _Command:
    """Add the options that decide where and when a job can start, besides its processors."""
    return _added(command, _declared(RequestOptions))


def per_process_option(command: _Command) -> _Command:
    """Add the option for the processors of each process."""
    added: _Command = _declared(JobOptions)["per_process"]()(command)
    return added


def job_options(command: _Command) -> _Command:
    """Add the options that describe a job."""
    return _added(command, {"processors": _processors, **_declared(JobOptions)})


def script_options(command: _Command) -> _Command:
    """Add the options that describe a job; the help leaves out those of resizable programs."""
    processors = partial(_processors, help="Processors of the job.  [default: 1]")
    options = {"processors": processors, **_declared(JobOptions)}
    options |= {name: partial(options[name], hidden=True) for name in OF_RESIZABLE}
    return _added(command, options)


def change_options(command: _Command) -> _Command:
    """Add the options of `Changes`; what they leave out does not change."""
    options = {"processors": _processors}
    for keyword, option in _declared(JobOptions).items():
        if keyword in Changes.__annotations__:
            text = option.keywords["help"].partition("  [default")[0]
            options[keyword] = partial(option, default=None, help=text)
    text = options["dependency"].keywords["help"]
    options["dependency"] = partial(
        options["dependency"], type=ANY_TEXT, help=f"{text} '' removes it."
    )
    return _added(command, options)


@refuse_empty
@click.command(add_help_option=False)
@job_options
def option_reader(**_fields: Any) -> None:
    """Read the options of a job where there is no command: of lines of scripts, and keywords."""


#: Parameters of `option_reader` by keyword.
_PARAMETERS = {
    {"walltime_s": "walltime"}.get(str(option.name), str(option.name)): option
    for option in option_reader.params
}


def keyword_fields(keywords: Mapping[str, Any], options: type) -> dict[str, Any]:
    """Fields of a message from keyword arguments, of which None stands for one that is left out.

    A text is read as on the command line, a value of another type is taken as it is.

    Parameters
    ----------
    options : `JobOptions` or `Changes`, which have the keywords besides `processors`.

    Raises
    ------
    ReshapeError : a keyword is unknown, or its value is invalid.
    """
    names = {*options.__annotations__, "processors"}
    for name in keywords:
        if name not in names:
            raise ReshapeError(f"there is no option {name!r}{nearest(name, names)}")
    return {
        "walltime_s" if name == "walltime" else name: _keyword_value(name, value, options)
        for name, value in keywords.items()
        if value is not None
    }


def _keyword_value(name: str, value: Any, options: type) -> Any:
    """Check one value as the command line does."""
    parameter = _PARAMETERS.get(name)
    removes = options is Changes and name == "dependency" and value == ""
    if parameter is None or removes:  # such as `environment`
        return value
    if isinstance(value, Mapping):
        value = ",".join(f"{key}={amount}" for key, amount in value.items())
    elif isinstance(value, int | float) and name == "walltime":
        value = f"{value}s"
    try:
        return parameter.type.convert(value, parameter, None)
    except click.ClickException as error:
        raise ReshapeError(f"{name}: {error.message}") from None
