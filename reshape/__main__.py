"""The `reshape` command: a table of subcommands, of which only the chosen one is imported.

Exit codes: 0 success, 1 an error that the message explains, 2 wrong usage, 130 interrupted. A
subcommand may have other exit codes, which its help text lists.
"""

from __future__ import annotations

import click

from reshape.cli.lazy_group import Entry, LazyGroup

SUBCOMMANDS = {
    "demo": Entry(
        "scheduler.client.demo.command:demo", "Run a mixed workload, static and resizable."
    ),
    "doctor": Entry(
        "reshape.doctor.command:doctor", "Check whether jobs can run and be resized here."
    ),
    "try": Entry(
        "scheduler.client.commands.try_program:try_program",
        "Run a program with resizes on purpose, and compare.",
    ),
    "serve": Entry("scheduler.client.commands.serve:serve", "Start the scheduler service."),
    "submit": Entry("scheduler.client.commands.submit:submit", "Submit a job."),
    "batch": Entry("scheduler.client.commands.submit:batch", "Submit a job script."),
    "run": Entry(
        "scheduler.client.scripts.run_command:run", "Start a step of a job, from its script."
    ),
    "quote": Entry(
        "scheduler.client.forecasting:quote", "Show when a job would start if submitted now."
    ),
    "queue": Entry("scheduler.client.commands.lists:queue", "List waiting and running jobs."),
    "info": Entry("scheduler.client.commands.jobs:info", "Show the service, or one job in full."),
    "history": Entry("scheduler.client.commands.lists:history", "List ended jobs and their sizes."),
    "stats": Entry("scheduler.client.commands.stats:stats", "Show utilisation, waits and resizes."),
    "web": Entry("scheduler.client.web.command:web", "Show the machine, the queue and jobs, live."),
    "explain": Entry(
        "scheduler.client.commands.jobs:explain", "Show why a job waits or was resized."
    ),
    "node": Entry(
        "scheduler.client.administration.nodes:node", "List, drain, resume and remove nodes."
    ),
    "reserve": Entry(
        "scheduler.client.administration.reservations:reserve",
        "Create, list and cancel advance reservations.",
    ),
    "pool": Entry(
        "scheduler.client.administration.nodes:pool", "Add, list and remove elastic pools."
    ),
    "wait": Entry("scheduler.client.commands.submit:wait", "Wait for jobs to end."),
    "output": Entry("scheduler.client.commands.jobs:output", "Print the output of a job."),
    "cancel": Entry("scheduler.client.commands.jobs:cancel", "Cancel jobs."),
    "hold": Entry("scheduler.client.commands.jobs:hold", "Hold queued jobs."),
    "release": Entry("scheduler.client.commands.jobs:release", "Release held jobs."),
    "requeue": Entry(
        "scheduler.client.commands.jobs:requeue", "End running jobs and queue them again."
    ),
    "update": Entry("scheduler.client.commands.jobs:update", "Change a job's request."),
    "stop": Entry("scheduler.client.commands.jobs:stop", "Stop the scheduler service."),
    "journal": Entry(
        "scheduler.client.administration.journal:journal",
        "Show, check, copy and compact a journal.",
    ),
    "slurm-commands": Entry(
        "scheduler.client.slurm.programs:slurm_commands",
        "Write Slurm's commands over this service.",
    ),
    "access": Entry(
        "scheduler.client.administration.access:access",
        "Create, list and revoke keys for a service on TCP.",
    ),
    "simulate": Entry("simulator.commands.simulate:simulate", "Simulate the jobs of a trace."),
    "study": Entry("simulator.commands.study:study", "Run a grid of simulations and report."),
    "replay": Entry(
        "simulator.commands.replay:replay", "Replay a live run, as it was or with changes."
    ),
    "compare": Entry("simulator.commands.compare:compare", "Compare two runs job by job."),
    "report": Entry(
        "simulator.commands.report:report_command", "Write runs as one page that needs no server."
    ),
    "workload": Entry(
        "simulator.commands.workload:workload", "Describe, convert and generate traces."
    ),
    "agent": Entry("scheduler.node.agent:main", "Serve a node: start and watch its processes."),
}


@click.group(
    cls=LazyGroup,
    entries=SUBCOMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="reshape-mpi", message="reshape %(version)s")
def main() -> None:
    """Run MPI jobs that expand and contract, and the scheduler that resizes them."""


if __name__ == "__main__":
    main(prog_name="reshape")
