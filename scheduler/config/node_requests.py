"""Admission of jobs that request certain nodes: features of them, whole ones, blocks on each."""

from __future__ import annotations

from collections.abc import Mapping

from reshape.errors import ReshapeError
from scheduler.model.requests import NodeRequest
from scheduler.partition.partition import Partition
from scheduler.protocol.messages import Submission
from scheduler.text.formats import counted


def size_of_nodes(partition: Partition, installed: Mapping[str, int]) -> int:
    """Return the number of processors that each node of a partition has.

    Parameters
    ----------
    installed : processors of each node, by name.

    Raises
    ------
    ReshapeError : the nodes differ, or another partition has a part of one.
    """
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
    return sizes.pop()


def check_whole(submission: Submission, size: int) -> None:
    """Check that a job with whole nodes starts as it was asked to.

    Raises
    ------
    ReshapeError : it is resizable, or would start more processes than it asks for.
    """
    n, per_process = submission.processors, submission.per_process
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


def check_nodes(wanted: NodeRequest, processors: int, partition: Partition) -> None:
    """Check that enough nodes of an idle machine are as a job requests them.

    Raises
    ------
    ReshapeError : there are none or too few, or the selection of the service refuses some of them.
    """
    if partition.state.placing:
        raise ReshapeError(
            "--constraint, --exclusive and --per-process do not go with the service's selection,"
            " which takes only processors that lie together: leave them out"
        )
    nodes = partition.machine.nodes
    features = sorted({feature for node in nodes.values() for feature in node.features})
    obtainable = partition.machine.obtainable(wanted)
    if not obtainable and wanted.per_process > 1:
        largest = max((node.count for node in nodes.values()), default=0)
        raise ReshapeError(
            f"--per-process: there are no {wanted}: the largest node has"
            f" {counted(largest, 'processor')}"
        )
    if not obtainable:
        have = f"nodes have {', '.join(features)}" if features else "no node has a feature"
        raise ReshapeError(f"--constraint: there are no {wanted}; {have}")
    if processors > obtainable:
        raise ReshapeError(
            f"the job asks for {counted(processors, 'processor')} of {wanted}, and these"
            f" have {obtainable}: ask for fewer"
        )
