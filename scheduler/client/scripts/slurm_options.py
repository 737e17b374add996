"""Options of Slurm's sbatch in the words of ``reshape submit``.

The names are those of sbatch(1). An option without a counterpart here is named and left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reshape.errors import nearest


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Options with a value -> option of submit that takes the same value.
_SAME = {
    "ntasks": "-n",
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
    parsable quiet reboot requeue spread-job test-only use-min-nodes verbose wait
    """)
_WITHOUT_MEANING = _words("""
    account acctg-freq batch bb bbf cluster-constraint clusters comment container
    core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot distribution
    exclude export export-file extra extra-node-info gid gpu-bind gpu-freq gpus
    gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input licenses mail-type
    mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nice nodefile nodelist
    nodes ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket power prefer priority
    profile propagate qos sockets-per-node switches thread-spec threads-per-core time-min
    tmp tres-per-task uid wait-all-nodes wckey
    """)


def translated(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Translate the options of a line.

    Returns
    -------
    words for submit, and the options without a meaning here.

    Raises
    ------
    ValueError : sbatch has no such option, or its value is missing.
    """
    found: list[str] = []
    ignored: list[str] = []
    for name, value in _options(words):
        text = f"--{name}" + ("" if value is None else f"={value}")
        if name in _SAME:
            found += [_SAME[name], value or ""]
        elif name in _FLAGS and value is None:
            found.append(_FLAGS[name])
        elif name == "kill-on-invalid-dep":
            found += ["--kill-on-invalid-dep"] if value == "yes" else []
        elif name != "no-requeue":  # which is so without an option
            ignored.append(text)
    return found, ignored


def _options(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield name and value of each option; None: it has no value."""
    left = [*words]
    while left:
        word = left.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
        elif len(word) > 1 and word.startswith("-") and word[1] in _SHORT:
            name, value = _SHORT[word[1]], word[2:].removeprefix("=")
            equals = "=" if value else ""
        else:
            raise ValueError(f"{word!r} is no option of sbatch")
        known = {*_SAME, *_PLAIN, *_WITHOUT_MEANING, "kill-on-invalid-dep"}
        if name not in known:
            raise ValueError(f"sbatch has no option --{name}{nearest(name, sorted(known))}")
        if equals:
            yield name, value
        elif name in _PLAIN:
            yield name, None
        elif left and not left[0].startswith("-"):
            yield name, left.pop(0)
        else:
            raise ValueError(f"--{name} needs a value")
