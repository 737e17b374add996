"""What a job inherits from the process that submits it: its umask and soft resource limits.

`starter.py` imports this file without its package, so it imports nothing but `resource`.
"""

from __future__ import annotations

import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

#: Limits by name, as in getrlimit(2). The number of processes is that of an account, and the jobs
#: are those of another one; what Linux does not enforce is left out, too.
LIMITS = {
    "AS": resource.RLIMIT_AS,
    "CORE": resource.RLIMIT_CORE,
    "CPU": resource.RLIMIT_CPU,
    "DATA": resource.RLIMIT_DATA,
    "FSIZE": resource.RLIMIT_FSIZE,
    "MEMLOCK": resource.RLIMIT_MEMLOCK,
    "NOFILE": resource.RLIMIT_NOFILE,
    "STACK": resource.RLIMIT_STACK,
}
UNLIMITED = resource.RLIM_INFINITY
MOST_UMASK = 0o777


def own_umask() -> int:
    """Return the umask of this process; to ask the system by umask(2) would change it."""
    with open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    return 0o022


def own_limits() -> dict[str, int]:
    """Return the soft limits of this process by name; `UNLIMITED` is none."""
    return {name: resource.getrlimit(number)[0] for name, number in LIMITS.items()}


def take_limits(limits: Mapping[str, int]) -> list[str]:
    """Set the soft limits of this process; return a sentence for each that is lower here.

    A soft limit is not raised above the hard one of this process.
    """
    lower = []
    for name, soft in limits.items():
        hard = resource.getrlimit(LIMITS[name])[1]
        if hard != UNLIMITED and not 0 <= soft <= hard:
            asked = "unlimited" if soft == UNLIMITED else str(soft)
            lower.append(f"the limit {name} is {hard} here, and was {asked} at the submission")
            soft = hard
        resource.setrlimit(LIMITS[name], (soft, hard))
    return lower
