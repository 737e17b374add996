"""The options and variables of Slurm's commands, as the manual of Slurm 24.05 has them.

Each option has an effect here, or is accepted without one, or is refused with what there is in its
place; docs/reference/slurm.md lists them. The options of older releases and of 24.11 that scripts
use are here, too.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from reshape.errors import ReshapeError, nearest

#: Whether an option has a value: never, always, or only after ``=`` or directly after its letter.
Takes = Literal["nothing", "value", "either"]
_TAKES: dict[str, Takes] = {"": "nothing", "=": "value", "?": "either"}
#: Values of a variable that leave out the option without a value for which it stands.
_OFF = ("false", "f", "no", "0")


class Option(NamedTuple):
    """An option of a command.

    Attributes
    ----------
    takes : whether it has a value.
    has_effect : whether it has an effect here.
    instead : what there is in its place; "": the option is accepted.
    """

    takes: Takes
    has_effect: bool
    instead: str


class Known(NamedTuple):
    """All options that a command of Slurm has.

    Attributes
    ----------
    command : name of the command, for messages.
    options : name -> option.
    names : long option as users write it -> name.
    letters : letter -> name.
    variables : variable of the environment -> name of the option for which it stands.
    """

    command: str
    options: Mapping[str, Option]
    names: Mapping[str, str]
    letters: Mapping[str, str]
    variables: Mapping[str, str]

    @classmethod
    def of(
        cls,
        command: str,
        used: str,
        ignored: str = "",
        refused: Mapping[str, str] | None = None,
        variables: str = "",
    ) -> Known:
        """Make it from words such as ``noheader:h``, ``users|user=:u`` and ``nice?``.

        A word has the names of an option, the first of which stands for all, ``=`` if it has a
        value or ``?`` if it may have one, and after a colon its letter.

        Parameters
        ----------
        used, ignored : options with an effect, and options that are accepted without one.
        refused : words of options -> what there is in their place.
        variables : words such as ``SQUEUE_SORT`` and ``SQUEUE_NAMES:name``.
        """
        options, names, letters = dict[str, Option](), dict[str, str](), dict[str, str]()
        groups = [(used, True, ""), (ignored, False, "")]
        groups += [(words, False, instead) for words, instead in (refused or {}).items()]
        for words, has_effect, instead in groups:
            for word in words.split():
                text, _, letter = word.partition(":")
                name, *others = text.rstrip("=?").split("|")
                takes = _TAKES[text[len(text.rstrip("=?")) :]]
                options[name] = Option(takes, has_effect, instead)
                names |= dict.fromkeys((name, *others), name)
                letters |= {letter: name} if letter else {}
        pairs = [word.partition(":") for word in variables.split()]
        stands_for = {
            variable: name or variable.partition("_")[2].lower().replace("_", "-")
            for variable, _, name in pairs
        }
        return cls(command, options, names, letters, stands_for)

    @property
    def usage(self) -> str:
        """The options with an effect, for ``--help``."""
        lines = [f"{self.command}, a command of Slurm over this service. Options with an effect:"]
        by_name = {name: f"-{letter}, " for letter, name in self.letters.items()}
        for name, option in sorted(self.options.items()):
            if option.has_effect:
                value = {"nothing": "", "value": "=VALUE", "either": "[=VALUE]"}[option.takes]
                lines.append(f"  {by_name.get(name, ''):4}--{name}{value}")
        return "\n".join([*lines, "See docs/reference/slurm.md."])

    def take(self, left: list[str]) -> tuple[str, str | None]:
        """Take an option with its value, None without one, from the begin of some words.

        Raises
        ------
        ReshapeError : there is no such option, it is refused, or its value is missing.
        """
        word = left.pop(0)
        if word.startswith("--"):
            written, equals, value = word[2:].partition("=")
            name = self._full(written)
        elif len(word) > 1 and word.startswith("-") and word[1] in self.letters:
            name, value = self.letters[word[1]], word[2:].removeprefix("=")
            equals = "=" if value else ""
        else:
            raise ReshapeError(f"{word!r} is no option of {self.command}")
        option = self.options[name]
        if option.instead:
            letter = "" if word.startswith("--") else f" ({word[:2]})"
            raise ReshapeError(f"--{name}{letter} is not there: {option.instead}")
        if equals and option.takes == "nothing":
            if word.startswith("--"):
                raise ReshapeError(f"--{name} has no value, got {value!r}")
            left.insert(0, f"-{value}")  # further letters
        elif equals:
            return name, value
        if option.takes != "value":
            return name, None
        if left and not left[0].startswith("--"):
            return name, left.pop(0)
        raise ReshapeError(f"--{name} needs a value")

    def _full(self, written: str) -> str:
        """Return the name of an option that a word abbreviates."""
        begun = {name for option, name in self.names.items() if option.startswith(written)}
        if written not in self.names and len(begun) != 1:
            near = nearest(written, sorted(self.names))
            raise ReshapeError(f"{self.command} has no option --{written}{near}")
        return self.names.get(written) or begun.pop()

    def parse(
        self,
        words: Sequence[str],
        alternatives: Collection[str] = (),
        arguments: list[str] | None = None,
    ) -> dict[str, str]:
        """Read the options of a command line, which may be between arguments.

        Options without a value have "". The values of an option that is repeated are joined by
        commas. A variable stands for an option that the command line does not have.

        Parameters
        ----------
        alternatives : options, one of which on the command line leaves out the variables of all.
        arguments : to which the arguments are added; None: the command has none.

        Raises
        ------
        ReshapeError : there is no such option, it is refused, or its value is missing.
        """
        values: dict[str, str] = {}
        left = [*words]
        while left:
            if arguments is not None and not left[0].startswith("-"):
                arguments.append(left.pop(0))
                continue
            name, value = self.take(left)
            values[name] = f"{values[name]},{value}" if values.get(name) else value or ""
        own = {*values, *(alternatives if values.keys() & {*alternatives} else ())}
        for _, name, value in self.of_variables():
            if name not in own:
                values[name] = value or ""
        return values

    def of_variables(self) -> Iterator[tuple[str, str, str | None]]:
        """Yield variable, option and value of each option for which a variable stands.

        Raises
        ------
        ReshapeError : an option is refused.
        """
        for variable, name in self.variables.items():
            value, option = os.environ.get(variable), self.options[name]
            if value is None or (option.takes == "value" and not value):
                continue
            if option.takes == "nothing" and value.lower() in _OFF:
                continue
            if option.instead:
                raise ReshapeError(f"{variable}: --{name} is not there: {option.instead}")
            yield variable, name, None if option.takes == "nothing" else value or None

    def read(self, words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
        """Yield name and value of each option; raises the errors of `take`."""
        left = [*words]
        while left:
            yield self.take(left)

    def split(self, words: Sequence[str]) -> tuple[list[tuple[str, str | None]], list[str]]:
        """Divide a command line into options, as of `read`, and what follows."""
        left, options = [*words], []
        while left and left[0].startswith("-") and left[0] not in ("-", "--"):
            options.append(self.take(left))
        return options, left[1:] if left[:1] == ["--"] else left


#: Options of a job that have no counterpart here: sbatch and srun have them.
_OF_JOB = """
account=:A acctg-freq= bb= bbf= cluster-constraint= clusters|cluster=:M comment= container=
container-id= contiguous core-spec=:S cores-per-socket= cpu-freq= cpus-per-gpu= deadline=
delay-boot= distribution=:m exclude=:x export-file= extra= extra-node-info=:B get-user-env? gid=
gpu-bind= gpu-freq= gpus=:G gpus-per-node= gpus-per-socket= gpus-per-task= gres= gres-flags= hint=
licenses=:L mail-type= mail-user= mcs-label= mem= mem-bind|mem_bind= mem-per-cpu= mem-per-gpu=
mincpus= mincores= minsockets= minthreads= network= nice? no-kill?:k nodefile=:F nodelist=:w
ntasks-per-core= ntasks-per-gpu= ntasks-per-socket= oom-kill-step? overcommit:O
oversubscribe|share:s power= prefer= priority= profile= propagate? qos=:q reboot resv-ports?
segment= sockets-per-node= spread-job stepmgr switches= thread-spec= threads-per-core= time-min=
tmp= tres-bind= tres-per-task= uid= use-min-nodes wckey=
"""
#: Options of a job that have an effect.
_USED = """
begin=:b chdir=:D constraint=:C cpus-per-task=:c dependency=:d error=:e exclusive? export= hold:H
input=:i job-name=:J kill-on-invalid-dep= nodes=:N no-requeue ntasks=:n
ntasks-per-node|tasks-per-node= open-mode= output=:o partition=:p requeue reservation= signal=
time=:t help usage
"""
_QUOTE = {"test-only": "reshape quote shows when a job would start"}

SBATCH = Known.of(
    "sbatch",
    _USED + "array=:a parsable quiet:Q wait:W wrap=",
    _OF_JOB + "batch= ignore-pbs verbose:v wait-all-nodes=",
    _QUOTE,
    """
    SBATCH_ACCOUNT SBATCH_ACCTG_FREQ SBATCH_ARRAY_INX:array SBATCH_BATCH SBATCH_CLUSTERS
    SLURM_CLUSTERS SBATCH_CONSTRAINT SBATCH_CONTAINER SBATCH_CONTAINER_ID SBATCH_CORE_SPEC
    SBATCH_CPUS_PER_GPU SBATCH_DEBUG:verbose SBATCH_DELAY_BOOT SBATCH_DISTRIBUTION SBATCH_ERROR
    SBATCH_EXCLUSIVE SBATCH_EXPORT SBATCH_GET_USER_ENV SBATCH_GPU_BIND SBATCH_GPU_FREQ SBATCH_GPUS
    SBATCH_GPUS_PER_NODE SBATCH_GPUS_PER_TASK SBATCH_GRES SBATCH_GRES_FLAGS SBATCH_HINT SLURM_HINT
    SBATCH_IGNORE_PBS SBATCH_INPUT SBATCH_JOB_NAME SBATCH_MEM_BIND SBATCH_MEM_PER_CPU
    SBATCH_MEM_PER_GPU SBATCH_MEM_PER_NODE:mem SBATCH_NETWORK SBATCH_NO_KILL SBATCH_NO_REQUEUE
    SBATCH_OOM_KILL_STEP SBATCH_OPEN_MODE SBATCH_OUTPUT SBATCH_OVERCOMMIT SBATCH_PARTITION
    SBATCH_POWER SBATCH_PROFILE SBATCH_QOS SBATCH_REQ_SWITCH:switches SBATCH_REQUEUE
    SBATCH_RESERVATION SBATCH_SIGNAL SBATCH_SPREAD_JOB SBATCH_THREAD_SPEC SBATCH_THREADS_PER_CORE
    SBATCH_TIMELIMIT:time SBATCH_TRES_BIND SBATCH_TRES_PER_TASK SBATCH_USE_MIN_NODES SBATCH_WAIT
    SBATCH_WAIT_ALL_NODES SBATCH_WCKEY
    """,
)
_HOOK = "run the command in the script of the job, or in the program"
SRUN = Known.of(
    "srun",
    _USED,
    _OF_JOB
    + """
    accel-bind= async bcast-exclude= compress? cpu-bind|cpu_bind= debugger-test disable-status:X
    exact external-launcher het-group|pack-group= immediate?:I kill-on-bad-exit?:K launch-cmd
    launcher-opts= max-threads= mpi= msg-timeout= overlap preserve-env:E quiet:Q quit-on-interrupt
    relative=:r send-libs? slurmd-debug= threads=:T treewidth= unbuffered:u verbose:v wait=:W whole
    """,
    _QUOTE
    | {
        "bcast?": "hosts share the folder of a program, which is not copied",
        "epilog= prolog= task-epilog= task-prolog=": _HOOK,
        "jobid=": "the script of a job starts its steps",
        "label:l": "the output comes as it is: --output=FILE.%t names a file for each task",
        "multi-prog": "start each program as a step of a script",
        "no-allocate:Z": "programs run on processors of a job alone",
        "pty? interactive": "a program has no terminal: srun bash takes commands from its standard"
        " input",
        "x11?": "a program has no display",
    },
    """
    SLURM_CONSTRAINT SLURM_DEPENDENCY SLURM_EXCLUSIVE SLURM_EXPORT_ENV:export SRUN_EXPORT_ENV:export
    SLURM_JOB_NAME:job-name SLURM_OPEN_MODE SLURM_PARTITION SLURM_RESERVATION SLURM_SIGNAL
    SLURM_TIMELIMIT:time SLURM_WORKING_DIR:chdir SRUN_ERROR SRUN_INPUT SRUN_OUTPUT
    """,
)
#: What is the same for all clusters, of which there is one.
_OF_CLUSTERS = "clusters|cluster=:M federation local "
_NO_ACCOUNT = "jobs have no account and no quality of service"
SQUEUE = Known.of(
    "squeue",
    "noheader:h me notme array:r long:l start format=:o Format=:O sort=:S jobs=:j users|user=:u "
    "name=:n nodelist|nodes|node=:w partition|partitions=:p states=:t help usage",
    _OF_CLUSTERS + "all:a array-unique hide noconvert priority:P sibling|sib verbose:v",
    {
        "account|accounts=:A qos=:q": _NO_ACCOUNT,
        "iterate=:i": "reshape queue --watch",
        "json? yaml?": "reshape queue --json",
        "licenses=:L": "reshape info JOB shows the resources of a job",
        "only-job-state": "--format='%i %T' shows the states alone",
        "reservation=:R": "reshape info JOB shows the reservation of a job",
        "steps?:s": "reshape queue --steps",
    },
    """
    SLURM_CLUSTERS SQUEUE_ACCOUNT SQUEUE_ALL SQUEUE_ARRAY SQUEUE_ARRAY_UNIQUE SQUEUE_FEDERATION
    SQUEUE_FORMAT SQUEUE_FORMAT2:Format SQUEUE_LICENSES SQUEUE_LOCAL SQUEUE_NAMES:name
    SQUEUE_PARTITION SQUEUE_PRIORITY SQUEUE_QOS SQUEUE_SIB:sibling SQUEUE_SIBLING SQUEUE_SORT
    SQUEUE_STATES SQUEUE_USERS
    """,
)
SACCT = Known.of(
    "sacct",
    "noheader:n parsable2:P parsable:p allocations:X brief:b helpformat:e format|fields=:o jobs=:j"
    " user|uid=:u name= nodelist=:N partition=:r state=:s starttime=:S endtime=:E delimiter= help"
    " usage:U",
    _OF_CLUSTERS
    + "allusers:a allclusters:L array completion:c duplicates:D expand-patterns noconvert"
    " truncate:T units= use-local-uid verbose:v whole-hetjob?",
    {
        "accounts|account=:A associations=:x qos=:q qosonly wckeys=:W": _NO_ACCOUNT,
        "batch-script:B env-vars": "neither scripts nor environments of ended jobs are kept",
        "constraints=:C extra= flags=:F gid|group=:g nnodes=:i ncpus=:I reason=:R timelimit-min=:k"
        " timelimit-max=:K": "--format shows a field of each job, to choose by",
        "file=:f": "only the records of the service can be read",
        "json? yaml?": "reshape history --json",
        "long:l": "--format names the fields that --helpformat lists",
    },
    "SACCT_FEDERATION SACCT_FORMAT SACCT_LOCAL SLURM_CLUSTERS",
)
SINFO = Known.of(
    "sinfo",
    "noheader:h summarize:s Node:N long:l format=:o nodes=:n partition=:p states=:t dead:d"
    " responding:r help usage",
    _OF_CLUSTERS + "all:a exact:e future:F hide noconvert verbose:v",
    {
        "Format=:O": "--format names fields by letters",
        "iterate=:i": "watch sinfo, by the command of the shell",
        "json? yaml?": "reshape info --json",
        "list-reasons:R": "reshape node list",
        "reservation:T": "reshape reserve list",
        "sort=:S": "partitions are in the order of the configuration, nodes in the order of their"
        " names",
    },
    """
    SINFO_ALL SINFO_FEDERATION SINFO_FORMAT SINFO_LOCAL SINFO_PARTITION SLURM_CLUSTERS
    """,
)
SCANCEL = Known.of(
    "scancel",
    "batch:b me signal=:s name|jobname=:n user=:u state=:t partition=:p help usage",
    "admin-comment= clusters|cluster=:M ctld full:f hurry:H quiet:Q sibling= verbose:v",
    {
        "account=:A qos=:q wckey=": _NO_ACCOUNT,
        "cron": "there is no scrontab",
        "interactive:i": "nothing is asked: leave it out",
        "nodelist=:w": "squeue -w NODE -ho %i shows the jobs of a node",
        "reservation=:R": "name the jobs",
    },
    """
    SCANCEL_ACCOUNT SCANCEL_BATCH SCANCEL_CTLD SCANCEL_FULL SCANCEL_HURRY SCANCEL_INTERACTIVE
    SCANCEL_NAME SCANCEL_PARTITION SCANCEL_QOS SCANCEL_STATE SCANCEL_USER SCANCEL_VERBOSE
    SCANCEL_WCKEY SLURM_CLUSTERS
    """,
)
SCONTROL = Known.of(
    "scontrol",
    "help:h usage",
    _OF_CLUSTERS + "all:a details:d future:F hide oneliner:o quiet:Q sibling uid=:u verbose:v",
    {"json? yaml?": "reshape info --json"},
    "SCONTROL_ALL SCONTROL_FEDERATION SCONTROL_FUTURE SCONTROL_LOCAL SCONTROL_SIBLING"
    " SLURM_CLUSTERS",
)
MANUAL = {known.command: known for known in (SBATCH, SRUN, SQUEUE, SACCT, SINFO, SCANCEL, SCONTROL)}
#: Verbs of scontrol that are refused -> what there is in their place.
SCONTROL_REFUSED = {
    "abort shutdown takeover": "reshape stop ends the service",
    "cancel_reboot reboot power": "nodes are not restarted: reshape node drain takes one out",
    "completing": "squeue -t COMPLETING",
    "create": "reshape reserve create",
    "delete": "reshape reserve cancel, or reshape node remove",
    "getent errnumstr fsdampeningfactor": "it is about Slurm's own daemons",
    "listjobs listpids liststeps pidinfo": "reshape info JOB",
    "notify": "a job has no terminal",
    "reconfigure": "restart the service with reshape serve",
    "requeuehold": "scontrol requeue, then scontrol hold",
    "resume suspend": "a job is not stopped: scontrol requeue, or reshape update --max",
    "schedloglevel setdebug setdebugflags": "reshape explain shows decisions",
    "token": "reshape access create",
    "top": "scontrol update JobId=JOB Priority=NUMBER",
    "wait_job": "reshape wait JOB",
    "write": "the script of a job is the file that was submitted",
}
