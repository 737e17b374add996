"""`reshape doctor` with the real MPI and with broken ones; it leaves no process and no file."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import uuid
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from redistribution.copies import kernel
from reshape.doctor.checks import Check, check_copy_kernel, check_pages, check_shared_memory
from reshape.doctor.command import conclusion, print_checks, run_worlds
from reshape.errors import ReshapeError
from reshape.mpi import clean_environment, mpiexec_path

NAMES = ["python", "names", "cores", "open files", "control groups", "shared memory"]
NAMES += ["pages", "copy kernel"]
MPI_NAMES = ["mpiexec", "library", "two ranks", "connect", "regrow"]
LIMIT = ("--limit", "30")  # for a busy machine; a check takes well below 1 s otherwise


def doctor(*arguments: str, prefix: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
    """Return exit code and diagnosis; fail if a process of the command remains."""
    trace = uuid.uuid4().hex
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "reshape", "doctor", "--json", *arguments],
        env=os.environ | {"DOCTOR_TEST": trace},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    assert remaining(trace) == []
    return done.returncode, json.loads(done.stdout)


def remaining(trace: str) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("DOCTOR_TEST") == trace:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def statuses(diagnosis: dict[str, Any]) -> dict[str, str]:
    return {check["name"]: check["status"] for check in diagnosis["checks"]}


def test_the_installed_mpi_passes_all_checks() -> None:
    code, diagnosis = doctor(*LIMIT)
    checks = {check["name"]: check for check in diagnosis["checks"]}
    assert list(checks) == [*NAMES, *MPI_NAMES]
    assert {name: checks[name]["status"] for name in MPI_NAMES} == dict.fromkeys(MPI_NAMES, "ok")
    assert checks["mpiexec"]["result"] == str(mpiexec_path())
    assert "MPICH" in checks["library"]["result"]
    assert (code, diagnosis["ready"]) == (0, True)


def test_a_missing_copy_kernel_is_reported_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "compiled", None)
    check = check_copy_kernel()
    assert (check.status, check.result) == ("note", "none")
    assert "C compiler" in check.fix
    monkeypatch.setattr(kernel, "compiled", object())
    check = check_copy_kernel()
    assert (check.status, check.result, check.fix) == ("ok", "compiled", "")


def test_the_result_under_mpiexec_is_the_same() -> None:
    code, diagnosis = doctor(*LIMIT, prefix=(str(mpiexec_path()), "-n", "1"))
    assert (code, diagnosis["ready"]) == (0, True)


def test_a_fix_can_be_copied() -> None:
    """It is printed in one line of its own in any width of the terminal."""
    fix = "mount -o remount,huge=within_size /dev/shm (by root), " + "and so on " * 9
    text = StringIO()
    check = Check("pages", "note", "of 4096 bytes", "slow", fix)
    print_checks([check], Console(file=text, width=60))
    assert f"Fix of pages: {fix}" in text.getvalue()


def test_the_table_lists_all_checks() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "reshape", "doctor", *LIMIT],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert all(name in done.stdout for name in [*NAMES, *MPI_NAMES, "what it means"])
    assert "Jobs can be run and resized here: mpiexec worlds join" in done.stdout
    assert done.returncode == 0


def test_an_mpiexec_of_another_mpi_is_detected(tmp_path: Path) -> None:
    # As the mpiexec of another MPI, it starts the ranks without connecting them.
    foreign = program(
        tmp_path / "mpiexec", '#!/bin/sh\nn=$2; shift 2\nfor i in $(seq $n); do "$@"; done\n'
    )
    code, diagnosis = doctor("--mpiexec", foreign, *LIMIT)
    found = statuses(diagnosis)
    assert (code, diagnosis["ready"], found["two ranks"]) == (1, False, "fault")
    assert {found[name] for name in ("connect", "regrow")} == {"skipped"}
    check = next(check for check in diagnosis["checks"] if check["name"] == "two ranks")
    assert check["result"] == "two communicators of size 1"
    assert "pip install mpich mpi4py" in check["mend"]


@pytest.mark.parametrize(
    ("script", "limit", "says"),
    [
        ("echo 'no hosts: error in the allocation' >&2; exit 9", "9", "exit code 9: no hosts"),
        ("exit 0", "9", "no answer"),
        ("exec sleep 60", "0.5", "not finished after 0.5 s"),
        ("sleep 60 &\nsleep 60", "0.5", "not finished after 0.5 s"),
    ],
)
def test_an_mpiexec_that_starts_nothing_is_detected(
    tmp_path: Path, script: str, limit: str, says: str
) -> None:
    mpiexec = program(tmp_path / "mpiexec", f"#!/bin/sh\n{script}\n")
    code, diagnosis = doctor("--mpiexec", mpiexec, "--limit", limit)
    check = next(check for check in diagnosis["checks"] if check["name"] == "library")
    assert (code, diagnosis["ready"], check["status"]) == (1, False, "fault")
    assert says in check["result"]


def test_an_mpiexec_that_cannot_be_run_is_detected(tmp_path: Path) -> None:
    code, diagnosis = doctor("--mpiexec", program(tmp_path / "mpiexec", "#!/no/such/shell\n"))
    assert (code, statuses(diagnosis)["library"]) == (1, "fault")


@pytest.mark.parametrize(
    "script",
    [
        "exec {mpiexec} -n 2 sleep 600",
        "trap '' TERM; {mpiexec} -n 2 sleep 600",
        "setsid sleep 600 & {mpiexec} -n 2 setsid sleep 600",
    ],
)
def test_an_interrupted_check_leaves_no_process(tmp_path: Path, script: str) -> None:
    """Its ranks run on, also if they ignore SIGTERM or left the session."""
    told = f"touch {tmp_path}/started; {script.format(mpiexec=mpiexec_path())}"
    mpiexec = program(tmp_path / "mpiexec", f"#!/bin/sh\n{told}\n")
    _, diagnosis = doctor("--mpiexec", mpiexec, "--limit", "1")  # it asserts that none remains
    assert (tmp_path / "started").exists()
    results = [check["result"] for check in diagnosis["checks"]]
    assert [result for result in results if "not finished after 1 s" in result], results


def test_an_interrupted_check_leaves_no_shared_memory(tmp_path: Path) -> None:
    mapped: set[Path] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            for process in psutil.Process().children(recursive=True):
                try:
                    areas = process.memory_maps()
                except psutil.Error:
                    continue
                mapped.update(Path(a.path) for a in areas if a.path.startswith("/dev/shm/mpich"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:  # it accepts, and no group connects
        _, fault = run_worlds(None, 3.0, (2, ["groups", str(tmp_path), "0", "1"]))
    finally:
        done.set()
        watcher.join()
    assert "not finished after 3 s" in fault
    assert mapped, "no rank was found"
    assert not [path for path in mapped if path.exists()]


def test_an_exception_of_a_rank_is_reported(tmp_path: Path) -> None:
    _, fault = run_worlds(None, 30.0, (2, ["groups", str(tmp_path / "no-such"), "0", "1"]))
    assert "FileNotFoundError" in fault


@pytest.mark.parametrize(
    ("passed", "ready", "because"),
    [
        ({"two ranks", "connect", "regrow"}, True, "join repeatedly"),
        ({"two ranks", "connect"}, False, "join once but not repeatedly, so jobs keep their size"),
        ({"two ranks"}, False, "cannot be joined"),
        (set(), False, "do not run"),
    ],
)
def test_the_conclusion_follows_from_the_checks(
    passed: set[str], ready: bool, because: str
) -> None:
    is_ready, reason = conclusion(passed)
    assert is_ready == ready
    assert because in reason


def test_missing_shared_memory_is_a_fault(tmp_path: Path) -> None:
    check = check_shared_memory(tmp_path / "none")
    assert check.status == "fault"
    assert "mount a tmpfs" in check.fix
    assert check_shared_memory(tmp_path).status in ("ok", "note")
    assert list(tmp_path.iterdir()) == []


def test_small_pages_are_reported_with_a_fix(tmp_path: Path) -> None:
    assert check_pages(tmp_path / "none").status == "note"
    script = (
        "import sys; from pathlib import Path; from reshape.data import mapped_files; "
        "mapped_files._COLLAPSE = 9999; from reshape.doctor.checks import check_pages; "
        "check = check_pages(Path(sys.argv[1])); print(check.status, check.result, check.fix)"
    )
    for option, expected in [  # of a kernel before Linux 6.1, which refuses the advice
        ("never", f"note of 4096 bytes in {tmp_path} Linux 6.1 or later; before: mount -o remount"),
        ("within_size", f"ok of 2 MiB in {tmp_path}"),
    ]:
        mount = f"mount -t tmpfs -o huge={option} none {tmp_path} && exec {sys.executable} -c "
        own = ["unshare", "--mount", "--user", "--map-root-user", "sh", "-c"]
        done = subprocess.run(
            [*own, f"{mount} '{script}' {tmp_path}"], capture_output=True, text=True, check=False
        )
        if "mount" in done.stderr or "unshare" in done.stderr:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        assert done.stdout.startswith(expected), done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_mpiexec_beside_python_is_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("venv", "site"):
        (tmp_path / folder).mkdir()
    site = program(tmp_path / "site" / "mpiexec", "#!/bin/sh\n")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))
    search = {"PATH": str(tmp_path / "site")}
    assert str(mpiexec_path(search)) == site
    beside = program(tmp_path / "venv" / "mpiexec", "#!/bin/sh\n")
    assert str(mpiexec_path(search)) == beside
    Path(beside).unlink()
    with pytest.raises(ReshapeError, match="pip install mpich mpi4py"):
        mpiexec_path({"PATH": ""})


def test_clean_environment_drops_variables_of_the_world_and_keeps_settings() -> None:
    world = {
        "PMI_RANK": "1",
        "PMIX_ID": "x",
        "HYDRA_X": "1",
        "HYDI_CONTROL_FD": "8",
        "MPI_LOCALRANKID": "0",
        "MPIR_X": "1",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURMD_NODENAME": "n1",
    }
    kept = {"PATH": "/bin", "MPIR_CVAR_CH4_NETMOD": "ofi", "OMP_NUM_THREADS": "1", "MPI_HOME": "/m"}
    kept |= {"SLURM_CONF": "/etc/slurm/slurm.conf"}
    assert clean_environment(world | kept) == kept
