"""The options and variables of Slurm's commands: the manual, the tables and the page agree."""

from __future__ import annotations

import re

import pytest
from paths import ROOT

from scheduler.client.requests.slurm_manual import MANUAL, SCONTROL_REFUSED
from scheduler.client.slurm.variables import SlurmTask, slurm_variables

PAGE = (ROOT / "docs" / "reference" / "slurm.md").read_text()
#: Options of sbatch, srun and so on in the manual of Slurm 24.05, version excepted.
OPTIONS = {
    "sbatch": """
    account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment constraint
    container container-id contiguous core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task
    deadline delay-boot dependency distribution error exclude exclusive export export-file extra
    extra-node-info get-user-env gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket
    gpus-per-task gres gres-flags help hint hold ignore-pbs input job-name kill-on-invalid-dep
    licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nice
    no-kill no-requeue nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node
    ntasks-per-socket oom-kill-step open-mode output overcommit oversubscribe parsable partition
    prefer priority profile propagate qos quiet reboot requeue reservation resv-ports segment signal
    sockets-per-node spread-job stepmgr switches test-only thread-spec threads-per-core time
    time-min tmp tres-bind tres-per-task uid usage use-min-nodes verbose wait wait-all-nodes wckey
    wrap
    """,
    "srun": """
    accel-bind account acctg-freq bb bbf bcast bcast-exclude begin chdir cluster-constraint clusters
    comment compress constraint container container-id contiguous core-spec cores-per-socket
    cpu-bind cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency disable-status
    distribution epilog error exact exclude exclusive export external-launcher extra extra-node-info
    gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags help
    het-group hint hold immediate input interactive job-name jobid kill-on-bad-exit label licenses
    mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus mpi msg-timeout
    multi-prog network nice no-allocate no-kill nodefile nodelist nodes ntasks ntasks-per-core
    ntasks-per-gpu ntasks-per-node ntasks-per-socket oom-kill-step open-mode output overcommit
    overlap oversubscribe partition prefer preserve-env priority profile prolog propagate pty qos
    quiet quit-on-interrupt reboot relative reservation resv-ports segment send-libs signal
    slurmd-debug sockets-per-node spread-job switches task-epilog task-prolog test-only thread-spec
    threads threads-per-core time time-min tmp treewidth tres-bind tres-per-task uid unbuffered
    usage use-min-nodes verbose wait wckey whole x11
    """,
    "squeue": """
    account all array array-unique clusters federation format Format help hide iterate jobs json
    licenses local long me name noconvert nodelist noheader notme only-job-state partition priority
    qos reservation sibling sort start states steps usage users verbose yaml
    """,
    "sacct": """
    accounts allclusters allocations allusers array associations batch-script brief clusters
    completion constraints delimiter duplicates endtime env-vars expand-patterns extra federation
    file flags format gid helpformat help jobs json local long name ncpus nnodes noconvert nodelist
    noheader parsable parsable2 partition qos reason starttime state timelimit-max timelimit-min
    truncate units usage use-local-uid user verbose wckeys whole-hetjob yaml
    """,
    "sinfo": """
    all clusters dead exact federation format Format future help hide iterate json list-reasons
    local long noconvert Node nodes noheader partition reservation responding sort states summarize
    usage verbose yaml
    """,
    "scancel": """
    account admin-comment batch clusters cron ctld full help hurry interactive me name nodelist
    partition qos quiet reservation sibling signal state usage user verbose wckey
    """,
    "scontrol": """
    all clusters details federation future help hide json local oneliner quiet sibling uid usage
    verbose yaml
    """,
}
#: Verbs of scontrol in the manual, those of its interactive mode excepted.
VERBS = """
abort cancel_reboot completing create delete errnumstr fsdampeningfactor getent hold listjobs
listpids liststeps notify pidinfo ping power reboot reconfigure release requeue requeuehold resume
schedloglevel setdebug setdebugflags show shutdown suspend takeover token top uhold update wait_job
write
"""
#: Variables that sbatch and srun set for the programs of a job, in the manual.
OUTPUT = """
SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_COUNT SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_MAX
SLURM_ARRAY_TASK_MIN SLURM_ARRAY_TASK_STEP SLURM_CLUSTER_NAME SLURM_CONTAINER SLURM_CONTAINER_ID
SLURM_CPUS_ON_NODE SLURM_CPUS_PER_GPU SLURM_CPUS_PER_TASK SLURM_CPU_BIND SLURM_DIST_PLANESIZE
SLURM_DISTRIBUTION SLURM_EXPORT_ENV SLURM_GPUS SLURM_GPUS_ON_NODE SLURM_GPUS_PER_NODE
SLURM_GPUS_PER_SOCKET SLURM_GPUS_PER_TASK SLURM_GPU_BIND SLURM_GPU_FREQ SLURM_GTIDS SLURM_HET_SIZE
SLURM_JOBID SLURM_JOB_ACCOUNT SLURM_JOB_CPUS_PER_NODE SLURM_JOB_DEPENDENCY SLURM_JOB_END_TIME
SLURM_JOB_GPUS SLURM_JOB_ID SLURM_JOB_NAME SLURM_JOB_NODELIST SLURM_JOB_NUM_NODES
SLURM_JOB_PARTITION SLURM_JOB_QOS SLURM_JOB_RESERVATION SLURM_JOB_START_TIME
SLURM_LAUNCH_NODE_IPADDR SLURM_LOCALID SLURM_MEM_BIND SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU
SLURM_MEM_PER_NODE SLURM_NNODES
SLURM_NODEID SLURM_NODELIST SLURM_NPROCS SLURM_NTASKS SLURM_NTASKS_PER_CORE SLURM_NTASKS_PER_GPU
SLURM_NTASKS_PER_NODE SLURM_NTASKS_PER_SOCKET SLURM_OOM_KILL_STEP SLURM_OVERCOMMIT
SLURM_PRIO_PROCESS SLURM_PROCID SLURM_PROFILE SLURM_RESTART_COUNT SLURM_SHARDS_ON_NODE
SLURM_SRUN_COMM_HOST SLURM_SRUN_COMM_PORT SLURM_STEPID SLURM_STEP_ID SLURM_STEP_GPUS
SLURM_STEP_LAUNCHER_PORT SLURM_STEP_NODELIST SLURM_STEP_NUM_NODES SLURM_STEP_NUM_TASKS
SLURM_STEP_TASKS_PER_NODE SLURM_SUBMIT_DIR SLURM_SUBMIT_HOST SLURM_TASKS_PER_NODE SLURM_TASK_PID
SLURM_THREADS_PER_CORE SLURM_TOPOLOGY_ADDR SLURM_TOPOLOGY_ADDR_PATTERN SLURM_TRES_PER_TASK
SLURM_UMASK SLURMD_NODENAME
"""


def bullet(command: str, title: str) -> str:
    """Text of a part of the section of a command on the page."""
    section = re.search(rf"^### `{command}`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None, f"the page has no section of {command}"
    found = re.search(
        rf"^- \*\*{title}\.\*\* (.*?)(?=^- |\Z)", section[1], re.MULTILINE | re.DOTALL
    )
    return "" if found is None else found[1]


@pytest.mark.parametrize("command", OPTIONS)
def test_every_option_of_the_manual_is_known(command: str) -> None:
    assert {*OPTIONS[command].split()} - {*MANUAL[command].options} == set()


@pytest.mark.parametrize("command", OPTIONS)
def test_the_page_lists_the_options_of_a_command(command: str) -> None:
    options = MANUAL[command].options
    parts = {
        "Effect": {name for name, option in options.items() if option.has_effect},
        "No effect": {
            name for name, option in options.items() if not (option.has_effect or option.instead)
        },
        "Refused": {name for name, option in options.items() if option.instead},
    }
    assert {
        title: {*re.findall(r"`--([\w-]+)`", bullet(command, title))} for title in parts
    } == parts
    for option in options.values():
        assert not option.instead or option.instead in " ".join(bullet(command, "Refused").split())


@pytest.mark.parametrize("command", OPTIONS)
def test_the_page_lists_the_variables_of_a_command(command: str) -> None:
    variables = MANUAL[command].variables
    assert {*variables.values()} <= {*MANUAL[command].options}
    assert {*re.findall(r"`([A-Z0-9_]+)`", bullet(command, "Variables"))} == {*variables}


def test_every_verb_of_scontrol_is_known() -> None:
    refused = {verb for verbs in SCONTROL_REFUSED for verb in verbs.split()}
    used = {"hold", "ping", "release", "requeue", "show", "uhold", "update"}
    assert refused | used == {*VERBS.split()}
    assert {*re.findall(r"`(\w+)`", bullet("scontrol", "Verbs"))} == refused


def test_the_page_lists_the_variables_that_jobs_do_not_have() -> None:
    environment = {
        **dict.fromkeys(
            ("RESHAPE_JOB", "RESHAPE_STEP", "RESHAPE_PARTITION", "RESHAPE_REQUEUES"), "1"
        ),
        **{f"RESHAPE_ARRAY_{name}": "1" for name in ("JOB_ID", "TASK_ID")},
        **{f"RESHAPE_ARRAY_TASK_{name}": "1" for name in ("COUNT", "MIN", "MAX", "STEP")},
    }
    given = {*slurm_variables(environment, SlurmTask(2, 1, "a", 2), 0.0)}
    left_out = {*OUTPUT.split()} - given
    found = re.search(r"Jobs do not have (.*?)\.\n", PAGE, re.DOTALL)
    assert found is not None
    assert {*re.findall(r"`(SLURM\w+)`", found[1])} == left_out


def test_the_numbers_of_nodes_are_written_as_in_slurm() -> None:
    environment = {"RESHAPE_NODELIST": "a,b,c", "RESHAPE_PROCESSORS_OF_NODES": "4,4,2"}
    given = slurm_variables(environment | {"RESHAPE_WALLTIME_S": "60"}, SlurmTask(5, 2, "a"), 7.5)
    assert given["SLURM_JOB_CPUS_PER_NODE"] == "4(x2),2"
    assert given["SLURM_TASKS_PER_NODE"] == "2(x2),1"
    assert (given["SLURM_CPUS_ON_NODE"], given["SLURMD_NODENAME"]) == ("4", "a")
    assert (given["SLURM_JOB_START_TIME"], given["SLURM_JOB_END_TIME"]) == ("7", "67")
