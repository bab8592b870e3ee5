"""The mistakes a user can make, one class for each kind, under one root."""

LONGEST = 4000
"""Maximum length of a message: a damaged file may contain one very long name."""


class SeptError(Exception):
    """Base class of all errors that this library raises on purpose.

    The message is one line and says what to do. Control characters in quoted names are replaced.
    """

    def __str__(self) -> str:
        """The message; line breaks and control characters become spaces."""
        shown = "".join(char if char.isprintable() else " " for char in super().__str__())
        return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"


class DataError(SeptError):
    """A dataset is missing, damaged or invalid."""


class FamilyError(SeptError):
    """A family of environments is unknown or does not keep its contract."""


class SimulatorError(FamilyError):
    """A family's environment raised an error; another try may succeed."""


class ConfigError(SeptError):
    """A setting is unknown, of the wrong type, or out of range."""


class AgentError(SeptError, ValueError):
    """An agent on disk is damaged, or an agent was used against its declaration.

    A ValueError too: programs around an export catch it as one.
    """


class HarnessError(SeptError):
    """Something tried to get more out of the one test episode than it is allowed to."""


class TrainingError(SeptError):
    """Training cannot go on: a loss is not finite, or the data do not support the task."""


class EngineError(SeptError):
    """A piece of work could not be run: its worker died, or there is nothing to run it on."""


def one_line(problem: object) -> str:
    """What an error says, or any text, without line breaks."""
    return " ".join(str(problem).split())
