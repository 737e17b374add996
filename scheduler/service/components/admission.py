"""Admission: which submissions are accepted, in which queue and with which priority.

PRIO 3.1 defines the user-assigned priority, 4.4 uses the classes gold and platinum.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from math import inf
from operator import attrgetter, gt
from pathlib import Path

import msgspec
from msgspec.structs import replace

from reshape.checkpoints.directory import RESTART_VARIABLE
from reshape.errors import ConfigError, ReshapeError, nearest
from reshape.speedup import FORMS, is_own_class, named, speedup_by
from scheduler.config.checks import idle_core
from scheduler.config.partitions import PartitionLimits
from scheduler.config.settings import QueueConfig, ServeConfig
from scheduler.model.arrays import TaskArray
from scheduler.model.events import JobSpec
from scheduler.model.requests import MOST_TERMS, NodeRequest
from scheduler.node.launching.job_bounds import (
    LIMITS,
    MOST_UMASK,
    UNLIMITED,
    folder_named,
    in_own_folder,
)
from scheduler.node.launching.job_command import check_arguments
from scheduler.partition.partition import Partition
from scheduler.policies.containment import ErrorReporter
from scheduler.protocol.job_requests import DEFAULT_WALLTIME_S, LONGEST_WALLTIME_S
from scheduler.protocol.messages import Submission
from scheduler.text.formats import counted, format_time
from scheduler.text.job_output import check_output_name
from scheduler.text.plain import LONGEST_NAME, LONGEST_REASON, check_text, plain

#: Characters of a submission key, at most.
LONGEST_KEY = 200
#: Texts of a submission that are checked when they are read.
_READ = frozenset({"text", "signal"})
#: Characters of the other texts of a submission, at most; paths as in Linux (PATH_MAX).
_LONGEST = {
    **{
        field.name: LONGEST_NAME
        for field in msgspec.structs.fields(Submission)
        if field.type is str and field.name not in _READ
    },
    **dict.fromkeys(("output", "error", "cwd", "hook_end", "array"), 4095),
    "dependency": 20 * MOST_TERMS,
    **dict.fromkeys(("performance", "ignored", "constraint"), LONGEST_REASON),
    "key": LONGEST_KEY,
}
_LEAST_LONGEST = min(_LONGEST.values())
_texts = attrgetter(*_LONGEST)
#: Sizes that the topology of a submission lists, at most.
MOST_SIZES = 1000


class Admission:
    """Checks submissions against the machine, the queues and the users of a configuration.

    Parameters
    ----------
    config : names queues, users and priorities.
    report_error : reports an error of a processor selection; None lets it out.
    own_folders : those of the service, in which no job may write.
    """

    def __init__(
        self,
        config: ServeConfig,
        report_error: ErrorReporter | None = None,
        own_folders: Iterable[Path] = (),
    ) -> None:
        self._config = config
        own = {str(path) for own in own_folders for path in (own, own.resolve())}
        self._own = sorted(map(os.path.normpath, own))
        self._idle = idle_core(config, report_error)  # with all nodes up and idle
        #: The submission that was admitted last, without what is its own, and its request.
        self._latest: tuple[Submission, JobSpec] | None = None

    def add_nodes(self, names: Iterable[str], processors: int) -> None:
        """Take account of nodes that may join the first partition, with this many processors."""
        self._latest = None
        for name in names:
            self._idle.partitions[0].machine.join(name, processors)

    def remove_nodes(self, names: Iterable[str]) -> None:
        """Take account of nodes that can no longer join."""
        self._latest = None
        machine = self._idle.partitions[0].machine
        for name in names:
            machine.lose(name)
            machine.remove(name)

    def walltime_s(self, submission: Submission) -> float:
        """Walltime of a submission, in seconds.

        One that requests none has the default of its partition, or else of its queue. One for the
        longest has the longest that both allow, which is infinity if neither has a limit.
        """
        queues, partitions = self._config.queues, self._config.partitions
        name = submission.queue
        queue = queues.get(name) if name else next(iter(queues.values()))
        own = partitions.get(submission.partition or next(iter(partitions), ""))
        longest_s = inf if own is None else own.max_walltime_s or inf
        if submission.walltime_s == LONGEST_WALLTIME_S:
            return min(longest_s, inf if queue is None else queue.max_walltime_s or inf)
        if submission.walltime_s:
            return submission.walltime_s
        usual_s = DEFAULT_WALLTIME_S if queue is None else queue.usual_walltime_s
        default_s = None if own is None else own.default_walltime_s
        return default_s or min(usual_s, longest_s)

    @property
    def _limits(self) -> PartitionLimits:
        sizes = {part.name: part.machine.processors for part in self._idle.partitions}
        return PartitionLimits(self._config.partitions, sizes)

    def admit(self, submission: Submission) -> JobSpec:
        """Return the specification of a job for a submission.

        A request beyond the limits of its queue or its user is refused. The maximal number of
        processors is cut to that of the machine.

        Raises
        ------
        ReshapeError : the job could never run, or may not.
        """
        _check_text(submission)
        check_output_name(submission.output)
        if submission.error:  # "" stands for the output
            check_output_name(submission.error, "error output")
        self._check_places(submission)
        rest = _without_own(submission)
        if self._latest is None or self._latest[0] != rest:
            self._latest = rest, self._request(rest)
        spec = self._latest[1]
        return replace(spec, name=submission.name) if submission.name else spec

    def _request(self, submission: Submission) -> JobSpec:
        """Return the request of a submission `_without_own` parts."""
        self._check_sizes(submission)
        nodes = self._nodes(submission)
        if nodes is not None and nodes.whole:
            processors = -(-submission.processors // nodes.whole) * nodes.whole
            submission = replace(submission, processors=processors)
            self._check_sizes(submission)
        partition = self._partition(submission)
        self._check_selection(submission, partition)
        if nodes is not None:
            _check_nodes(nodes, submission.processors, partition)
        least, largest = submission.smallest, self._largest(submission, partition)
        self._check_resources(submission, partition)
        self._check_performance(submission, largest)
        self._check_demand(submission, partition)
        name = submission.queue or next(iter(self._config.queues))
        queue = self._queue(name, submission)
        priority = self._priority(submission) + self._config.value_of(queue.priority)
        try:
            return JobSpec(
                processors=submission.processors,
                walltime_s=submission.walltime_s,
                max_processors=largest,
                min_processors=least if least < submission.processors else None,
                topology=submission.topology,
                user=submission.user,
                queue=name,
                priority=priority,
                resources=_above_0(submission.resources),
                shared=_above_0(submission.shared),
                executable=submission.argv[0].rpartition("/")[2],
                requeue=submission.requeue,
                performance=submission.performance,
                reservation=submission.reservation,
                partition=partition.name,
                array=self._array(submission),
                end_signal=submission.read_signal(),
                nodes=nodes,
            )
        except ValueError as error:
            raise ReshapeError(str(error)) from None

    def _nodes(self, submission: Submission) -> NodeRequest | None:
        """Return what a submission requests of its nodes; None: nothing."""
        constraint, per_process = submission.read_constraint(), submission.per_process
        if not (constraint or submission.exclusive or per_process > 1):
            return None
        named = submission.partition or next(iter(self._config.partitions), "")
        partition = self._idle.named(named)
        whole = 0
        if submission.exclusive:
            whole = _size_of_whole_nodes(submission, partition, self._config.by_node)
        # On one node every place is right, and a selection that takes only some of them may choose.
        is_one_node = partition.state.placing and len(partition.machine.nodes) == 1
        request = NodeRequest(constraint, whole, 1 if is_one_node else per_process)
        return None if request == NodeRequest() else request

    def _partition(self, submission: Submission) -> Partition:
        """Return the partition of a submission after checking its limits."""
        name, n = submission.partition, submission.processors
        if not self._config.partitions:
            if name:
                raise ReshapeError(
                    f"there is no partition {name!r}, as the service has none: leave it out"
                )
            return self._idle.partitions[0]
        within = self._limits.check(name, n, submission.largest, submission.walltime_s)
        return self._idle.named(within)

    def _check_places(self, submission: Submission) -> None:
        """Refuse places in the folders of the service, by their names.

        The service opens no file system of a job, which might not respond. The agent finds out
        where a name leads (`scheduler.node.launching.job_bounds`).
        """
        cwd = submission.cwd
        paths = {"output": os.path.join(cwd, submission.output), "working directory": cwd}
        if submission.error:
            paths["error output"] = os.path.join(cwd, submission.error)
        if restart_from := submission.environment.get(RESTART_VARIABLE, ""):
            paths["directory to restart from"] = restart_from
        for what, path in paths.items():
            if folder := folder_named(path, self._own):
                raise ReshapeError(in_own_folder(what, path, folder))

    def _check_sizes(self, submission: Submission) -> None:
        n = submission.processors
        if not submission.argv:
            raise ReshapeError("no program to run: give it after --")
        if n < 1:
            raise ReshapeError(f"a job needs at least 1 processor, got {n}")
        installed = self._idle.machine.installed
        if not installed:
            raise ReshapeError(
                "the service has no processors: add a pool first (reshape pool add), or serve with"
                " nodes"
            )
        if n > installed:
            raise ReshapeError(
                f"the job asks for {n} processors, the machine has {installed}: ask for fewer"
            )
        kept = installed - self._idle.partitions[0].machine.processors
        if kept and n > installed - kept and not self._config.partitions:
            raise ReshapeError(
                f"the job asks for {n} processors, the machine has {installed}, but"
                f" {kept} of them are kept for redirected jobs: ask for fewer"
            )
        if submission.walltime_s == inf:
            raise ReshapeError(
                "the walltime has to have an end, as neither the partition nor the queue of the job"
                " has a longest one: give a time such as 1-0"
            )
        if not submission.walltime_s > 0:
            raise ReshapeError(f"the walltime must be above 0 s, got {submission.walltime_s:g}")
        maximum = submission.max_processors
        if maximum is not None and maximum < n:
            raise ReshapeError(f"--max {maximum} is below the {n} processors to start with")
        minimum = submission.min_processors
        if minimum is not None and minimum < 1:
            raise ReshapeError(f"--min must be at least 1, got {minimum}")
        if minimum is not None and minimum > n:
            raise ReshapeError(
                f"--min {minimum} is above the {n} processors of -n, on which the job would rather"
                " run: lower --min, or raise -n"
            )
        check_per_process(submission)
        if submission.topology is not None:
            if len(submission.topology.sizes) > MOST_SIZES:
                raise ReshapeError(
                    f"the topology lists {len(submission.topology.sizes)} sizes: list at most"
                    f" {MOST_SIZES}"
                )
            try:
                submission.topology.check_start(n, submission.smallest)
            except ValueError as error:
                raise ReshapeError(str(error)) from None

    def _check_selection(self, submission: Submission, partition: Partition) -> None:
        n = submission.processors
        if not partition.machine.can_place(partition.scenario.selection, n):
            raise ReshapeError(
                f"not even an idle machine has a place for {n} processors by the service's"
                " selection: ask for fewer"
            )

    def _largest(self, submission: Submission, partition: Partition) -> int | None:
        """Return the largest size that the job may have and there are processors for."""
        if submission.script and submission.resizable:
            raise ReshapeError(
                "a job script runs once and is not resized: leave --max and --min out"
            )
        if submission.max_processors is None:
            return None
        named = self._config.partitions
        machine = partition.machine if named else self._idle.machine
        return max(submission.processors, min(submission.max_processors, machine.processors))

    def _check_performance(self, submission: Submission, largest: int | None) -> None:
        """Check the performance model on the sizes of the job, or on 100 of them."""
        text = submission.performance
        if not text:
            return
        listed = self._config.performance_models
        own = text.partition(",")[0]
        if is_own_class(text) and own not in listed:
            raise ReshapeError(
                f"performance model {own!r} is not among the classes that the service may import"
                f" ({', '.join(listed) or 'none'}): list it in performance_models, or write"
                f" {FORMS}"
            )
        try:
            named(text)
        except ValueError as error:
            raise ReshapeError(str(error)) from None
        n, first = submission.processors, submission.smallest
        last = largest or n
        for size in range(first, last + 1, max(1, (last - first) // 100)):
            if speedup_by(text, n, size) is None:
                raise ReshapeError(
                    f"performance model {text!r} gives no speedup above 0 from {n} to {size}"
                    " processors: correct it"
                )

    def _check_resources(self, submission: Submission, partition: Partition) -> None:
        if not submission.resources:
            return
        pools = partition.machine.pools
        installed = dict(zip(pools.names, pools.installed, strict=True))
        for name, amount in submission.resources.items():
            if name not in installed:
                raise ReshapeError(f"there is no resource {name!r}{nearest(name, installed)}")
            if amount < 0:
                raise ReshapeError(f"{name} must be >= 0, got {amount}")
            if amount > installed[name]:
                raise ReshapeError(
                    f"the job asks for {amount} {name}, the machine has {installed[name]}: ask for"
                    " less"
                )

    def _check_demand(self, submission: Submission, partition: Partition) -> None:
        shared = partition.machine.shared
        for name, amount in submission.shared.items():
            if shared is None:
                raise ReshapeError(
                    f"the job declares a demand for {name}, and the nodes share nothing that is"
                    " limited: leave it out, or let the machine file name shared_per_node"
                )
            if not shared.limits(name):
                raise ReshapeError(
                    f"there is no shared resource {name!r}{nearest(name, shared.names)}"
                )
            if amount < 0:
                raise ReshapeError(f"the demand for {name} must be >= 0, got {amount}")

    def _array(self, submission: Submission) -> TaskArray | None:
        tasks, most = submission.read_array(), self._config.max_array_tasks
        if tasks is not None and tasks.count > most:
            raise ReshapeError(
                f"--array: {submission.array!r} has {tasks.count} tasks: an array of this service"
                f" has at most {most} (max_array_tasks)"
            )
        return tasks

    def _queue(self, name: str, submission: Submission) -> QueueConfig:
        """Return the queue of a submission after checking its limits."""
        queues = self._config.queues
        if name not in queues:
            raise ReshapeError(f"there is no queue {name!r}{nearest(name, queues)}")
        queue = queues[name]
        if queue.users is not None and submission.user not in queue.users:
            raise ReshapeError(
                f"user {submission.user} may not submit to queue {name}, only"
                f" {', '.join(queue.users)}"
            )
        most = submission.largest
        if queue.max_processors is not None and most > queue.max_processors:
            raise ReshapeError(
                f"queue {name} has jobs of {queue.max_processors} processors at most, this one"
                f" asks for {most}: ask for fewer, or take another queue"
            )
        longest = queue.max_walltime_s
        if longest is not None and submission.walltime_s > longest:
            raise ReshapeError(
                f"queue {name} has walltimes of {format_time(longest)} at most, this one is"
                f" {format_time(submission.walltime_s)}: ask for less, or take another queue"
            )
        return queue

    def _priority(self, submission: Submission) -> float:
        """Return the user-assigned priority: that of the user, or what it asks for."""
        config, user, asked = self._config, submission.user, submission.priority
        own = config.value_of(config.users.get(user, 0.0))
        if asked is None:
            return own
        try:
            priority = config.value_of(asked)
        except ConfigError as error:
            raise ReshapeError(str(error)) from None
        if config.users and priority > own:
            raise ReshapeError(
                f"priority {asked} is {priority:g}, and user {user} has {own:g}: ask for that or"
                " less, or raise it under users in the configuration of the service"
            )
        return priority


def check_per_process(submission: Submission) -> None:
    """Check the processors of each process.

    Raises
    ------
    ReshapeError : they do not fit the number of processors, or the program may be resized.
    """
    n, per_process = submission.processors, submission.per_process
    if per_process < 1 or n % per_process:
        raise ReshapeError(
            f"--per-process {per_process} does not divide the {n} processors of -n: -n counts the"
            " processors of all processes"
        )
    if per_process > 1 and (submission.topology is not None or submission.resizable):
        raise ReshapeError(
            "a program whose processes have several processors is not resized: leave --max, --min"
            " and --topology out, or --per-process"
        )


def _above_0(amounts: dict[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount} if amounts else amounts


def _check_text(submission: Submission) -> None:
    """Refuse text that tables, file names or the start of a process cannot hold."""
    texts = _texts(submission)
    together = "".join(texts)
    may_be_long = len(together) > _LEAST_LONGEST  # most are shorter than that all together
    is_long = may_be_long and any(map(gt, map(len, texts), _LONGEST.values()))
    if is_long or not together.isprintable():
        for text, (field, most) in zip(texts, _LONGEST.items(), strict=True):
            check_text(text, field, most)
    if not submission.cwd or submission.argv[:1] == [""]:
        what = "program" if submission.cwd else "working directory"
        raise ReshapeError(f"the name of the {what} is empty: give it")
    check_arguments([*submission.wrapper, *submission.argv], submission.environment)
    if submission.limits or submission.umask is not None:
        _check_inherited(submission)


def _without_own(submission: Submission) -> Submission:
    """Return a submission without the parts that no other part of its request depends on.

    Jobs that are submitted one after the other often differ in these alone.
    """
    return replace(
        submission,
        argv=submission.argv[:1],
        wrapper=[],
        environment={},
        text="",
        key="",
        name="",
        cwd="",
        output="",
        error="",
    )


def _check_inherited(submission: Submission) -> None:
    """Refuse a umask, or a resource limit, that no process can have."""
    umask = submission.umask
    if umask is not None and not 0 <= umask <= MOST_UMASK:
        raise ReshapeError(f"the umask must be from 0 to 0777, got {umask:#o}")
    for name, value in submission.limits.items():
        if name not in LIMITS:
            names = ", ".join(LIMITS)
            raise ReshapeError(f"there is no resource limit {plain(name)!r}: known are {names}")
        if not UNLIMITED <= value < 1 << 63:
            raise ReshapeError(f"the limit {name} must be >= 0, or -1 for none, got {value}")


def _size_of_whole_nodes(
    submission: Submission, partition: Partition, installed: Mapping[str, int]
) -> int:
    """Return the number of processors of each node, for a job that gets whole ones."""
    sizes = {node.count for node in partition.machine.nodes.values() if not node.removed}
    if len(sizes) != 1:
        raise ReshapeError(
            "--exclusive needs nodes with the same number of processors, and the nodes here have"
            f" {', '.join(map(str, sorted(sizes))) or 'none'}: ask for processors with -n alone"
        )
    for node in partition.machine.nodes.values():
        if node.count != installed.get(node.name, node.count):
            raise ReshapeError(
                f"--exclusive: partition {partition.name} has {node.count} of the"
                f" {installed[node.name]} processors of node {node.name}, so that no job there"
                " gets the whole node: leave it out"
            )
    size, n, per_process = sizes.pop(), submission.processors, submission.per_process
    if size % per_process:
        raise ReshapeError(
            f"--exclusive: --per-process {per_process} does not divide the {size} processors of a"
            " node: ask for a divisor, or leave --exclusive out"
        )
    if submission.resizable:
        raise ReshapeError(
            "--exclusive: a job with whole nodes is not resized: leave --max and --min out"
        )
    if n % size and not submission.script:
        raise ReshapeError(
            f"--exclusive: processes have all processors, and {n} do not fill nodes of {size}:"
            f" ask for -n {-(-n // size) * size}, or start them from a script (reshape batch)"
        )
    return size


def _check_nodes(request: NodeRequest, processors: int, partition: Partition) -> None:
    """Check that enough nodes of an idle machine are as a job requests them."""
    if partition.state.placing:
        raise ReshapeError(
            "--constraint, --exclusive and --per-process do not go with the service's selection,"
            " which takes only processors that lie together: leave them out"
        )
    nodes = partition.machine.nodes
    features = sorted({feature for node in nodes.values() for feature in node.features})
    obtainable = partition.machine.obtainable(request)
    if not obtainable and request.per_process > 1:
        largest = max((node.count for node in nodes.values()), default=0)
        raise ReshapeError(
            f"--per-process: there are no {request}: the largest node has"
            f" {counted(largest, 'processor')}"
        )
    if not obtainable:
        have = f"nodes have {', '.join(features)}" if features else "no node has a feature"
        raise ReshapeError(f"--constraint: there are no {request}; {have}")
    if processors > obtainable:
        raise ReshapeError(
            f"the job asks for {counted(processors, 'processor')} of {request}, and these"
            f" have {obtainable}: ask for fewer"
        )
