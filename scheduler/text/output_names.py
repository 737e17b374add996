"""Names of output files, with the placeholders of Slurm's `sbatch`.

==============  ====================================================
``%j``, ``%A``  number of the job (`%A` differs only for job arrays)
``%{JOB_ID}``   the same
``%J``          the same, since an output belongs to a job, no step
``%a``, ``%t``  0: there are no job arrays, and one file for a job
``%x``, ``%u``  name of the job, and of its user
``%N``          short name of the host that starts the processes
``%%``          a percent sign
==============  ====================================================

A number between the percent sign and the letter is the least number of digits, as in ``%4j``.
"""

from __future__ import annotations

import re

from reshape.errors import ReshapeError

_PLACEHOLDER = re.compile(r"%(?:\{JOB_ID\}|(\d*)([jJAatxuN%]))")
#: The most digits to which a number is filled up.
_DIGITS = 10
_KNOWN = "%j %J %A %a %t %x %u %N %% and %{JOB_ID}"


def check_output_name(text: str) -> None:
    """Refuse a name with an unknown placeholder.

    Raises
    ------
    ReshapeError : the message names the placeholder.
    """
    unknown = _PLACEHOLDER.sub("", text).find("%")
    if unknown < 0:
        return
    wrong = _PLACEHOLDER.sub("", text)[unknown : unknown + 2]
    raise ReshapeError(f"the output {text!r} has the placeholder {wrong!r}: known are {_KNOWN}")


def output_name(text: str, *, job: int, name: str, user: str, host: str = "") -> str:
    """Return the name of an output file.

    Parameters
    ----------
    text : the name as submitted; what is no placeholder stays as it is.
    host : that of the processes, of which the part before the first dot is used; "": it is not
        known, and `%N` stays.
    """
    texts = {"x": name, "u": user, "N": host.partition(".")[0] or "%N", "%": "%"}
    numbers = {"j": job, "J": job, "A": job, "a": 0, "t": 0}

    def value(match: re.Match[str]) -> str:
        digits, letter = match.groups()
        if letter in texts:
            return texts[letter].replace("/", "_")
        return str(numbers[letter or "j"]).zfill(min(int(digits or 0), _DIGITS))

    return _PLACEHOLDER.sub(value, text)
