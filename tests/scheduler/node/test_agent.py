"""A real agent and real processes, under a service that the test plays."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import zmq
from agent_driver import AgentDriver, is_running
from example_counts import repetitions
from msgspec.structs import replace
from process_words import words_of
from stopped import stopped
from waiting import LIMIT_S, wait_until

from reshape.files.job_folder import RESTART_FILE, Position
from reshape.wire.access import AccessFile, read_access, write_private
from reshape.wire.codec import MAX_REQUEST_BYTES, MAX_REQUEST_FRAME_BYTES, PROTOCOL
from scheduler.node.children import END_BYTES, MOST_INTERVALS, MOST_PLACES, ranks_at
from scheduler.protocol import messages as m

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    os.closerange(3, 256)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    if os.fork() == 0:
        open(sys.argv[1] + ".new", "w").write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(1000)
    os._exit(0)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[AgentDriver]:
    with AgentDriver(tmp_path) as driver:
        yield driver


def daemon_of(driver: AgentDriver, job: int, sleep_s: float) -> int:
    """Start a job with a process that leaves the tree of its mpiexec; return its number."""
    file = driver.work / f"daemon-{job}"
    driver.start(job, sys.executable, "-c", DAEMON, str(file), str(sleep_s))
    wait_for(driver, file.exists)
    return int(file.read_text())


def test_an_output_that_is_a_named_pipe_is_refused_and_other_jobs_run(driver):
    driver.start_agent()
    pipe = driver.work / "pipe"
    os.mkfifo(pipe)
    driver.start(1, "true", output=str(pipe))
    driver.start(2, "true")
    ended = driver.ended(1)
    assert ended.exit_code == 126
    assert ended.why == f"cannot write the output {pipe}: not a regular file"
    assert driver.ended(2).exit_code == 0


def test_the_null_device_is_an_output(driver):
    driver.start_agent()
    driver.start(1, "true", output=os.devnull)
    assert driver.ended(1).exit_code == 0


def test_a_start_that_hangs_fails_at_its_deadline_and_other_jobs_run(driver):
    driver.start_agent(start_s=1.0)
    pipe = driver.work / "library"
    os.mkfifo(pipe)
    driver.start(1, "true", LD_PRELOAD=str(pipe))  # the dynamic linker waits for a writer
    driver.start(2, "true")
    assert driver.ended(2).exit_code == 0
    ended = driver.ended(1)
    assert ended.exit_code == 126
    assert "within 1 s: check that their file systems respond" in ended.why


def test_a_program_keeps_the_default_action_of_a_broken_pipe(driver):
    driver.start_agent()
    driver.start(1, "sh", "-c", "grep SigIgn /proc/self/status")
    assert driver.ended(1).exit_code == 0
    ignored = int((driver.work / "1.out").read_text().split()[1], 16)
    assert not ignored & 1 << 12  # SIGPIPE is signal 13


def test_a_broken_pipe_does_not_end_mpiexec(driver):
    """The mpiexec of MPICH may write to a proxy whose processes have ended already."""
    driver.start_agent()
    driver.start(1, "sh", "-c", "echo > started; until test -e go; do sleep 0.01; done")
    mpiexec = psutil.Process(driver.running(1).pid)
    wait_for(driver, (driver.work / "started").exists)
    mpiexec.send_signal(signal.SIGPIPE)
    (driver.work / "go").touch()
    assert driver.ended(1).exit_code == 0


def test_a_job_that_has_run_does_not_start_again(driver):
    """A service whose journal has lost the end of the job may order it."""
    driver.start_agent()
    run = ("sh", "-c", "echo run >> runs; exit 3")
    driver.start(1, *run, RESHAPE_ROLE="first", RESHAPE_TOKEN="one")
    driver.ended(1)
    driver.send(m.SweepJob(job=1))
    driver.until(lambda hello: not hello.groups)
    driver.start(1, *run, RESHAPE_ROLE="first", RESHAPE_TOKEN="one")
    assert driver.ended(1).exit_code == 3
    assert (driver.work / "runs").read_text() == "run\n"
    driver.send(m.SweepJob(job=1))
    driver.until(lambda hello: not hello.groups)
    driver.start(1, *run, RESHAPE_ROLE="first", RESHAPE_TOKEN="another job of this number")
    assert driver.ended(1).exit_code == 3
    assert (driver.work / "runs").read_text() == "run\nrun\n"


def test_no_message_ends_the_agent_or_its_jobs(driver):
    hello = driver.start_agent()
    driver.start(1, "sleep", "1000")
    running = driver.running(1)
    for frames in (
        [b"reshape/999", b"\x81\xa4type\xabLaterThings"],
        [PROTOCOL, msgspec.msgpack.encode({"type": "Unknown", "id": 0})],
        [PROTOCOL, msgspec.msgpack.encode({"type": "KillGroup", "job": "one"})],
        [PROTOCOL, b"\xff\x00 garbage"],
        [b"garbage"],
        [b"", b"", b"", b""],
    ):
        driver.send_frames(frames)
    driver.send(m.Wait(job=1))
    driver.send(m.Failure(message="refused"))
    driver.start(2, "true")
    assert driver.ended(2).exit_code == 0
    assert driver.until(lambda _: True).pid == hello.pid
    assert is_running(running.pid)
    assert "refused: the peer speaks 'reshape/999'" in driver.log()
    assert "jobs [1] continue" in driver.log()


def test_a_message_beyond_the_limit_is_not_read_and_jobs_continue(driver):
    """ZeroMQ closes the connection of the second one; the agent connects again."""
    driver.start_agent(silence_s=1.0)
    driver.start(1, "sleep", "100")
    pid = driver.running(1).pid
    for size in (MAX_REQUEST_BYTES + 1, MAX_REQUEST_FRAME_BYTES + 1):
        driver.send_frames([PROTOCOL, bytes(size)])

    def has_started(hello: m.AgentHello) -> bool:
        driver.start(2, "true")  # what was sent to the closed connection is lost
        return any(status.job == 2 for status in hello.groups)

    driver.until(has_started)
    assert driver.ended(2).exit_code == 0
    assert is_running(pid)
    assert f"at most {MAX_REQUEST_BYTES} are accepted" in driver.log()


def test_many_refused_messages_write_few_lines(driver):
    driver.start_agent()
    for _ in range(500):  # fewer than a socket queues
        driver.send_frames([PROTOCOL, b"garbage"])
    driver.start(1, "true")
    driver.ended(1)
    assert driver.log().count("refused:") < 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"argv": ["echo", "a\0b"]}, "null"),
        ({"environment": {"A": "a\0b"}}, "null"),
        ({"environment": {"A=B": "c"}}, "illegal environment variable name"),
        (
            {"bounds": m.JobBounds("/no/such/folder")},
            "cannot start in /no/such/folder: No such file or directory",
        ),
        (
            {"bounds": m.JobBounds("", "/no/such/folder/out")},
            "cannot write the output /no/such/folder/out",
        ),
        ({"size": 10**6}, "MPI needs 8000000 MiB to start 1 000 000 processes"),
        ({"argv": ["/no/such/program"]}, "cannot start /no/such/program: No such file or dir"),
        ({"argv": ["/etc/passwd"]}, "cannot start /etc/passwd: Permission denied"),
        ({"argv": ["true", "x" * (1 << 18)]}, "Argument list too long"),
    ],
)
def test_a_group_that_cannot_start_is_reported_with_the_reason(driver, change, words):
    driver.start_agent()
    driver.send(msgspec.structs.replace(driver.order(1, "true"), **change))
    ended = driver.ended(1)
    assert (ended.exit_code, ended.began, ended.fault) == (126, False, "job")
    assert words in ended.why
    driver.start(2, "true")
    assert driver.ended(2).exit_code == 0


def test_a_malformed_start_is_reported_with_the_reason(driver):
    driver.start_agent()
    fields = msgspec.to_builtins(driver.order(1, "true")) | {"environment": ["not a mapping"]}
    driver.send_frames([PROTOCOL, msgspec.msgpack.encode(fields)])
    ended = driver.ended(1)
    assert (ended.exit_code, "malformed message" in ended.why) == (126, True)


def test_an_idle_agent_ends_for_a_service_of_another_release(driver):
    driver.start_agent()
    driver.send_frames([b"reshape/999", b""])
    assert driver.agents[-1].wait(LIMIT_S) == 0


def test_an_agent_keeps_the_end_of_a_job_until_a_service_has_it(driver):
    """The service may be away for hours; without its agent the job would count as lost."""
    idle_s = 3.0
    driver.start_agent(idle_s=idle_s)
    driver.start(1, "true")
    driver.ended(1)
    ended = time.monotonic()
    hello = driver.until(lambda _: time.monotonic() - ended > idle_s + 1)
    assert [(end.job, end.exit_code) for end in hello.groups] == [(1, 0)]
    driver.send(m.ForgetGroups(job=1, groups=[1]))
    assert driver.agents[-1].wait(LIMIT_S) == 0


def test_the_next_agent_reports_the_ends_that_a_killed_one_knew(driver):
    driver.start_agent()
    driver.start(1, "sh", "-c", "exit 3")
    driver.start(2, "sleep", "1000")
    driver.start(3, "true")
    first, third = driver.ended(1), driver.ended(3)
    driver.running(2)
    driver.send(m.ForgetGroups(job=3, groups=[1]))
    driver.until(lambda hello: third not in hello.groups)
    memory = driver.place.memory
    cut = memory / "end-1-2-on-n1"
    cut.touch(0o600)
    cut.write_bytes(b"cut o")
    os.mkfifo(memory / "end-1-3-on-n1", 0o600)  # no end blocks the next agent
    shutil.copy(memory / "end-1-1-on-n1", memory / "end-1-7-on-n1")
    driver.kill_agent()
    assert driver.start_agent().groups == [first]
    driver.send(m.SweepJob(job=1))
    driver.until(lambda hello: not hello.groups)
    driver.kill_agent()
    assert driver.start_agent().groups == []
    assert "end-1-2-on-n1: JSON is malformed" in driver.log()
    assert not [*memory.glob("end-*")]


def test_the_next_agent_reports_the_end_of_a_job_that_has_removed_its_folder(driver):
    driver.start_agent()
    driver.start(1, "sh", "-c", "rm -r $RESHAPE_SHM; exit 3")
    first = driver.ended(1)
    driver.kill_agent()
    hello = driver.start_agent()
    assert (hello.groups, hello.folders) == ([first], []), "its data are lost"


def test_the_next_agent_reports_the_end_of_a_job_that_has_filled_the_shared_memory(driver):
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m,mode=0700", "none", driver.place.memory]
    driver.place.memory.mkdir(0o700)
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        driver.start_agent()
        words = ["sh", "-c", "seq 5000; head -c 64m /dev/zero > $RESHAPE_SHM/filler; exit 3"]
        driver.start(1, *words)
        first = driver.ended(1)
        assert os.statvfs(driver.place.memory).f_bavail == 0
        assert len(first.output_end) > END_BYTES
        driver.kill_agent()
        assert driver.start_agent().groups == [replace(first, output_end="")]
        (driver.place.shm(1) / "filler").unlink()
        driver.send(m.AgentStop())
        assert driver.agents[-1].wait(LIMIT_S) == 0
    finally:
        driver.kill_agent()
        subprocess.run(["umount", driver.place.memory], check=True)


def test_an_agent_that_is_terminated_leaves_no_ends(driver):
    """Its service takes the node for lost."""
    driver.start_agent()
    driver.start(1, "sleep", "1000")
    driver.running(1)
    driver.agents[-1].terminate()
    assert driver.agents[-1].wait(LIMIT_S) == 0
    hello = driver.start_agent()
    assert (hello.groups, hello.folders) == ([], [1])


def test_processes_that_left_the_tree_end_with_their_group(driver):
    driver.start_agent()
    daemon = daemon_of(driver, 1, sleep_s=0.0)
    assert driver.ended(1).exit_code == 0
    assert not is_running(daemon)


def test_a_job_ends_with_its_ranks_although_a_child_keeps_its_output_open(driver):
    driver.start_agent()
    driver.start(1, "sh", "-c", "setsid sleep 1000 & echo $! > child; echo done")
    ended = driver.ended(1)
    assert (ended.exit_code, ended.signal) == (0, 0)
    assert not is_running(int((driver.work / "child").read_text()))
    assert (driver.work / "1.out").read_text() == "done\n"


def test_a_new_agent_ends_what_the_old_one_left_before_it_reports(driver):
    old = driver.start_agent()
    daemon = daemon_of(driver, 1, sleep_s=1000.0)
    driver.kill_agent()
    assert is_running(daemon)
    new = driver.start_agent()
    assert new.pid != old.pid
    assert not is_running(daemon)


def test_a_new_agent_reports_restart_points_and_removes_folders_on_request(driver):
    driver.start_agent()
    for job in (1, 2):
        driver.start(job, "sleep", "1000")
        driver.running(job)
        (driver.place.shm(job) / "u.e0.r0").write_bytes(b"data")
    (driver.place.shm(2) / RESTART_FILE).write_bytes(b"")
    driver.kill_agent()
    hello = driver.start_agent()
    assert (hello.groups, hello.folders, hello.restart_points) == ([], [1, 2], [2])
    driver.send(m.SweepJob(job=1))
    driver.until(lambda hello: hello.folders == [2])
    driver.send(m.SweepJob(job=2))
    driver.until(lambda hello: hello.folders == [])
    assert not driver.place.shm(2).exists()


def test_groups_that_the_service_has_recorded_leave_the_reports(driver):
    driver.start_agent()
    driver.start(1, "true")
    driver.start(2, "sleep", "1000")
    driver.ended(1)
    driver.send(m.ForgetGroups(job=1, groups=[1]))
    driver.send(m.ForgetGroups(job=2, groups=[1]))  # it runs, and must stay
    left = driver.until(lambda hello: len(hello.groups) == 1)
    assert [(status.job, status.alive) for status in left.groups] == [(2, True)]
    driver.start(1, "true")  # a late repetition starts nothing
    driver.start(3, "true")
    driver.ended(3)
    assert 1 not in [status.job for status in driver.until(lambda _: True).groups]


def test_a_job_that_restarts_is_not_ended_by_the_deadline_of_the_resize_that_failed(driver):
    """The restart point exists until the restarted job computes, which may take its time."""
    driver.start_agent()
    for job in (1, 2):
        driver.start(job, "sleep", "1000")
        driver.running(job)
        (driver.place.shm(job) / RESTART_FILE).write_bytes(b"")
    driver.send(m.WatchJoin(job=1, serial=1, deadline_s=1.0, bytes_per_s=1e6))
    driver.send(m.KillGroup(job=1, group=1, grace_s=0.0, why="a rank died"))
    driver.ended(1)
    driver.send(msgspec.structs.replace(driver.order(1, "sleep", "1000"), group=2))
    driver.until(lambda hello: any(s.group == 2 and s.alive for s in hello.groups))
    driver.send(m.WatchJoin(job=2, serial=1, deadline_s=1.0, bytes_per_s=1e6))
    assert driver.ended(2).why == "resize 1 did not finish in time"  # later than the other deadline
    (restarted,) = [s for s in driver.until(lambda _: True).groups if s.group == 2]
    assert restarted.alive


def test_the_deadline_of_a_resize_follows_the_size_of_its_restart_point(driver):
    """Otherwise a job with a large `app.state` is ended within each of its joins."""
    driver.start_agent()
    for job, state_bytes in ((1, 10**9), (2, 0)):
        driver.start(job, "sleep", "1000")
        driver.running(job)
        restart_point = driver.place.shm(job) / RESTART_FILE
        restart_point.touch(0o600)
        os.truncate(restart_point, state_bytes)
        driver.send(m.WatchJoin(job=job, serial=1, deadline_s=0.5, bytes_per_s=1e6))
    driver.ended(2)  # after the deadline of the other one, without its state
    assert driver.running(1).alive
    os.truncate(driver.place.shm(1) / RESTART_FILE, 0)
    assert driver.ended(1).why == "resize 1 did not finish in time"


def test_the_deadline_of_a_resize_begins_with_its_restart_point(driver):
    """Before, the program closes its files, for as long as it takes."""
    driver.start_agent()
    for job in (1, 2):
        driver.start(job, "sleep", "1000")
        driver.running(job)
        driver.send(m.WatchJoin(job=job, serial=1, deadline_s=0.5, bytes_per_s=1e6))
    (driver.place.shm(2) / RESTART_FILE).touch(0o600)
    driver.ended(2)
    assert driver.running(1).alive
    began = time.monotonic()
    (driver.place.shm(1) / RESTART_FILE).touch(0o600)
    assert driver.ended(1).why == "resize 1 did not finish in time"
    assert time.monotonic() - began > 0.5


def test_a_probe_tells_whether_the_node_can_start_groups(driver):
    driver.start_agent()
    driver.send(m.ProbeNode(serial=5, processes=10**6))
    assert driver.until(lambda hello: hello.probe == 5).probe_failure == ""
    driver.place.memory.chmod(0o755)
    driver.send(m.ProbeNode(serial=6, processes=1))
    failure = driver.until(lambda hello: hello.probe == 6).probe_failure
    assert failure.startswith(f"{driver.place.memory} has mode 0755")
    driver.place.memory.chmod(0o700)


#: Initialises MPI, names a file and waits.
IN_MPI = """
from mpi4py import MPI; import pathlib, time, sys
time.sleep(0.5); pathlib.Path(sys.argv[1]).touch(); time.sleep(1000)
"""


def in_mpi(driver: AgentDriver) -> tuple[psutil.Process, set[Path]]:
    """Start a program in MPI; return its process and the files in shared memory that it maps."""
    ready = driver.work / "ready"
    driver.start(1, sys.executable, "-c", IN_MPI, str(ready))
    pid = driver.running(1).pid
    wait_for(driver, ready.exists)
    rank = next(p for p in _descendants(pid) if IN_MPI in words_of(p) and not p.children())
    maps = Path(f"/proc/{rank.pid}/maps").read_text()
    own = {Path(word) for word in maps.split() if word.startswith("/dev/shm/mpich_shm_")}
    assert own
    assert all(path.exists() for path in own)
    return rank, own


def test_shared_memory_of_killed_groups_is_removed_and_none_in_use(driver):
    in_use = Path(f"/dev/shm/mpich_shm_{os.getpid():08x}_0")
    driver.start_agent()
    try:
        # As in another container, whose processes an agent does not see.
        with in_use.open("w"):
            rank, own = in_mpi(driver)
            rank.kill()
            assert driver.ended(1).signal == signal.SIGKILL
            wait_for(driver, lambda: not any(path.exists() for path in own))
            assert in_use.exists()
    finally:
        in_use.unlink(missing_ok=True)


def test_the_next_agent_removes_the_shared_memory_of_mpi(driver):
    driver.start_agent()
    rank, own = in_mpi(driver)
    driver.kill_agent()
    wait_until(lambda: not is_running(rank.pid))
    driver.start_agent()
    assert not any(path.exists() for path in own)


def test_a_stand_in_that_hangs_leaves_no_shared_memory(driver):
    driver.start_agent()
    before = set(os.listdir("/dev/shm"))
    file = driver.work / "port"
    program = (
        "from mpi4py import MPI; import os, time, sys; port = MPI.Open_port();"
        "open(sys.argv[1] + '.new', 'w').write(port); os.rename(sys.argv[1] + '.new', sys.argv[1]);"
        "time.sleep(1000)"
    )
    driver.start(1, sys.executable, "-c", program, str(file))  # it never accepts
    wait_for(driver, file.exists)
    environment = driver.order(1).environment
    driver.send(m.CancelAccept(job=1, serial=1, port=file.read_text(), environment=environment))
    wait_for(driver, lambda: stand_ins(driver))
    seen: set[str] = set()

    def have_ended() -> bool:
        running = stand_ins(driver)
        for process in running:
            with contextlib.suppress(psutil.Error):
                seen.update(Path(each.path).name for each in process.memory_maps())
        return not running

    wait_for(driver, have_ended)
    assert any(name.startswith("mpich_shm_") for name in seen)
    wait_for(driver, lambda: not seen & (set(os.listdir("/dev/shm")) - before))


def test_an_agent_that_is_asked_to_stop_leaves_no_shared_memory(driver):
    driver.start_agent()
    driver.start(1, "sleep", "1000")
    driver.running(1)
    (driver.place.shm(1) / "u.e0.r0").write_bytes(b"data")
    driver.send(m.AgentStop())
    assert driver.agents[-1].wait(LIMIT_S) == 0
    assert not driver.place.memory.exists()


def test_an_agent_that_cannot_write_the_access_file_of_jobs_serves_its_node(driver):
    """As while shared memory is full."""
    public, secret = (key.decode() for key in zmq.curve_keypair())
    keys = {"server_key": public, "public_key": public, "secret_key": secret}
    access = AccessFile(endpoint="tcp://127.0.0.1:7077", role="job", user="ann", **keys)
    (driver.place.path / "access").mkdir()
    write_private(driver.place.path / "access" / "job.json", access)
    driver.place.memory.mkdir(0o700)
    driver.place.job_access.mkdir()
    driver.start_agent()
    assert f"cannot write {driver.place.job_access}" in driver.log()
    driver.place.job_access.rmdir()
    driver.start(1, "true")
    assert driver.ended(1).exit_code == 0
    assert read_access(driver.place.job_access) == access


def test_an_agent_that_is_refused_while_its_secret_is_removed_goes_on(driver):
    driver.start_agent()
    (driver.place.path / "secret").unlink()
    driver.send(m.Failure(message="another secret"))
    driver.start(1, "true")
    assert driver.ended(1).exit_code == 0
    assert "the service answers: another secret" in driver.log()
    assert "cannot carry out" not in driver.log()


def test_an_agent_that_was_replaced_leaves_what_the_other_one_uses(driver):
    """Both ran at once because the lock of the node was removed while one was stopped."""
    first = driver.start_agent()
    with stopped(first.pid):
        (driver.place.path / "agent-n1.lock").unlink()
        driver.start_agent()
    driver.start(1, "sleep", "1000")
    running = driver.running(1)
    (driver.place.shm(1) / RESTART_FILE).write_bytes(b"")
    driver.until(lambda hello: hello.pid == first.pid)
    driver.send(m.AgentStop(is_replaced=True))
    assert driver.agents[0].wait(LIMIT_S) == 0
    assert (driver.place.shm(1) / RESTART_FILE).exists()
    assert driver.until(lambda hello: hello.pid != first.pid).groups[0].alive
    assert is_running(running.pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_agent_that_is_terminated_says_so_and_leaves_restart_points(driver, number):
    hello = driver.start_agent()
    driver.start(1, "sleep", "1000")
    driver.running(1)
    (driver.place.shm(1) / RESTART_FILE).write_bytes(b"")
    os.kill(hello.pid, number)
    last = driver.until(lambda hello: hello.ends)
    assert last.keeps_memory
    assert driver.agents[-1].wait(30) == 0
    hello = driver.start_agent()
    assert (hello.groups, hello.restart_points) == ([], [1])


def test_an_order_that_waited_while_the_agent_was_stopped_is_dropped(driver):
    """The service may have lost the node meanwhile, and started the job elsewhere."""
    hello = driver.start_agent(silence_s=1.0)
    os.kill(hello.pid, signal.SIGSTOP)
    driver.start(1, "touch", "ran")
    time.sleep(3.1)  # the time is what matters: more than three intervals of reports
    os.kill(hello.pid, signal.SIGCONT)

    def has_started(hello: m.AgentHello) -> bool:
        driver.start(2, "true")  # what was sent to the closed connection is lost
        return any(status.job == 2 for status in hello.groups)

    driver.until(has_started)
    driver.ended(2)
    assert not (driver.work / "ran").exists()


def test_an_agent_finds_the_directory_of_its_service_after_it_was_moved(driver, tmp_path):
    driver.start_agent(silence_s=1.0)
    go = wait_for_file(driver)
    group = driver.running(1)
    driver.move(tmp_path / "elsewhere")
    assert driver.running(1).pid == group.pid
    go.touch()
    assert (driver.ended(1).exit_code, driver.ended(1).signal) == (0, 0)


def wait_for_file(driver: AgentDriver) -> Path:
    """Start job 1, which ends when a file exists; return the file."""
    go = driver.work / "go"
    driver.start(1, "sh", "-c", f"until test -e {go}; do sleep 0.1; done")
    return go


def test_the_removal_of_the_directory_of_a_service_ends_no_job(tmp_path):
    """If its path is too long for a socket, a file there alone says where the socket is."""
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    with AgentDriver(folder) as driver:
        driver.start_agent(silence_s=1.0)
        go = wait_for_file(driver)
        driver.running(1)
        sockets = driver.place.socket.parent
        shutil.rmtree(driver.place.path)
        reports = itertools.count()
        driver.until(lambda _: next(reports) == 6)  # it looks for the service after three
        go.touch()
        assert (driver.ended(1).exit_code, driver.ended(1).signal) == (0, 0)
        driver.place.path.mkdir()  # for the log
    shutil.rmtree(sockets)


#: Two ranks, of which one has left the loop, and a third one of another group that has ended.
RANKS = """
import os, pathlib, time
from reshape.files.job_folder import Slot
for rank, group in ((2, 9), (1, 1), (0, 1)):
    if os.fork() == 0:
        slot = Slot.claim(pathlib.Path(os.environ["RESHAPE_SHM"]), group)
        slot.enter(0, 17, rank)
        if rank == 1:
            slot.leave()
        break
time.sleep(1000)
"""


def test_reports_say_where_the_ranks_of_a_job_are_when_the_service_asks(driver):
    driver.start_agent()
    for job in (1, 2):
        driver.start(job, sys.executable, "-c", RANKS)
    driver.send(m.LocateRanks(job=3))  # which does not run here
    driver.send(m.LocateRanks(job=1))
    hello = driver.until(lambda hello: len(hello.positions.get(1, ())) == 2)
    assert hello.positions.keys() == {1}
    places = [(at.loop, at.iteration, at.at_point, at.ranks) for at in hello.positions[1]]
    assert places == [(0, -1, False, [(1, 1)]), (0, 17, False, [(0, 0)])]
    driver.send(m.KillGroup(job=1, group=1, grace_s=0.0))
    driver.ended(1)
    assert driver.until(lambda _: True).positions == {}


def test_a_report_of_positions_is_bounded():
    """The positions of the fewest ranks are named."""
    crowd = [Position(1, 1, 2 * rank, 0, 50, True, 1.0) for rank in range(100)]
    lone = [Position(1, 1, 2 * rank + 1, 0, rank, False, 2.0) for rank in range(20)]
    told = ranks_at(crowd + lone)
    assert [(at.iteration, at.ranks) for at in told] == [
        (rank, [(2 * rank + 1, 2 * rank + 1)]) for rank in range(MOST_PLACES)
    ]
    assert len(ranks_at(crowd)[0].ranks) == MOST_INTERVALS


def test_a_later_order_may_end_a_group_sooner_and_not_later(driver):
    driver.start_agent()
    driver.start(1, "sh", "-c", "trap '' TERM; touch up; while :; do sleep 0.01; done")
    wait_for(driver, (driver.work / "up").exists)
    for grace_s in (3600.0, 0.5, 3600.0):
        driver.send(m.KillGroup(job=1, group=1, grace_s=grace_s, why=f"after {grace_s:g} s"))
    ended = driver.ended(1)
    assert (ended.exit_code, ended.signal, ended.why) == (0, 9, "after 3600 s")


def test_a_group_that_is_ended_before_it_begins_says_so(driver):
    driver.start_agent()
    driver.send(driver.order(1, "sleep", "600"))
    driver.send(m.KillGroup(job=1, group=1, grace_s=0.0, why="the job ended"))
    ended = driver.ended(1)
    assert (ended.began, ended.fault, ended.why) == (False, "order", "the job ended")


def test_a_job_that_ends_with_a_bus_error_names_shared_memory(driver):
    driver.start_agent()
    driver.start(1, "sh", "-c", "kill -BUS $$")
    assert "a bus error: /dev/shm may have been full" in driver.ended(1).why


ENDS = [
    ("exit 11", (11, 0)),
    ("kill -SEGV $$", (0, 11)),
    ("exit 139", (139, 0)),
    ("kill -9 $$", (0, 9)),
    ("kill -TERM $$", (0, 15)),
    ("exit 255", (255, 0)),
]


def test_exit_codes_and_signals_are_told_apart(driver):
    """Some of these programs end within a millisecond, when mpiexec has not started all ranks."""
    driver.start_agent()
    ends = ENDS * repetitions(3)
    for number, (script, _) in enumerate(ends, start=1):
        order = driver.order(number, "sh", "-c", script)
        driver.send(msgspec.structs.replace(order, size=1 + number % 2))
    for number, (script, ended) in enumerate(ends, start=1):
        status = driver.ended(number)
        assert (status.exit_code, status.signal) == ended, script


def test_the_rank_that_fails_first_is_reported(driver):
    driver.start_agent()
    script = (
        "test $PMI_RANK = 1 && { echo $PPID > new; mv new parent; exit 7; };"
        "until test -e parent; do sleep 0.01; done;"
        "while kill -0 $(cat parent); do sleep 0.01; done; kill -9 $$"
    )
    driver.send(msgspec.structs.replace(driver.order(1, "sh", "-c", script), size=2))
    ended = driver.ended(1)
    assert (ended.exit_code, ended.signal, ended.rank) == (7, 0, 1)


def test_an_aborted_world_has_the_code_of_the_abort(driver):
    driver.start_agent()
    script = "from mpi4py import MPI; MPI.COMM_WORLD.rank and MPI.COMM_WORLD.Abort(5);"
    order = driver.order(1, sys.executable, "-c", f"{script} MPI.COMM_WORLD.Barrier()")
    driver.send(msgspec.structs.replace(order, size=2))
    ended = driver.ended(1)
    assert (ended.exit_code, ended.signal) == (5, 0)


def test_a_rank_whose_parent_is_killed_ends_by_a_signal(driver):
    driver.start_agent()
    driver.start(1, "sleep", "1000")
    running = driver.status(1, lambda status: status.began)
    (rank,) = (p for p in _descendants(running.pid) if p.name() == "sleep")
    rank.parent().kill()
    ended = driver.ended(1)
    assert (ended.exit_code, ended.signal) == (0, 9)
    assert not is_running(rank.pid)


def test_a_script_without_an_interpreter_line_is_one_of_the_shell(driver):
    driver.start_agent()
    script = driver.work / "script"
    script.write_text("exit $1\n")
    script.chmod(0o755)
    driver.start(1, str(script), "12")
    driver.start(2, "script", "13", PATH=f"{driver.work}:{os.environ['PATH']}")
    assert driver.ended(1).exit_code == 12
    assert driver.ended(2).exit_code == 13


def test_a_signal_to_end_a_job_reaches_its_program_and_mpiexec_blames_nothing(driver):
    driver.start_agent()
    driver.start(1, "sh", "-c", "trap 'echo told; exit 0' TERM; touch 1; sleep 1000 & wait")
    driver.start(2, "sh", "-c", "touch 2; sleep 1000")
    wait_for(driver, (driver.work / "1").exists)
    wait_for(driver, (driver.work / "2").exists)
    for job in (1, 2):
        driver.send(m.KillGroup(job=job, group=1, grace_s=30, why="cancelled"))
    ended = [driver.ended(job) for job in (1, 2)]
    assert [(end.exit_code, end.signal, end.why) for end in ended] == [
        (0, 0, "cancelled"),
        (0, 15, "cancelled"),
    ]
    assert (driver.work / "1.out").read_text() == "told\n"
    note = "reshape: the processes of group 1 were ended: cancelled\n"
    assert (driver.work / "2.out").read_text() == note


def _descendants(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def stand_ins(driver: AgentDriver) -> list[psutil.Process]:
    """Processes of stand-ins that the agent has started."""
    below = _descendants(driver.agents[-1].pid)
    return [process for process in below if "reshape.resizing.stand_in" in words_of(process)]


def wait_for(driver: AgentDriver, condition: Callable[[], Any]) -> Any:
    """Wait until a condition holds, and return its value."""
    return wait_until(condition, driver.log)
