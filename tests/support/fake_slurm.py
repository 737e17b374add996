"""Programs `sbatch`, `squeue`, `sacct`, `scancel` and `srun` for tests on hosts without Slurm.

They keep batch jobs as files of a folder. A batch job starts when a file ``grant`` there allows it:
its script runs then, and `srun` starts the command once for each task, with SLURM_PROCID. Each call
of a program is noted with its time in ``calls``.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

_PROGRAM = """#!{python}
import json, os, pathlib, signal, subprocess, sys, time
state = pathlib.Path({state!r})
me, words = os.path.basename(sys.argv[0]), sys.argv[1:]
def value(name, default=None):
    found = [w.split("=", 1)[1] for w in words if w.startswith("--" + name + "=")]
    return found[-1] if found else default
def note():
    with open(state / "calls", "a") as file:
        file.write(f"{{time.time():.3f}} {{me}} {{' '.join(words)}}\\n")
def jobs():
    for path in sorted(state.glob("*.json"), key=lambda p: int(p.stem)):
        yield path, json.loads(path.read_text())
def save(path, job):
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(job))
    draft.rename(path)
def alive(job):
    "Whether a process of the job is left; zombies, which init may leave for seconds, do not count."
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(group) == job["group"] and state not in "ZX":
            return True
    return False
def signal_all(job, number):
    try:
        os.killpg(job["group"], number)
    except ProcessLookupError:
        pass
def refresh():
    free = int((state / "grant").read_text()) if (state / "grant").exists() else 0
    running = 0
    for path, job in jobs():
        if job["state"] == "RUNNING" and not alive(job):
            job["state"] = "COMPLETED"
            save(path, job)
        elif job["state"] == "RUNNING" and time.time() > job["end"]:
            signal_all(job, signal.SIGKILL)
            job["state"] = "TIMEOUT"
            save(path, job)
        running += job["state"] == "RUNNING"
    for path, job in jobs():
        if job["state"] == "PENDING" and running < free:
            script = path.with_suffix(".sh")
            script.write_text(job["script"])
            output = open(job["output"], "a")
            process = subprocess.Popen(["/bin/sh", str(script)], stdout=output, stderr=output,
                                       stdin=subprocess.DEVNULL, start_new_session=True)
            job |= {{"state": "RUNNING", "group": process.pid, "start": int(time.time())}}
            job["end"] = job["start"] + job["limit"]
            save(path, job)
            running += 1
if me == "srun":
    count = int(value("ntasks", "1"))
    at = max(i for i, w in enumerate(words) if w.startswith("--")
             and all(v.startswith("--") for v in words[:i + 1])) + 1
    tasks = [subprocess.Popen(words[at:], env={{**os.environ, "SLURM_PROCID": str(i)}})
             for i in range(count)]
    sys.exit(max(task.wait() for task in tasks))
note()
if (state / "fail").exists():
    sys.exit((state / "fail").read_text() or f"{{me}}: error: Unable to contact slurm controller")
if me == "sbatch":
    script = sys.stdin.read()
    if (state / "refuse").exists():
        sys.exit("sbatch: error: Batch job submission failed: " + (state / "refuse").read_text())
    if "--test-only" in words:
        print("sbatch: Job 1 to start at 2026-01-01T00:00:00", file=sys.stderr)
        sys.exit()
    minutes, seconds = value("time").split(":")
    numbers = [int(path.stem) for path, _ in jobs()]
    number = max(numbers, default=0) + 1
    save(state / f"{{number}}.json", dict(
        state="PENDING", script=script, name=value("job-name"), output=value("output"),
        nodes=int(value("nodes")), limit=60 * int(minutes) + int(seconds), submitted=time.time()))
    if (state / "crash").exists():  # the job is accepted, and the caller dies before it knows
        os.kill(int((state / "crash").read_text()), signal.SIGKILL)
        (state / "crash").unlink()
        time.sleep(1)
    print(number)
elif me == "squeue":
    refresh()
    asked = value("jobs")
    names = value("name")
    for path, job in jobs():
        if (asked and path.stem not in asked.split(",")) or (
            names and job["name"] not in names.split(",")):
            continue
        start, end = job.get("start", "N/A"), job.get("end", "N/A")
        fields = {{"%i": path.stem, "%T": job["state"], "%S": start, "%e": end, "%N": "",
                  "%r": "None", "%j": job["name"]}}
        text = value("format")
        for key, field in fields.items():
            text = text.replace(key, str(field))
        print(text)
elif me == "scancel":
    refresh()
    for path, job in jobs():
        if path.stem in words and job["state"] in ("PENDING", "RUNNING"):
            if job["state"] == "RUNNING":
                signal_all(job, signal.SIGTERM)
            job["state"] = "CANCELLED"
            save(path, job)
"""


class FakeSlurm:
    """Such programs in a folder.

    Parameters
    ----------
    folder : empty; it gets the programs and their state.

    Attributes
    ----------
    programs : folder to put first on PATH.
    """

    def __init__(self, folder: Path) -> None:
        self.programs, self._state = folder / "bin", folder / "state"
        self.programs.mkdir(parents=True)
        self._state.mkdir()
        text = _PROGRAM.format(python=sys.executable, state=str(self._state))
        for name in ("sbatch", "squeue", "sacct", "scancel", "srun"):
            program = self.programs / name
            program.write_text(text)
            program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def environment(self) -> dict[str, str]:
        """Environment of this process with the programs first on PATH."""
        return {**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}"}

    def run(self, *command: str) -> None:
        """Run one of the programs."""
        program = str(self.programs / command[0])
        subprocess.run([program, *command[1:]], env=self.environment(), check=True)

    def grant(self, count: int) -> None:
        """Let this many batch jobs run at a time; further ones wait."""
        self.set("grant", str(count))

    def set(self, name: str, text: str) -> None:
        """Set a switch: `fail`, `refuse` (with a text) or `crash` (with a process number)."""
        draft = self._state / f"{name}.draft"
        draft.write_text(text)
        draft.rename(self._state / name)

    def clear(self, name: str) -> None:
        """Clear a switch."""
        (self._state / name).unlink(missing_ok=True)

    def jobs(self) -> dict[int, dict[str, object]]:
        """Batch jobs by number."""
        return {int(path.stem): json.loads(path.read_text()) for path in self._state.glob("*.json")}

    def calls(self) -> list[tuple[float, str, str]]:
        """Time, program and arguments of each call so far."""
        path = self._state / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        parts = (line.split(" ", 2) for line in lines)
        return [(float(at), name, rest) for at, name, rest in parts]
