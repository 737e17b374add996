"""Options of Slurm's sbatch in the words of ``reshape submit``.

The names are those of sbatch(1). An option without a counterpart here is named and left out. The
options that say how many processors a job has belong together and may be on several lines, so their
values are collected (`processors`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from reshape.errors import ReshapeError, nearest


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Options with a value -> option of submit that takes the same value.
_SAME = {
    "job-name": "--name",
    "output": "--output",
    "error": "--error",
    "open-mode": "--open-mode",
    "time": "--walltime",
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
_FLAGS = {"hold": "--hold", "requeue": "--requeue", "exclusive": "--exclusive"}
_SHORT = dict(
    pair.split(":")
    for pair in _words("""
    n:ntasks J:job-name o:output t:time p:partition d:dependency D:chdir b:begin H:hold a:array
    A:account c:cpus-per-task C:constraint e:error i:input L:licenses N:nodes q:qos w:nodelist
    x:exclude s:oversubscribe k:no-kill W:wait Q:quiet v:verbose M:clusters S:core-spec
    B:extra-node-info F:nodefile G:gpus m:distribution O:overcommit
    """)
)
#: Further options without a value.
_PLAIN = _words("""
    contiguous exclusive get-user-env hold ignore-pbs no-kill no-requeue overcommit oversubscribe
    parsable quiet reboot requeue spread-job use-min-nodes verbose wait
    """)
_WITHOUT_MEANING = _words("""
    account acctg-freq batch bb bbf cluster-constraint clusters comment container
    core-spec cores-per-socket cpu-freq cpus-per-gpu deadline delay-boot distribution
    exclude export export-file extra extra-node-info gid gpu-bind gpu-freq gpus
    gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input licenses mail-type
    mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nice nodefile nodelist
    ntasks-per-core ntasks-per-gpu ntasks-per-socket power prefer priority
    profile propagate qos sockets-per-node switches thread-spec threads-per-core time-min
    tmp tres-per-task uid wait-all-nodes wckey
    """)


class Known(NamedTuple):
    """Options of a command of Slurm, which are read as getopt_long(3) does.

    Attributes
    ----------
    command : name of the command, for messages.
    plain, valued : long options without and with a value; some have both forms.
    short : letter -> long option.
    instead : long option that is not there -> what there is in its place.
    """

    command: str
    plain: frozenset[str]
    valued: frozenset[str]
    short: Mapping[str, str]
    instead: Mapping[str, str] = {}

    @classmethod
    def of(cls, command: str, plain: str, valued: str, **instead: str) -> Known:
        """Make it from words such as ``noheader`` and, with a letter, ``user:u``."""
        pairs = [word.partition(":") for word in f"{plain} {valued}".split()]
        short = {letter: name for name, _, letter in pairs if letter}
        flags, others = (_words(re.sub(r":\w", "", text)) for text in (plain, valued))
        return cls(command, flags, others, short, instead)

    def take(self, left: list[str]) -> tuple[str, str | None]:
        """Take an option with its value, None without one, from the begin of some words.

        Raises
        ------
        ValueError : there is no such option, or its value is missing.
        """
        word = left.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        elif len(word) > 1 and word.startswith("-") and word[1] in self.short:
            name, value = self.short[word[1]], word[2:].removeprefix("=")
            if value and name not in self.valued:  # further letters
                left.insert(0, f"-{value}")
                value = ""
            equals = "=" if value else ""
        else:
            raise ValueError(f"{word!r} is no option of {self.command}")
        name = self._full(name)
        if equals:
            return name, value
        if name in self.plain:
            return name, None
        if left and not left[0].startswith("--"):
            return name, left.pop(0)
        raise ValueError(f"--{name} needs a value")

    def _full(self, name: str) -> str:
        """Return the name of an option that a word abbreviates."""
        known = sorted(self.plain | self.valued)
        begun = [option for option in {*known, *self.instead} if option.startswith(name)]
        name = begun[0] if len(begun) == 1 else name
        if name in self.instead:
            raise ValueError(f"--{name} is not there: {self.instead[name]}")
        if name not in known:
            raise ValueError(f"{self.command} has no option --{name}{nearest(name, known)}")
        return name

    def options(self, words: Sequence[str]) -> dict[str, str]:
        """Read the options of a command that has no arguments; see `parse`."""
        given, arguments = self.parse(words)
        if arguments:
            raise ReshapeError(f"{arguments[0]!r} is no option of {self.command}")
        return given

    def parse(self, words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
        """Divide a command line into options and arguments, in any order.

        Options without a value have "". The values of an option that is repeated are joined by
        commas.

        Raises
        ------
        ReshapeError : there is no such option, or its value is missing.
        """
        given: dict[str, str] = {}
        arguments: list[str] = []
        left = [*words]
        while left:
            if not left[0].startswith("-"):
                arguments.append(left.pop(0))
                continue
            try:
                name, value = self.take(left)
            except ValueError as error:
                raise ReshapeError(str(error)) from None
            given[name] = f"{given[name]},{value}" if given.get(name) else value or ""
        return given, arguments

    def read(self, words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
        """Yield name and value of each option; raises the errors of `take`."""
        left = [*words]
        while left:
            yield self.take(left)

    def split(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """Divide a command line into options and what follows; raises the errors of `take`."""
        left = [*words]
        while left and left[0].startswith("-") and left[0] not in ("-", "--"):
            self.take(left)
        return [*words[: len(words) - len(left)]], left[1:] if left[:1] == ["--"] else left


SBATCH = Known(
    "sbatch",
    _PLAIN,
    frozenset({*_SAME, *_SIZES, *_WITHOUT_MEANING, "kill-on-invalid-dep", "wrap"}),
    _SHORT,
    {"test-only": "reshape quote shows when a job would start"},
)


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
        if name in _SAME:
            translation.words.extend([_SAME[name], value or ""])
        elif name in _FLAGS and value is None:
            translation.words.append(_FLAGS[name])
        elif name in _SIZES:
            translation.sizes[name] = count(name, value or "")
        elif name == "kill-on-invalid-dep":
            translation.words.extend(["--kill-on-invalid-dep"] if value == "yes" else [])
        elif name != "no-requeue":  # which is so without an option
            translation.ignored[name] = f"--{name}" + ("" if value is None else f"={value}")
    return translation


def count(name: str, value: str) -> int:
    """Read the value of an option that is a number.

    Raises
    ------
    ValueError : it is none, or less than 1.
    """
    least = value.partition("-")[0] if name == "nodes" else value
    if not least.isdecimal() or int(least) < 1:
        raise ValueError(f"--{name}: expected a number >= 1, got {value!r}")
    return int(least)


def tasks(sizes: Mapping[str, int]) -> int:
    """Return the number of tasks that options of sbatch request, 1 without any."""
    if "ntasks" in sizes:
        return sizes["ntasks"]
    return sizes.get("nodes", 1) * sizes.get("ntasks-per-node", 1)


def processors(sizes: Mapping[str, int]) -> int:
    """Return the number of processors that options of sbatch request, 1 without any."""
    return tasks(sizes) * sizes.get("cpus-per-task", 1)
