"""Suggestions for unknown words: what was probably meant, never something else."""

from __future__ import annotations

import pytest
from command_line import invoke

HARMLESS = [
    (["queue", "--chdir", "x"], "No such option '--chdir'."),  # not --dir
    (["submit", "--stderr", "x"], "No such option '--stderr'."),  # not --dir
    (["submit", "--folder", "x"], "No such option '--folder'."),
    (["submit", "--no-exclusive"], "No such option '--no-exclusive'."),  # not --exclusive
    (["submit", "--nodes", "2"], "No such option '--nodes'."),  # not --no-bind
    (["stop", "--no-kill"], "No such option '--no-kill'."),  # not --kill
    (["stop", "--file", "x"], "No such option '--file'."),  # not --kill
    (["cancel", "--kill", "3"], "No such option '--kill'."),  # not --all
    (["cancel", "--sibling", "3"], "No such option '--sibling'."),
    (["top"], "No such command 'top'."),  # not stop
    (["remove"], "No such command 'remove'."),
]
HELPFUL = [
    (["submit", "--chdr", "x"], "Did you mean '--chdir'?"),
    (["submit", "--workdir", "x"], "Did you mean '--chdir'?"),
    (["submit", "--time", "10"], "Did you mean '--walltime'?"),
    (["submit", "--wall", "10"], "Did you mean '--walltime'?"),
    (["submit", "--ntasks=4"], "Did you mean '-n'?"),
    (["stop", "--kil"], "Did you mean '--kill'?"),
    (["access", "create", "--usr", "ann"], "Did you mean '--user'?"),
    (["access", "creat"], "Did you mean 'create'?"),
    (["sbatch"], "Did you mean 'batch'?"),
    (["histor"], "Did you mean 'history'?"),
]


@pytest.mark.parametrize(("words", "says"), HARMLESS + HELPFUL, ids=str)
def test_a_suggestion_means_the_same(words: list[str], says: str) -> None:
    done = invoke(*words, code=2)
    assert done.stderr.splitlines()[-1].endswith(says)
