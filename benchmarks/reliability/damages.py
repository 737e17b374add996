"""Damages of a journal: each is refused with a reason, or nothing that was acknowledged is missing.

    python benchmarks/reliability/damages.py [--damages 30] [--seed 0] [--json]

A service without sockets and processes runs jobs, cancels some, leaves others queued and running,
and dies: its files are copied as `kill -9` leaves them, with transactions in the database and in
its log. Earlier copies are kept, too. Each damage is done to a copy of the files: bytes of the
database or of its log are changed, pages are swapped or erased, files are cut off, removed or
replaced by an earlier copy or by the file of another service. Then a service is started on the
copy. The outcome is

- `refused`: the service does not start, and one sentence says why;
- `complete`: all descriptions and submissions are the same as before, and the next job gets a new
  number;
- `wrong`: anything else.

The exit code is 1 if an outcome is wrong.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from desk import Desk

from reshape.errors import ReshapeError
from reshape.wire.codec import MAX_ANSWER_BYTES, encode
from scheduler.config.settings import NodeConfig
from scheduler.model.job import FINAL
from scheduler.protocol import messages as m
from scheduler.protocol.messages import decode

PROCESSORS = 4
#: Jobs in each of the three lives of the service, most of which end in it.
JOBS = 12
DATABASE, LOG, INDEX, MARK = "journal.db", "journal.db-wal", "journal.db-shm", "journal.mark"
PAGE = 4096
#: Fields in the description of a job that change while it runs, or from one second to the next.
CHANGING = ("reason", "processor_seconds", "processor_seconds_by_size")


class Service(Desk):
    """A service without sockets and processes, whose node says how its jobs start and end."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, (NodeConfig("local", PROCESSORS),), scenario="fcfs-pr")
        self.groups: dict[int, m.GroupStatus] = {}

    def answer(self, message: m.Message) -> m.Message:
        """Return the answer to a message as its peer reads it."""
        answered = self.ask(b"peer", message)[-1]
        if isinstance(answered, m.Failure):
            raise ReshapeError(answered.message)
        return decode(encode(answered), MAX_ANSWER_BYTES)

    def submit(self, number: int) -> None:
        """Submit a job of one processor; the environment is as long as that of a shell."""
        environment = {f"VARIABLE_{n}": str(n * number) * 20 for n in range(20)}
        submission = m.Submission(
            ["program", str(number)], 1, 600.0, name=f"job{number}", environment=environment
        )
        answer = self.answer(m.Submit(submission=submission))
        assert isinstance(answer, m.Submitted)
        assert answer.job == number

    def live(self, first: int) -> None:
        """Run some jobs from a number on; of those that started, the latest two do not end."""
        for number in range(first, first + JOBS):
            self.submit(number)
            for job in self.jobs().values():
                if job.state == "STARTING" and job.job not in self.groups:
                    self.groups[job.job] = m.GroupStatus(job.job, 1, True, pid=number)
            self.hello([*self.groups.values()])
            running = [job for job, status in self.groups.items() if status.alive]
            for job in running[:-2]:
                self.groups[job] = m.GroupStatus(job, 1, False, exit_code=job % 3)
            self.hello([*self.groups.values()])
        self.answer(m.ChangeJobs.one(first + JOBS - 1, m.CancelJob()))

    def jobs(self) -> dict[int, m.JobInfo]:
        """Return the descriptions of all jobs."""
        answer = self.answer(m.ListJobs(ended=True))
        assert isinstance(answer, m.JobListing)
        return {job.job: job for job in answer.jobs}

    def acknowledged(self) -> dict[str, object]:
        """Return all that clients know: descriptions of jobs, and submissions of queued ones."""
        jobs = self.jobs()
        found: dict[str, object] = {}
        for number, job in jobs.items():
            known = msgspec.to_builtins(job)
            found[f"job {number}"] = {
                name: value
                for name, value in known.items()
                if job.state in FINAL or name not in CHANGING
            }
            if job.state == "PENDING":
                submission = self.components.applications.submission_of(number)
                found[f"submission {number}"] = msgspec.to_builtins(submission)
        return found

    def die(self) -> None:
        """End without writing anything, as far as the files tell."""
        self.components.journal.discard()
        self.components.journal.close()


class Site:
    """Files of a service that died, and earlier copies of them.

    Parameters
    ----------
    folder : for the copies; `latest` is that of the death.

    Attributes
    ----------
    jobs : number of submissions.
    expected : what had been acknowledged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for life in range(3):
            service = Service(folder / "service")
            service.live(1 + life * JOBS)
            copy(folder / "service", folder / f"life {life}")  # the log has this life
            self.jobs, self.expected = JOBS * (life + 1), service.acknowledged()
            copy(folder / "service", folder / "latest")
            service.components.journal.close()  # all of the log goes into the database
            copy(folder / "service", folder / f"closed {life}")
        other = Service(folder / "other")
        for life in range(4):  # longer than the first one
            other.live(1 + life * JOBS)
        copy(folder / "other", folder / "another service")
        other.die()


def copy(source: Path, target: Path) -> None:
    """Copy the files of a service, in place of those of an earlier copy."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


Damage = Callable[[Path, Site, random.Random], str]
"""Damages the files of a folder; returns what was done."""


def flip(folder: Path, name: str, count: int, numbers: random.Random) -> str:
    """Change bits of a file, one in each of some bytes."""
    data = bytearray((folder / name).read_bytes())
    at = [numbers.randrange(len(data)) for _ in range(count)]
    for place in at:
        data[place] ^= 1 << numbers.randrange(8)
    (folder / name).write_bytes(data)
    return f"bits of {name} changed at {at[:3]}"


def cut(folder: Path, name: str, numbers: random.Random) -> str:
    """Cut a file off."""
    size = numbers.randrange((folder / name).stat().st_size)
    with (folder / name).open("r+b") as file:
        file.truncate(size)
    return f"{name} cut off at {size}"


def erase(folder: Path, name: str, numbers: random.Random) -> str:
    """Write zeros over a page of a file."""
    size = (folder / name).stat().st_size
    at = numbers.randrange(size // PAGE) * PAGE
    with (folder / name).open("r+b") as file:
        file.seek(at)
        file.write(bytes(min(PAGE, size - at)))
    return f"{name} erased from {at} to {at + PAGE}"


def swap(folder: Path, name: str, numbers: random.Random) -> str:
    """Exchange two pages of a file."""
    data = bytearray((folder / name).read_bytes())
    first, second = (page * PAGE for page in numbers.sample(range(len(data) // PAGE), 2))
    kept = data[first : first + PAGE]
    data[first : first + PAGE] = data[second : second + PAGE]
    data[second : second + PAGE] = kept
    (folder / name).write_bytes(data)
    return f"pages at {first} and {second} of {name} swapped"


def remove(folder: Path, *names: str) -> str:
    """Remove files."""
    for name in names:
        (folder / name).unlink()
    return f"removed {', '.join(names)}"


def empty(folder: Path, name: str) -> str:
    """Empty a file."""
    (folder / name).write_bytes(b"")
    return f"{name} emptied"


def replace(folder: Path, source: Path, *names: str) -> str:
    """Take files of another copy."""
    for name in names:
        (folder / name).unlink(missing_ok=True)
        if (source / name).exists():
            shutil.copy(source / name, folder)
    return f"{', '.join(names)} of '{source.name}'"


def garbage(folder: Path, name: str, numbers: random.Random) -> str:
    """Write random bytes in place of a file."""
    (folder / name).write_bytes(numbers.randbytes((folder / name).stat().st_size))
    return f"{name} replaced by garbage"


#: The kinds of damage; `--damages` goes through them in turn. The most frequent ones repeat.
DAMAGES: list[Damage] = [
    lambda f, s, n: flip(f, LOG, 1, n),
    lambda f, s, n: flip(f, DATABASE, 1, n),
    lambda f, s, n: cut(f, LOG, n),
    lambda f, s, n: remove(f, DATABASE),
    lambda f, s, n: remove(f, LOG),
    lambda f, s, n: remove(f, INDEX),
    lambda f, s, n: remove(f, MARK),
    lambda f, s, n: replace(f, s.folder / "closed 1", DATABASE, LOG, INDEX),
    lambda f, s, n: replace(f, s.folder / "closed 0", DATABASE),
    lambda f, s, n: replace(f, s.folder / "life 1", LOG),
    lambda f, s, n: flip(f, DATABASE, 1, n),
    lambda f, s, n: flip(f, LOG, 1, n),
    lambda f, s, n: cut(f, DATABASE, n),
    lambda f, s, n: erase(f, DATABASE, n),
    lambda f, s, n: erase(f, LOG, n),
    lambda f, s, n: swap(f, DATABASE, n),
    lambda f, s, n: flip(f, DATABASE, 20, n),
    lambda f, s, n: flip(f, LOG, 20, n),
    lambda f, s, n: empty(f, DATABASE),
    lambda f, s, n: empty(f, LOG),
    lambda f, s, n: garbage(f, INDEX, n),
    lambda f, s, n: flip(f, MARK, 1, n),
    lambda f, s, n: empty(f, MARK),
    lambda f, s, n: remove(f, DATABASE, LOG, INDEX),
    lambda f, s, n: garbage(f, LOG, n),
    lambda f, s, n: replace(f, s.folder / "life 0", DATABASE, LOG, INDEX),
    lambda f, s, n: replace(f, s.folder / "another service", DATABASE, LOG, INDEX),
    lambda f, s, n: replace(f, s.folder / "another service", LOG, INDEX),
    lambda f, s, n: flip(f, DATABASE, 1, n),
    lambda f, s, n: flip(f, LOG, 1, n),
]


def outcome(folder: Path, site: Site) -> tuple[str, str]:
    """Start a service on damaged files; return the outcome, and the reason or what is wrong."""
    try:
        service = Service(folder)
    except ReshapeError as error:
        return "refused", str(error)
    try:
        found = service.acknowledged()
        keys = {**site.expected, **found}
        differs = [key for key in keys if found.get(key) != site.expected.get(key)]
        if differs:
            return "wrong", f"differs: {', '.join(differs)}"
        service.submit(site.jobs + 1)
    except (ReshapeError, AssertionError) as error:
        return "wrong", f"{type(error).__name__}: {error}"
    finally:
        service.die()
    return "complete", ""


def rows(site: Site, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Do damages one after the other, each to a fresh copy of the files."""
    for number, damage in enumerate(islice(cycle(DAMAGES), count)):
        folder = site.folder / "damaged"
        copy(site.folder / "latest", folder)
        done = damage(folder, site, random.Random(seed * 1_000_003 + number))
        try:
            result, why = outcome(folder, site)
        except Exception:
            result, why = "wrong", traceback.format_exc()
        yield {"damage": done, "outcome": result, "why": why.replace(str(folder), "DIR")}


@contextmanager
def quiet() -> Iterator[None]:
    """Print no log lines."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def main() -> None:
    """Print a line for each damage, or all as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--damages", type=int, default=len(DAMAGES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with quiet(), tempfile.TemporaryDirectory() as folder:
        found = list(rows(Site(Path(folder)), options.damages, options.seed))
    totals = Counter(row["outcome"] for row in found)
    if options.json:
        print(json.dumps({"rows": found, "totals": totals}, indent=2))
    else:
        for row in found:
            print(f"{row['outcome']:<10}{row['damage']}\n{'':<10}{row['why']}".rstrip())
        print(dict(totals))
    sys.exit(bool(totals["wrong"]))


if __name__ == "__main__":
    main()
