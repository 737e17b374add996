"""``reshape demo --sites``: send one workload to several services by several metrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from rich.console import Console

from scheduler.demo.picture import save
from scheduler.demo.report import as_json, failures, write_json
from scheduler.demo.sites.results import (
    SitesResults,
    draw_sites,
    measure_sites,
    metrics_table,
    sites_table,
)
from scheduler.demo.sites.run import run_by_metric
from scheduler.demo.sites.services import demo_sites
from scheduler.demo.sites.workload import sites_workload

#: Metrics of the demonstration, unless others are given.
DEFAULT_METRICS = ("wait", "work", "queue")


def run_sites_demo(
    count: int,
    metrics: Sequence[str],
    *,
    processors: int,
    scenario: str,
    seed: int,
    jobs: int,
    out: Path,
    json_only: bool,
) -> list[str]:
    """Run one workload by each metric, and print the results.

    Parameters
    ----------
    count : number of sites.
    metrics : metrics by which sites are chosen, one run for each.
    processors : number of processors of the largest site.
    scenario : of all sites.
    out : folder for pictures, results.json and the output of the jobs.
    json_only : whether the results are printed as JSON alone.

    Returns
    -------
    a text for each job that failed or did not verify its result.
    """
    console = Console(stderr=json_only)
    sites = demo_sites(count, processors)
    workload = sites_workload(processors, seed, jobs)
    found, failed = {}, []
    for metric in metrics:
        run = run_by_metric(metric, workload, sites, scenario, out / metric, console)
        its = measure_sites(run, sites)
        pictures = save(draw_sites(run, its, workload, sites), out, f"gantt-{metric}")
        found[metric] = msgspec.structs.replace(its, pictures=[str(path) for path in pictures])
        failed += failures(metric, run.jobs)
    results = SitesResults(seed, scenario, sites, found)
    path = write_json(results, out)
    if json_only:
        click.echo(as_json(results))
        return failed
    console.print(sites_table(sites))
    console.print(metrics_table(found, [site.name for site in sites]))
    files = [picture for its in found.values() for picture in its.pictures]
    console.print(f"{', '.join(files)}, {path}", highlight=False, soft_wrap=True)
    return failed
