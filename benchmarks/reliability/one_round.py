"""One round: a service, its jobs, the faults of a seed, and what must hold afterwards.

    python one_round.py SEED FOLDER [--faults JSON]

prints one JSON object. `campaign.py --seeds SEED` runs it, as root in namespaces of its own: it
sees no other process there and has its own /dev/shm. Without them a fault fills that of the host.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from faults import FOLDER_VARIABLE, Fault, Round, draw
from isolation import collect_journal, is_isolated
from round_checks import check_jobs, check_left, descriptors
from round_service import HERE, Outcome, Service, submit_all
from timed_faults import follow, hits


def run(seed: int, folder: Path, faults: list[Fault]) -> Outcome:
    """Run the round of a seed in a folder that is new."""
    began = time.monotonic()
    (folder / "faults.json").write_bytes(msgspec.json.encode(faults))
    outcome = Outcome(seed, [str(fault) for fault in faults], [fault.phase for fault in faults])
    work = folder / "work"
    work.mkdir()
    (folder / "service").mkdir()
    around = Round(folder)
    if os.getuid() == 0:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder / "service"], check=True
        )
    service = Service(around, outcome)
    service.start()
    if service.wait_up(90.0, first=True) is None:
        outcome.hung.append("the service does not start")
        return outcome
    idle = descriptors(folder)
    acknowledged = submit_all(service, work, seed)
    (folder / "begin").write_text(repr(time.monotonic()))
    cancelled = follow(service, acknowledged)
    check_jobs(service, acknowledged, cancelled, work)
    check_left(service, idle, work)
    outcome.jobs += len(acknowledged)
    outcome.hit = hits(around)
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


def main() -> None:
    """Run one round and print its outcome."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--faults", help="JSON list of faults in place of those of the seed")
    options = parser.parse_args()
    faults = draw(options.seed)
    if options.faults:
        faults = msgspec.json.decode(options.faults, type=list[Fault])
    folder = options.folder.resolve()
    folder.mkdir(parents=True)
    os.environ[FOLDER_VARIABLE] = str(folder)
    paths = [str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    outcome = run(options.seed, folder, faults)
    if is_isolated():
        collect_journal(folder)
    sys.stdout.buffer.write(msgspec.json.encode(outcome) + b"\n")


if __name__ == "__main__":
    main()
