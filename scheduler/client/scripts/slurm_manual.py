"""The options and variables of Slurm's commands, as the manual of Slurm 24.05 has them.

Each option has an effect here, or is accepted without one, or is refused with what there is in its
place; docs/reference/slurm.md lists them. The options of older releases and of 24.11 that scripts
use are here, too.
"""

from __future__ import annotations

from scheduler.client.scripts.known_options import Known

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
        "file=:f": "the records are those of the service alone",
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
        "sort=:S": "partitions are in the order of the configuration, nodes in that of their names",
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
