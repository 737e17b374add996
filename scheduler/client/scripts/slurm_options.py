"""Options of Slurm's sbatch in the words of ``reshape submit``.

The names are those of sbatch(1). An option without a counterpart here is named and left out. The
options that say how many processors a job has belong together and may be on several lines, so their
values are collected (`processors`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from reshape.key_values import whole_number
from reshape.times import parse_duration
from scheduler.client.scripts.slurm_manual import SBATCH

#: Options with a value -> option of submit that takes the same value.
_SAME = {
    "job-name": "--name",
    "output": "--output",
    "error": "--error",
    "partition": "--partition",
    "dependency": "--dependency",
    "begin": "--begin",
    "chdir": "--chdir",
    "reservation": "--reservation",
    "signal": "--signal",
    "constraint": "--constraint",
    "array": "--array",
}
#: Options that say how many processors a job has; the value of `nodes` may be a range, as in 2-4.
_SIZES = ("ntasks", "nodes", "ntasks-per-node", "cpus-per-task")
#: Options without a value -> option of submit.
_FLAGS = {name: f"--{name}" for name in ("hold", "requeue", "no-requeue", "exclusive")}
#: Largest number of tasks, nodes or processors.
MOST = 10**9


class Translation(NamedTuple):
    """Options of sbatch in our words.

    Attributes
    ----------
    words : options of submit.
    ignored : name and text of the options without a meaning here.
    sizes : values of those that say how many processors the job has.
    """

    words: list[str]
    ignored: dict[str, str]
    sizes: dict[str, int]


def translated(words: Sequence[str]) -> Translation:
    """Translate options of sbatch.

    Raises
    ------
    ValueError : sbatch has no such option, or its value is missing or wrong.
    """
    translation = Translation([], {}, {})
    for name, value in SBATCH.read(words):
        if name == "time":
            translation.words.extend(["--walltime", _time_limit(value or "")])
        elif name == "open-mode":
            modes = {"a": "append", "t": "truncate"}
            translation.words.extend(
                ["--open-mode", modes.get((value or "")[:1].lower(), value or "")]
            )
        elif name in _SAME:
            translation.words.extend([_SAME[name], value or ""])
        elif name in _FLAGS and value is None:
            translation.words.append(_FLAGS[name])
        elif name in _SIZES:
            translation.sizes[name] = count(name, value or "")
        elif name == "kill-on-invalid-dep":
            translation.words.extend(["--kill-on-invalid-dep"] if value == "yes" else [])
        else:
            translation.ignored[name] = f"--{name}" + ("" if value is None else f"={value}")
    return translation


def _time_limit(value: str) -> str:
    """Return the time limit in our words: 0 and -1 ask for none."""
    try:
        is_none = value.strip() == "-1" or parse_duration(value) == 0
    except ValueError:  # `reshape.times` says what is wrong, or UNLIMITED
        is_none = False
    return "UNLIMITED" if is_none else value


def count(name: str, value: str) -> int:
    """Read the value of an option that is a number.

    Raises
    ------
    ValueError : it is none, or less than 1.
    """
    least = value.partition("-")[0] if name == "nodes" else value
    if not (number := whole_number(least, MOST)):
        raise ValueError(f"--{name}: expected a number >= 1, got {value[:40]!r}")
    return number


def tasks(sizes: Mapping[str, int]) -> int:
    """Return the number of tasks that options of sbatch request, 1 without any."""
    if "ntasks" in sizes:
        return sizes["ntasks"]
    return sizes.get("nodes", 1) * sizes.get("ntasks-per-node", 1)


def processors(sizes: Mapping[str, int]) -> int:
    """Return the number of processors that options of sbatch request, 1 without any."""
    return tasks(sizes) * sizes.get("cpus-per-task", 1)
