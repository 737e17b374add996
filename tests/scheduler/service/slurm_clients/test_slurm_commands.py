"""Slurm's commands over this service: what they print and refuse."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest
from click.testing import CliRunner
from slurm_programs import SlurmPrograms
from waiting import wait_until

from scheduler.client.api.client import Client, ended_jobs
from scheduler.client.slurm.programs import slurm_commands
from scheduler.text.formats import format_moment

SCRIPT = """#!/bin/bash
#SBATCH --job-name=case --time=5 --mem=4GB --nodes=1 --ntasks-per-node=2 --wckey=x
echo job $SLURM_JOB_ID of $SLURM_NTASKS tasks, argument $1
srun --unbuffered --output=part_%j_%t.txt --cpu-bind=none sh -c 'echo $SLURM_PROCID $SLURM_LOCALID'
srun -n1 sh -c 'echo one of $SLURM_NTASKS; exit 3'
"""


@pytest.fixture
def programs(shared_service: Any, tmp_path: Path) -> SlurmPrograms:
    return SlurmPrograms(shared_service, tmp_path / "bin")


def test_a_script_with_steps(programs: SlurmPrograms, shared_service: Any) -> None:
    service = shared_service
    (service.work / "job.sh").write_text(SCRIPT)
    job = int(programs.run("sbatch", "--parsable", "job.sh", "7"))
    assert service.wait(job).exit_code == 3
    output = (service.work / f"slurm-{job}.out").read_text().splitlines()
    assert output[0] == f"job {job} of 2 tasks, argument 7"
    assert "one of 1" in output
    for rank in (0, 1):
        assert (service.work / f"part_{job}_{rank}.txt").read_text() == f"{rank} {rank}\n"
    told = programs.run(
        "sacct", "-j", job, "-X", "-o", "JobID,JobName,State%9,ExitCode,NCPUS", "-P"
    )
    assert told.splitlines() == [
        "JobID|JobName|State|ExitCode|NCPUS",
        f"{job}|case|FAILED|3:0|2",
    ]
    steps = programs.run("sacct", "-n", "-P", "-j", f"{job}.0,{job}.1", "-o", "jobid,state")
    assert steps.splitlines() == [f"{job}.0|COMPLETED", f"{job}.1|FAILED"]


def test_jobs_are_listed_held_changed_and_cancelled(
    programs: SlurmPrograms, shared_service: Any
) -> None:
    told = programs.run("sbatch", "-n", "2", "-J", "held", "-H", "--wrap", "sleep 60")
    match = re.fullmatch(r"Submitted batch job (\d+)\n", told)
    assert match is not None
    job = match[1]
    assert (
        programs.run("squeue", "-h", "-j", job, "-o", "%i|%T|%r") == f"{job}|PENDING|JobHeldUser\n"
    )
    programs.run("scontrol", "update", f"JobId={job}", "TimeLimit=10", "JobName=other")
    shown = programs.call("scontrol", "show", "job", job)
    assert f"JobId={job} JobName=other" in shown
    assert "TimeLimit=00:10:00" in shown
    assert " NumCPUs=2 NumTasks=2" in shown
    programs.call("scontrol", "update", f"JobId={job}", "TimeLimit+=2:00:00")
    assert "TimeLimit=02:10:00" in programs.call("scontrol", "show", "job", job)
    programs.call("scontrol", "update", f"JobId={job}", "timelimit-=5")
    assert "TimeLimit=02:05:00" in programs.call("scontrol", "show", "job", job)
    programs.call("scontrol", "release", job)
    shared_service.until(int(job), "RUNNING")
    assert (
        programs.call("squeue", "--noheader", "--me", "--name=other", "--format=%t %D") == "R 1\n"
    )
    programs.run("scancel", "--signal", "USR1", job)
    programs.call("scancel", "-n", "other")
    assert shared_service.wait(int(job)).state in ("CANCELLED", "FAILED")
    assert programs.call("squeue", "-h", "-j", job) == ""


def test_sizes_of_a_queued_job_are_a_range(programs: SlurmPrograms, shared_service: Any) -> None:
    size = {"min_processors": 2, "max_processors": 8}
    job = shared_service.submit(["sleep", "60"], 4, hold=True, **size)
    assert " NumCPUs=2-8 NumTasks=4" in programs.call("scontrol", "show", "job", str(job))


def test_scancel_cancels_only_what_all_its_options_choose(
    programs: SlurmPrograms, shared_service: Any
) -> None:
    job = int(programs.call("sbatch", "--parsable", "-J", "kept", "--wrap", "sleep 60"))
    shared_service.until(job, "RUNNING")
    programs.call("scancel", "-t", "PENDING", job)
    programs.call("scancel", "-n", "other", job)
    programs.call("scancel", "-u", "nobody", job)
    assert programs.call("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING\n"
    programs.call("scancel", "-t", "R", "-n", "kept", "--me", job)
    assert shared_service.wait(job).state == "CANCELLED"


def test_scancel_takes_tasks_with_other_options(programs: SlurmPrograms) -> None:
    job = int(programs.call("sbatch", "--parsable", "-H", "-a", "0-3", "--wrap", "true"))
    programs.call("scancel", "-u", "nobody", f"{job}_1")
    programs.call("scancel", "--me", "-t", "PD", f"{job}_[0,2]")
    assert programs.call("squeue", "-h", "-r", "-j", job, "-o", "%K") == "1\n3\n"
    programs.call("scancel", "--me", f"{job}_1")
    assert programs.call("squeue", "-h", "-r", "-j", job, "-o", "%K") == "3\n"
    programs.call("scancel", "--me", job)
    assert programs.call("squeue", "-h", "-r", "-j", job) == ""


def test_scancel_tells_the_tasks_that_run_from_those_to_come(
    programs: SlurmPrograms, shared_service: Any, tmp_path: Path
) -> None:
    wrapped = f"sh -c 'touch {tmp_path}/$SLURM_ARRAY_TASK_ID; sleep 60'"
    job = int(programs.call("sbatch", "--parsable", "-a", "0-3%1", "-J", "a", "--wrap", wrapped))
    tasks = ("squeue", "-h", "-r", "-j", job, "-o", "%K %t")
    shared_service.until(job + 1, "RUNNING")
    programs.call("scancel", "-t", "PD", f"{job}_[0,2]")
    assert programs.call(*tasks) == "0 R\n1 PD\n3 PD\n"
    programs.call("scancel", "-t", "R", job)
    assert shared_service.wait(job + 1).state == "CANCELLED"
    shared_service.until(job + 2, "RUNNING")
    programs.call("scancel", "-t", "PD", "-n", "a")
    assert programs.call(*tasks) == "1 R\n"
    wait_until((tmp_path / "1").exists)  # the signal goes to what the script has started
    programs.call("scancel", "-s", "USR1", "-n", "a", job)
    assert shared_service.wait(job + 2).state == "FAILED"


@pytest.mark.parametrize(
    ("words", "line", "told"),
    [
        ("", "", "old kept"),
        ("--export=ALL,FOO=new", "", "new kept"),
        ("--export=FOO='a,b'", "", "a,b"),
        ("--export=NONE", "", ""),
        ("", "--export=OTHER,FOO=line", "line kept"),
        ("--export=OTHER", "--export=NONE", "kept"),
    ],
)
def test_the_environment_of_a_job(
    programs: SlurmPrograms, shared_service: Any, words: str, line: str, told: str
) -> None:
    script = f"#!/bin/sh\n#SBATCH {line or '-n 1'}\necho $FOO $OTHER\n"
    given = ["sbatch", "--parsable", *words.split()]
    job = int(programs.call(*given, stdin=script, FOO="old", OTHER="kept"))
    assert shared_service.wait(job).exit_code == 0
    assert (shared_service.work / f"slurm-{job}.out").read_text() == f"{told}\n"
    assert "--export" not in shared_service.job(job).ignored


def test_an_array_has_a_line_for_each_task(programs: SlurmPrograms, shared_service: Any) -> None:
    script = "#!/bin/sh\necho $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID; exit $SLURM_ARRAY_TASK_ID\n"
    told = programs.call("sbatch", "--parsable", "--array=0-2", "-J", "many", stdin=script)
    job = int(told)
    shared_service.wait(job)
    assert (shared_service.work / f"slurm-{job}_2.out").read_text() == f"{job} 2\n"
    told = programs.call("sacct", "-n", "-X", "-P", "-j", job, "-o", "jobid,state,exitcode")
    expected = [f"{job}_0|COMPLETED|0:0", f"{job}_1|FAILED|1:0", f"{job}_2|FAILED|2:0"]
    assert told.splitlines() == expected
    assert programs.call("scancel", job, code=1).startswith("scancel: error: ")


def test_srun_outside_of_a_job_runs_one(programs: SlurmPrograms) -> None:
    told = programs.run("srun", "-n", "2", "sh", "-c", "echo $SLURM_PROCID of $SLURM_NTASKS")
    assert sorted(told.splitlines()) == ["0 of 2", "1 of 2"]
    assert programs.run("srun", "sh", "-c", "echo no >&2; exit 4", code=4).startswith("no\n")


def test_the_standard_input_of_srun(programs: SlurmPrograms, shared_service: Any) -> None:
    """All tasks get it, or one of them; in a script, and as a job of its own."""
    (shared_service.work / "lines.txt").write_text("one\ntwo\n")
    task = "echo $SLURM_PROCID $(cat)"
    assert programs.run("srun", "-n", "2", "cat", stdin="all\n") == "all\nall\n"
    script = f"""#!/bin/bash
#SBATCH -n 2 --input=lines.txt
read first; echo script $first
srun --input=1 sh -c '{task}' | sort
(echo three; cat lines.txt) | srun sh -c '{task}' | sort
echo 4 | reshape run -n 2 sh -c 'echo $PMI_RANK $(cat)' | sort
"""
    job = int(programs.run("sbatch", "--parsable", stdin=script))
    shared_service.wait(job)
    assert (shared_service.work / f"slurm-{job}.out").read_text().splitlines() == [
        *("script one", "0", "1 two"),
        *("0 three one two", "1 three one two"),
        *("0 4", "1"),
    ]
    assert not [*shared_service.work.glob(".reshape-run-*")]


def test_a_program_reads_while_its_input_is_written(
    programs: SlurmPrograms, shared_service: Any
) -> None:
    """What it does not read any more does not keep it from its end."""
    with subprocess.Popen(
        ["srun", "sh", "-c", "read word; echo read $word; read last; echo then $last"],
        env=programs.environment,
        cwd=shared_service.work,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as done:
        assert done.stdin is not None
        assert done.stdout is not None
        for word, told in (("one", "read one\n"), ("two", "then two\n")):
            done.stdin.write(word + "\n")
            done.stdin.flush()
            assert done.stdout.readline() == told
        assert done.wait(120) == 0


def test_tasks_of_several_processors(programs: SlurmPrograms, shared_service: Any) -> None:
    program = "echo $SLURM_PROCID of $SLURM_NTASKS $OMP_NUM_THREADS"
    told = programs.run("srun", "-n", "2", "-c", "3", "sh", "-c", program)
    assert sorted(told.split("\n")) == ["", "0 of 2 3", "1 of 2 3"]
    script = """#!/bin/sh
#SBATCH -n 2 -c 2
srun sh -c 'echo $SLURM_PROCID $OMP_NUM_THREADS' | sort
reshape run -n 4 --per-process 4 sh -c 'echo one $OMP_NUM_THREADS'
srun -n 3 true 2>&1
"""
    job = int(programs.run("sbatch", "--parsable", stdin=script))
    shared_service.wait(job)
    *lines, refused = (shared_service.work / f"slurm-{job}.out").read_text().splitlines()
    assert lines == ["0 2", "1 2", "one 4"]
    assert f"the step asks for 6 processors, job {job} has 4: ask for fewer" in refused


def test_what_a_step_cannot_have_is_refused(programs: SlurmPrograms, shared_service: Any) -> None:
    script = "#!/bin/sh\nsrun --time=1 true || srun --export=ALL,FOO=new sh -c 'echo $FOO'\n"
    job = int(programs.run("sbatch", "--parsable", stdin=script))
    assert shared_service.wait(job).exit_code == 0
    assert (shared_service.work / f"slurm-{job}.out").read_text().splitlines() == [
        "srun: error: --time has no effect on a step: give it to sbatch",
        "new",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_srun_cancels_its_job(
    programs: SlurmPrograms, shared_service: Any, tmp_path: Path, number: int
) -> None:
    program = f"echo begun $RESHAPE_JOB; exec sleep 6{number}"
    with subprocess.Popen(
        ["srun", "sh", "-c", program],
        env=programs.environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as done:
        assert done.stdout is not None
        told, job = done.stdout.readline().split()  # while the job runs
        done.send_signal(number)
        assert done.wait(60) != 0
    assert told == "begun"
    assert shared_service.job(int(job)).state == "CANCELLED"
    assert [*tmp_path.glob(".*")] == []


def test_commands_of_an_interpreter_whose_path_has_spaces(
    shared_service: Any, tmp_path: Path
) -> None:
    (tmp_path / "with spaces").symlink_to(sys.prefix)
    python = tmp_path / "with spaces" / "bin" / "python"
    programs = SlurmPrograms(shared_service, tmp_path / "bin", python)
    assert programs.run("sinfo", "--version").startswith("slurm ")


def test_other_programs_are_not_replaced(shared_service: Any, tmp_path: Path) -> None:
    (tmp_path / "squeue").write_text("another\n")
    words = ["--dir", str(shared_service.directory), str(tmp_path)]
    refused = CliRunner().invoke(slurm_commands, words)
    assert f"{tmp_path}/squeue is another program" in str(refused.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["squeue"]
    (tmp_path / "squeue").unlink()
    for _ in range(2):
        assert CliRunner().invoke(slurm_commands, words).exit_code == 0


def test_the_service_in_the_words_of_slurm(programs: SlurmPrograms) -> None:
    assert programs.call("sinfo", "-h", "-o", "%P %D %c").split() == ["main*", "1", "8"]
    assert re.fullmatch(r"(\d)/\d/0/8\n", programs.call("sinfo", "-ho%C"))
    assert programs.call("sinfo", "-hN").split()[:3] == ["local", "1", "main*"]
    assert programs.call("scontrol", "ping").endswith(" is UP\n")
    assert "ExitCode" in programs.call("sacct", "--helpformat")
    assert programs.call("scontrol", "show", "hostnames", "n[08-10],m").split() == [
        *("n08", "n09", "n10", "m")
    ]
    told = programs.call("scontrol", "show", "hostnames", SLURM_JOB_NODELIST="a[1-2,4]")
    assert told.split() == ["a1", "a2", "a4"]
    assert re.search(r"^ClusterName *= reshape$", programs.call("scontrol", "show", "config"), re.M)
    assert "NodeName=local CPUAlloc=0 CPUTot=8" in programs.call("scontrol", "show", "node")
    assert programs.call("sinfo", "--version").startswith("slurm ")


def test_waiting_for_an_array_returns_the_highest_code(programs: SlurmPrograms) -> None:
    script = "#!/bin/sh\nexit $SLURM_ARRAY_TASK_ID\n"
    programs.call("sbatch", "--wait", "--array=0,7,3", stdin=script, code=7)
    programs.call("sbatch", "--array=0", stdin=script, SBATCH_WAIT="1")


def test_variables_stand_for_options(programs: SlurmPrograms, shared_service: Any) -> None:
    """The command line overrides them, and they override the lines of a script."""
    script = "#!/bin/sh\n#SBATCH -J line -t 9 -n 3\ntrue\n"
    given = {"SBATCH_JOB_NAME": "variable", "SBATCH_TIMELIMIT": "0-00:90", "SBATCH_ACCOUNT": "me"}
    for words, name in (((), "variable"), (("-J", "words"), "words")):
        job = int(programs.call("sbatch", "--parsable", "-H", *words, stdin=script, **given))
        told = shared_service.job(job)
        assert (told.name, told.walltime_s, told.requested) == (name, 5400, 3)
        assert told.ignored == "--account=me"
        assert (
            programs.call("squeue", "-h", "-j", job, SQUEUE_FORMAT="%j %l") == f"{name} 01:30:00\n"
        )
        programs.call("scancel", job)
    assert "SBATCH_TIMELIMIT: " in programs.call(
        "sbatch", "-H", stdin=script, code=1, SBATCH_TIMELIMIT="x"
    )


def test_the_variables_of_a_job_and_its_steps(
    programs: SlurmPrograms, shared_service: Any, tmp_path: Path
) -> None:
    names = (
        *("CPUS_ON_NODE", "JOB_CPUS_PER_NODE", "TASKS_PER_NODE", "NTASKS_PER_NODE"),
        *("JOB_PARTITION", "SUBMIT_DIR", "RESTART_COUNT"),
    )
    show = "echo " + " ".join(f"$SLURM_{name}" for name in names)
    more = (
        "echo $SLURM_SUBMIT_HOST $SLURMD_NODENAME; echo $SLURM_JOB_START_TIME $SLURM_JOB_END_TIME"
    )
    script = f"""#!/bin/sh
#SBATCH -N1 --ntasks-per-node=2 -c 2 -t 10 --chdir={tmp_path}
{show}
{more}
srun -n 1 sh -c '{show}; {more}'
"""
    job = int(programs.run("sbatch", "--parsable", stdin=script))
    assert shared_service.wait(job).exit_code == 0
    lines = (tmp_path / f"slurm-{job}.out").read_text().splitlines()
    where = f"main {shared_service.work} 0"
    assert lines[0] == f"4 4 2 2 {where}"
    assert lines[3] == f"2 4 1 2 {where}", "of the step, and of its job"
    assert lines[1] == lines[4] == f"{gethostname()} {gethostname()}"
    begin, end = map(int, lines[2].split())
    assert end - begin == 600
    started_at = shared_service.job(job).started_at
    assert started_at - 1 <= begin <= started_at + 60
    assert lines[5] == lines[2]


def test_ends_and_nodes(programs: SlurmPrograms, shared_service: Any) -> None:
    """A running job ends at its walltime at the latest; an ended one names its nodes."""
    script = "sleep 60 # \x1b[31m"
    job = int(programs.call("sbatch", "--parsable", "-t", "0-72:00", "--wrap", script))
    shared_service.until(job, "RUNNING")
    started_at = shared_service.job(job).started_at
    end = format_moment(started_at + 3 * 86400)
    assert programs.call("squeue", "-h", "-j", job, "-w", "local", "-o", "%e") == f"{end}\n"
    assert programs.call("squeue", "-h", "-j", job, "--notme") == ""
    assert f" EndTime={end}" in programs.call("scontrol", "show", "job", job)
    told = programs.call("sacct", "-nPX", "-j", job, "-o", "end,nodelist")
    assert told == "Unknown|local\n"
    told = programs.call("sacct", "-PX", "-j", job, "-o", "jobid,command").splitlines()
    assert told[0] == "JobID|command"
    assert told[1].endswith(r"sleep 60 # \x1b[31m wrap")
    told = programs.call("sacct", "-X", "-j", job, "-o", "jobid%8,state").splitlines()
    assert told == ["   JobID State     ", "-------- ----------", f"{job:>8} RUNNING   "]
    programs.call("scancel", job)
    shared_service.wait(job)
    fields = "state,nodelist,elapsedraw,timelimitraw"
    for since in ("now-1days", "today", "00:00"):
        told = programs.call("sacct", "-nPX", "-j", job, "-S", since, "-o", fields, "-N", "local")
        assert re.fullmatch(r"CANCELLED\|local\|\d+\|4320\n", told)
    assert programs.call("sacct", "-nPX", "-j", job, "-S", "tomorrow") == ""
    assert programs.call("sacct", "-nPX", "-j", job, "-N", "n[1-9]") == ""
    job = int(programs.call("sbatch", "--parsable", "--wrap", "true"))
    shared_service.wait(job)
    assert programs.call("sacct", "-nPX", "-j", job, "-o", "reason") == "\n", "a line for the job"


def test_ended_jobs_are_listed_in_several_requests(
    programs: SlurmPrograms, shared_service: Any
) -> None:
    jobs = [int(programs.call("sbatch", "--parsable", "--wrap", "true")) for _ in range(3)]
    for job in jobs:
        shared_service.wait(job)
    with Client(shared_service.directory) as service:
        in_parts = [job.job for job in ended_jobs(service, {"limit": 2})]
        assert in_parts == [job.job for job in ended_jobs(service, {})]
    assert {*jobs} <= {*in_parts}


def test_each_task_has_a_line(programs: SlurmPrograms) -> None:
    job = int(programs.call("sbatch", "--parsable", "-H", "--array=1-5:2%2", "--wrap", "true"))
    try:
        assert programs.call("squeue", "-h", "-j", job, "-o", "%i") == f"{job}_[1-5:2%2]\n"
        told = programs.call("squeue", "-hr", "-j", job, "-o", "%i %t")
        assert told == "".join(f"{job}_{index} PD\n" for index in (1, 3, 5))
        assert programs.call("squeue", "-h", "-j", f"{job}_3", "-o", "%i") == f"{job}_3\n"
        shown = programs.call("scontrol", "show", "job", job, f"{job}_3")
        assert f"JobId={job} ArrayJobId={job} ArrayTaskId=1-5:2%2 JobName=" in shown
        assert f"JobId={job + 2} ArrayJobId={job} ArrayTaskId=3 JobName=" in shown
    finally:
        programs.call("scancel", job)


def test_nodes_are_chosen_by_name_and_state(programs: SlurmPrograms) -> None:
    for words, found in (
        ("-n local,other", True),
        ("-n n[1-3]", False),
        ("-t idle,mixed,alloc", True),
        ("-t down,drained", False),
        ("-d", False),
        ("-r", True),
    ):
        assert bool(programs.call("sinfo", "-hN", "-o", "%N", *words.split()).strip()) == found


def test_the_help_of_a_command(programs: SlurmPrograms) -> None:
    assert "  -J, --job-name=VALUE\n" in programs.call("sbatch", "--help")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("sbatch none.sh", "sbatch: error: cannot read the script none.sh"),
        (
            "sacct -S 2026-05-02 -E 2026-05-01",
            "Start time (2026-05-02T00:00:00) requested is after end time (2026-05-01T00:00:00)",
        ),
        ("sbatch --nodes=none --wrap true", "--nodes: expected a number >= 1, got 'none'"),
        ("srun", "srun: error: name a program to run"),
        ("sbatch --export==x --wrap true", "sbatch: error: --export==x: '=x' has no name"),
        ("squeue -j abc", "squeue: error: Invalid job id: abc\n"),
        ("squeue -j 3,_4", "squeue: error: Invalid job id: _4\n"),
        ("sacct -j 0", "sacct: error: Invalid job id: 0\n"),
        ("squeue -t FOO", "squeue: error: 'FOO' is no state of a job: known are BOOT_FAIL"),
        ("sacct -s FOO", "sacct: error: 'FOO' is no state of a job"),
        ("scancel -t FOO", "scancel: error: 'FOO' is no state of a job"),
        ("scontrol show hostnames", "show hostnames: name hosts: SLURM_JOB_NODELIST is not set"),
        ("scontrol show hostnames n[x]", "'n[x]' is not a list of hosts"),
        ("scontrol show node none", "there is no node 'none': known are local"),
        ("scontrol show partition none", "there is no partition 'none': known are main"),
        ("squeue -o %y", "squeue: error: the format has the letter %y"),
        ("sacct -o JobIdd", "sacct: error: the format has the field 'JobIdd'"),
        ("sacct -S soon", "sacct: error: 'soon' is not a moment"),
        ("sbatch -t UNLIMITED --wrap true", "sbatch: error: the walltime has to have an end, as"),
        ("sbatch -t 0 --wrap true", "sbatch: error: the walltime has to have an end, as neither"),
        ("sacct -N n[", "sacct: error: 'n[' is not a list of hosts"),
        ("sinfo -t odd", "sinfo: error: 'odd' is no state of a node: known are all, alloc"),
        ("scancel", "scancel: error: No job identification provided"),
        ("scancel 99999", "scancel: error: there is no job 99999"),
        ("scancel -s FOO 1", "scancel: error: --signal:"),
        ("scontrol reboot", "scontrol: error: scontrol reboot is not there: nodes are not"),
        ("scontrol rebot", "scontrol: error: invalid keyword: 'rebot'"),
        ("scontrol update JobId=1 Foo=2", "scontrol: error: update: 'foo' is not known"),
        ("scontrol update TimeLimit=2", "scontrol: error: update: 'JobId' is missing"),
        ("scontrol update JobId=1 Name+=a", "update: name+= is not there: give the whole value"),
        ("sinfo -o %y", "sinfo: error: the format has the letter %y"),
    ],
)
def test_what_is_refused(programs: SlurmPrograms, words: str, told: str) -> None:
    assert told in programs.call(*words.split(), code=1)
