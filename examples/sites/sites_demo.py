"""Send one workload to several services, by one metric after the other, and compare the metrics.

    python examples/sites/sites_demo.py --sites 3 --out sites-demo

The services differ in size, speed and price, and run on this machine; each metric begins with new
ones. docs/sites.md describes the output. The exit code is 1 if a job failed or did not verify its
result. All services end with the script, also after an error or Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from sites_results import (
    SiteRun,
    SitesResults,
    measure_sites,
    metrics_table,
    sites_table,
)
from sites_workload import MOST_SITES, DemoSite, SiteDemoJob, demo_sites, sites_workload

from reshape.errors import ReshapeError
from scheduler.client.demo.command import failures, write_json, write_page
from scheduler.client.demo.workload import LONGEST_S, LOOK_S, embedded_service
from scheduler.client.requests.submission import prepare
from scheduler.client.sites.answers import at_once, away_lines, collect
from scheduler.client.sites.sites_file import METRICS, SitesFile, read_sites
from scheduler.client.sites.submitting import (
    RECORDS_VARIABLE,
    SubmissionRecord,
    ranked,
    request_of,
    submit_to_best,
)
from scheduler.protocol.messages import JobInfo
from scheduler.text.tables import render

#: Metrics of the demonstration, unless others are given.
DEFAULT_METRICS = ("wait", "work", "queue")
#: An allocation unit is a processor-second, because the jobs last a few seconds.
UNITS_PER_HOUR = 3600
#: Seconds that a site has for its answers; a busy machine needs long for them.
DEADLINE_S = 30.0


@contextlib.contextmanager
def own_records() -> Iterator[None]:
    """Keep the submission records in a temporary folder instead of that of the user."""
    with tempfile.TemporaryDirectory(prefix="reshape-demo-") as folder:
        os.environ[RECORDS_VARIABLE] = folder
        yield


@contextlib.contextmanager
def running_sites(sites: Sequence[DemoSite], scenario: str, folder: Path) -> Iterator[SitesFile]:
    """Run a service for each site, and end all of them with their jobs in any case.

    Parameters
    ----------
    folder : folder for sites.yaml, and for the journals, NAME/journal.db, that are copied to it at
        the end.

    Yields
    ------
    the contents of sites.yaml.

    Raises
    ------
    ReshapeError : a service cannot be started.
    """
    for site in sites:
        (folder / site.name).mkdir(exist_ok=True)
    with contextlib.ExitStack() as services:
        fields = [
            {
                "name": site.name,
                "directory": str(
                    services.enter_context(
                        embedded_service(
                            site.processors, scenario, folder / site.name / "journal.db"
                        )
                    )
                ),
                "cpu_factor": site.cpu_factor,
                "units_per_hour": UNITS_PER_HOUR,
                "cost_per_unit": site.cost_per_unit,
            }
            for site in sites
        ]
        file = folder / "sites.yaml"
        file.write_bytes(msgspec.yaml.encode({"deadline_s": DEADLINE_S, "sites": fields}))
        yield read_sites(file)


def submit(
    job: SiteDemoJob, number: int, metric: str, sites: SitesFile, folder: Path
) -> SubmissionRecord:
    """Ask all sites, and submit a job to the best one that accepts it.

    Raises
    ------
    ReshapeError : no site takes it.
    """
    submission = prepare(
        job.argv(1.0),
        job.processors,
        walltime_s=job.walltime_s,
        output=f"job-{number}.out",
        environment=os.environ,
        cwd=folder.absolute(),
    )
    answers, failed = collect(sites.sites, submission, sites.deadline_s)
    order, left_out = ranked(metric, request_of(submission), answers)
    failed |= left_out
    for line in away_lines(failed):
        print(line, file=sys.stderr)
    for site in order:
        paced = msgspec.structs.replace(submission, argv=job.argv(site.cpu_factor))
        accepted, refused = submit_to_best([site], paced, secrets.token_hex(8), sites.deadline_s)
        if accepted is not None:
            return accepted
        failed |= refused
    why = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
    raise ReshapeError(f"no site takes job {number}: {why}")


def listed(sites: SitesFile, accepted: Sequence[SubmissionRecord]) -> list[JobInfo]:
    """List the submitted jobs, numbered from 1 in the order of their submission.

    Raises
    ------
    ReshapeError : a site does not answer.
    """
    listings, failed = at_once(
        sites.sites, lambda _, client: client.queue(ended=True), sites.deadline_s
    )
    for name, why in failed.items():
        raise ReshapeError(f"site {name}: {why}")
    by_name = {(name, job.job): job for name, jobs in listings.items() for job in jobs}
    return [
        msgspec.structs.replace(by_name[its.site, its.job], job=number)
        for number, its in enumerate(accepted, 1)
    ]


def run_by_metric(
    metric: str,
    workload: Sequence[SiteDemoJob],
    sites: Sequence[DemoSite],
    scenario: str,
    folder: Path,
) -> SiteRun:
    """Start the sites, send each job to the best one by a metric, and wait for all jobs.

    Parameters
    ----------
    folder : working directory of the jobs, with sites.yaml and the journals of the sites.

    Raises
    ------
    ReshapeError : a service cannot be started or is lost, no site takes a job, or the run exceeds
        its time limit.
    """
    folder.mkdir(parents=True, exist_ok=True)
    accepted: list[SubmissionRecord] = []
    with running_sites(sites, scenario, folder) as file:
        began = time.monotonic()
        for number, job in enumerate(workload, 1):
            time.sleep(max(0.0, job.at_s - (time.monotonic() - began)))
            its = submit(job, number, metric, file, folder)
            accepted.append(its)
            print(f"{metric}: job {number} of {len(workload)} to site {its.site}", file=sys.stderr)
        while late := [str(job.job) for job in listed(file, accepted) if job.ended_at is None]:
            if time.monotonic() - began > LONGEST_S:
                numbers = ", ".join(late)
                raise ReshapeError(f"jobs {numbers} have not ended within {LONGEST_S:.0f} s")
            time.sleep(LOOK_S)
        jobs = listed(file, accepted)
    return SiteRun(metric, [its.site for its in accepted], jobs)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    counts, names = range(2, MOST_SITES + 1), list(METRICS)
    parser.add_argument("--sites", type=int, choices=counts, default=3, help="number of services")
    parser.add_argument("--metric", action="append", choices=names, help="can be repeated")
    parser.add_argument("--processors", type=int, default=8, help="of the largest site (8)")
    parser.add_argument("--scenario", default="easy", help="of all sites (easy)")
    parser.add_argument("--seed", type=int, default=0, help="of the workload (0)")
    parser.add_argument("--jobs", type=int, default=12, help="number of jobs (12)")
    parser.add_argument("--out", type=Path, default=Path("sites-demo"), help="folder for results")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; return the exit code."""
    options = parsed(arguments)
    sites = demo_sites(options.sites, options.processors)
    workload = sites_workload(options.processors, options.seed, options.jobs)
    results, failed = SitesResults(options.seed, options.scenario, sites, {}), []
    with own_records():
        for metric in dict.fromkeys(options.metric or DEFAULT_METRICS):
            folder = options.out / metric
            run = run_by_metric(metric, workload, sites, options.scenario, folder)
            its = measure_sites(run, sites)
            title = f"Sites by the metric {metric}"
            page = write_page(folder, [site.name for site in sites], title)
            results.metrics[metric] = msgspec.structs.replace(its, page=str(page))
            failed += failures(metric, run.jobs)
    path = write_json(results, options.out)
    if options.json:
        print(path.read_text(), end="")
    else:
        names = [site.name for site in sites]
        print(render(sites_table(sites)), render(metrics_table(results.metrics, names)), sep="\n\n")
        print(*(its.page for its in results.metrics.values()), path, sep=", ")
    for text in failed:
        print(text, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    # As on Ctrl-C, so that the context managers end the services and their jobs.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        sys.exit(main())
    except ReshapeError as error:
        sys.exit(f"sites_demo: error: {error}")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
