"""Options of a command of Slurm, which are read as getopt_long(3) does, and its variables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from reshape.errors import ReshapeError, nearest

#: Whether an option has a value: never, always, or only after ``=`` or directly after its letter.
Takes = Literal["nothing", "value", "either"]
_TAKES: dict[str, Takes] = {"": "nothing", "=": "value", "?": "either"}
#: Values of a variable that leave out the option without a value for which it stands.
_OFF = ("false", "f", "no", "0")


class Option(NamedTuple):
    """An option of a command.

    Attributes
    ----------
    takes : whether it has a value.
    has_effect : whether it has an effect here.
    instead : what there is in its place; "": the option is accepted.
    """

    takes: Takes
    has_effect: bool
    instead: str


class Known(NamedTuple):
    """All options that a command of Slurm has.

    Attributes
    ----------
    command : name of the command, for messages.
    options : name -> option.
    names : long option as users write it -> name.
    letters : letter -> name.
    variables : variable of the environment -> name of the option for which it stands.
    """

    command: str
    options: Mapping[str, Option]
    names: Mapping[str, str]
    letters: Mapping[str, str]
    variables: Mapping[str, str]

    @classmethod
    def of(
        cls,
        command: str,
        used: str,
        ignored: str = "",
        refused: Mapping[str, str] | None = None,
        variables: str = "",
    ) -> Known:
        """Make it from words such as ``noheader:h``, ``users|user=:u`` and ``nice?``.

        A word has the names of an option, the first of which stands for all, ``=`` if it has a
        value or ``?`` if it may have one, and after a colon its letter.

        Parameters
        ----------
        used, ignored : options with an effect, and options that are accepted without one.
        refused : words of options -> what there is in their place.
        variables : words such as ``SQUEUE_SORT`` and ``SQUEUE_NAMES:name``.
        """
        options, names, letters = dict[str, Option](), dict[str, str](), dict[str, str]()
        given = [(used, True, ""), (ignored, False, "")]
        given += [(words, False, instead) for words, instead in (refused or {}).items()]
        for words, has_effect, instead in given:
            for word in words.split():
                text, _, letter = word.partition(":")
                name, *others = text.rstrip("=?").split("|")
                takes = _TAKES[text[len(text.rstrip("=?")) :]]
                options[name] = Option(takes, has_effect, instead)
                names |= dict.fromkeys((name, *others), name)
                letters |= {letter: name} if letter else {}
        pairs = [word.partition(":") for word in variables.split()]
        stands_for = {
            variable: name or variable.partition("_")[2].lower().replace("_", "-")
            for variable, _, name in pairs
        }
        return cls(command, options, names, letters, stands_for)

    @property
    def usage(self) -> str:
        """The options with an effect, for ``--help``."""
        lines = [f"{self.command}, a command of Slurm over this service. Options with an effect:"]
        by_name = {name: f"-{letter}, " for letter, name in self.letters.items()}
        for name, option in sorted(self.options.items()):
            if option.has_effect:
                value = {"nothing": "", "value": "=VALUE", "either": "[=VALUE]"}[option.takes]
                lines.append(f"  {by_name.get(name, ''):4}--{name}{value}")
        return "\n".join([*lines, "See docs/reference/slurm.md."])

    def take(self, left: list[str]) -> tuple[str, str | None]:
        """Take an option with its value, None without one, from the begin of some words.

        Raises
        ------
        ValueError : there is no such option, it is refused, or its value is missing.
        """
        word = left.pop(0)
        if word.startswith("--"):
            written, equals, value = word[2:].partition("=")
            name = self._full(written)
        elif len(word) > 1 and word.startswith("-") and word[1] in self.letters:
            name, value = self.letters[word[1]], word[2:].removeprefix("=")
            equals = "=" if value else ""
        else:
            raise ValueError(f"{word!r} is no option of {self.command}")
        option = self.options[name]
        if option.instead:
            letter = "" if word.startswith("--") else f" ({word[:2]})"
            raise ValueError(f"--{name}{letter} is not there: {option.instead}")
        if equals and option.takes == "nothing":
            if word.startswith("--"):
                raise ValueError(f"--{name} has no value, got {value!r}")
            left.insert(0, f"-{value}")  # further letters
        elif equals:
            return name, value
        if option.takes != "value":
            return name, None
        if left and not left[0].startswith("--"):
            return name, left.pop(0)
        raise ValueError(f"--{name} needs a value")

    def _full(self, written: str) -> str:
        """Return the name of an option that a word abbreviates."""
        begun = {name for known, name in self.names.items() if known.startswith(written)}
        if written not in self.names and len(begun) != 1:
            near = nearest(written, sorted(self.names))
            raise ValueError(f"{self.command} has no option --{written}{near}")
        return self.names.get(written) or begun.pop()

    def without_arguments(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        alternatives: Collection[str] = (),
    ) -> dict[str, str]:
        """Read the options of a command that has no arguments; see `parse`.

        Raises
        ------
        ReshapeError : those of `parse`, or there is an argument.
        """
        given, arguments = self.parse(words, environment, alternatives)
        if arguments:
            raise ReshapeError(f"{arguments[0]!r} is no option of {self.command}")
        return given

    def parse(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        alternatives: Collection[str] = (),
    ) -> tuple[dict[str, str], list[str]]:
        """Divide a command line into options and arguments, in any order.

        Options without a value have "". The values of an option that is repeated are joined by
        commas. A variable stands for an option that the command line does not have.

        Parameters
        ----------
        environment : has the variables.
        alternatives : options, one of which on the command line leaves out the variables of all.

        Raises
        ------
        ReshapeError : there is no such option, it is refused, or its value is missing.
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
        own = {*given, *(alternatives if given.keys() & {*alternatives} else ())}
        for _, name, value in self.of_variables(environment):
            if name not in own:
                given[name] = value or ""
        return given, arguments

    def of_variables(self, environment: Mapping[str, str]) -> Iterator[tuple[str, str, str | None]]:
        """Yield variable, option and value of each option for which a variable stands.

        Raises
        ------
        ReshapeError : an option is refused.
        """
        for variable, name in self.variables.items():
            value, option = environment.get(variable), self.options[name]
            if value is None or (option.takes == "value" and not value):
                continue
            if option.takes == "nothing" and value.lower() in _OFF:
                continue
            if option.instead:
                raise ReshapeError(f"{variable}: --{name} is not there: {option.instead}")
            yield variable, name, None if option.takes == "nothing" else value or None

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
