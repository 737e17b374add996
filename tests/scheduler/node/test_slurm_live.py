"""The adapter on a real Slurm."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import NoHosts
from slurm_cluster import SlurmCluster

from reshape.errors import ReshapeError
from scheduler.node.slurm import (
    BatchRequest,
    BatchState,
    BatchStatus,
    Slurm,
)

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A Slurm of two hosts; its commands are on the PATH of this process."""
    try:
        with SlurmCluster(hosts=2, keep_s=4) as found, pytest.MonkeyPatch.context() as patch:
            tools = tmp_path_factory.mktemp("bin")
            for name in ("sbatch", "squeue", "sacct", "scancel"):
                program = shutil.which(name)
                assert program is not None
                (tools / name).write_text(
                    f'#!/bin/sh\nexec {" ".join(found.command(program))} "$@"'
                )
                (tools / name).chmod(0o755)
            patch.setenv("SLURM_CONF", found.environment["SLURM_CONF"])
            patch.setenv("SLURM_MEM_PER_NODE", "1")  # of another batch job
            patch.setenv("PATH", str(tools), prepend=":")
            yield found
    except NoHosts as reason:
        pytest.skip(str(reason))


def request(tmp_path: Path, script: str, *options: str, nodes: int = 1) -> BatchRequest:
    output = tmp_path / "output"
    return BatchRequest(f"#!/bin/sh\n{script}\n", nodes, 75.0, "a|b c", tmp_path, output, options)


def until(slurm: Slurm, number: str, state: BatchState) -> BatchStatus:
    end = time.monotonic() + 30.0
    while (status := slurm.statuses([number])[number]).state is not state:
        assert time.monotonic() < end, status
        time.sleep(0.1)
    return status


@pytest.mark.usefixtures("cluster")
def test_a_batch_job_from_submission_to_end(tmp_path: Path) -> None:
    slurm, wanted = Slurm(), request(tmp_path, "pwd; sleep 100", nodes=2)
    assert "on nodes n[1-2] in partition main" in slurm.check(wanted)
    number = slurm.submit(wanted)
    status = until(slurm, number, BatchState.RUNNING)
    assert status.nodes == "n[1-2]"
    assert status.start is not None
    assert status.end == status.start + 120.0, "Slurm rounds time limits up to minutes"
    later = slurm.submit(request(tmp_path, "true", nodes=2))
    assert slurm.statuses([later, number])[later].state is BatchState.QUEUED
    end = time.monotonic() + 30.0
    while not (tmp_path / "output").exists() or not (tmp_path / "output").read_text():
        assert time.monotonic() < end, "the script has not begun"
        time.sleep(0.05)
    slurm.cancel([number, later])
    ended = until(slurm, number, BatchState.ENDED)
    assert ended.word in ("COMPLETING", "CANCELLED")
    assert (tmp_path / "output").read_text().splitlines()[0] == str(tmp_path)
    # Slurm forgets ended jobs, and there is no accounting here.
    until(slurm, number, BatchState.UNKNOWN)
    slurm.cancel([number])


@pytest.mark.usefixtures("cluster")
def test_refusals_quote_the_command_and_its_error(tmp_path: Path) -> None:
    slurm, wanted = Slurm(), request(tmp_path, "true", "--partition=none")
    for call in (slurm.submit, slurm.check):
        with pytest.raises(ReshapeError, match="invalid partition specified: none") as refused:
            call(wanted)
        assert str(refused.value).startswith("sbatch --partition=none --parsable --nodes=1")
    with pytest.raises(ReshapeError, match="'1x' is not the id of a Slurm job"):
        slurm.statuses(["1x"])


@pytest.mark.usefixtures("cluster")
def test_the_fields_of_a_request_precede_its_options(tmp_path: Path) -> None:
    slurm = Slurm()
    number = slurm.submit(request(tmp_path, "sleep 100", "--nodes=2", "--time=1-0"))
    status = until(slurm, number, BatchState.RUNNING)
    assert status.nodes == "n1"
    slurm.cancel([number])
    until(slurm, number, BatchState.ENDED)


def test_an_unknown_id_is_never_running(cluster: SlurmCluster) -> None:
    found = Slurm().statuses(["4711", "4712"])
    assert {status.state for status in found.values()} == {BatchState.UNKNOWN}
    assert Slurm().statuses([]) == {}
    assert cluster.node_states().keys() == {"n1", "n2"}


def test_without_a_controller_nothing_is_said_about_jobs(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = Slurm()
    number = slurm.submit(request(tmp_path, "sleep 100"))
    cluster.stop_controller()
    try:
        with monkeypatch.context() as quick:
            quick.setattr("scheduler.node.slurm.TIMEOUT_S", 1.0)
            with pytest.raises(ReshapeError, match=r"squeue .*: no answer within 1 s"):
                slurm.statuses([number])
    finally:
        cluster.start_controller()
    until(slurm, number, BatchState.RUNNING)
    slurm.cancel([number])


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ReshapeError, match="scancel 12: cannot be started: No such file"):
        Slurm().cancel(["12"])
