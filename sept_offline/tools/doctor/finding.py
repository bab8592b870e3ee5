"""The result of a check; errors in a check become results too."""

from __future__ import annotations

import contextlib
import getpass
import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

LONGEST = 200
"""Characters of an error that are shown; some libraries send pages."""


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's table."""

    name: str
    status: Literal["fine", "absent", "broken"]
    """`absent`: an extra that is not installed, which only its own commands miss."""
    found: str
    advice: str = ""
    """Advice; empty if nothing needs to be done."""


class AbsentError(Exception):
    """What is looked at needs an extra that is not installed; the message is what to install."""


def check(name: str, look: Callable[[], str], advice: str) -> Finding:
    """Run `look` and report its result; if it raises, the check is broken and `advice` fixes it.

    `AbsentError` is no defect: an extra is absent. Libraries that talk while they are imported are
    not heard.
    """
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            return Finding(name, "fine", private(look()))
    except AbsentError as absent:
        return Finding(name, "absent", f"needs {absent}", f'pip install "{absent}"')
    # A broken library raises what it likes: OSError for a missing .so, SystemExit, anything.
    except (Exception, SystemExit) as error:
        said = private(" ".join(f"{type(error).__name__}: {error}".split()))
        short = said if len(said) <= LONGEST else said[:LONGEST] + "…"
        return Finding(name, "broken", short, advice)


def private(text: str) -> str:
    """`text` without the user's home and name: it is made to be shown to strangers."""
    for known, before, shown in ((_home(), r"", "~"), (_user(), r"(?<=[/\\])", "user")):
        if known:
            text = re.sub(rf"{before}{re.escape(known)}(?![\w.-])", shown, text)
    return text


def _home() -> str:
    try:
        home = str(Path.home())
    # without a home there is nothing to hide
    except RuntimeError:
        return ""
    return home if len(home) > 1 else ""


def _user() -> str:
    try:
        return getpass.getuser()
    # the user name may be unknown: no password entry, no variable
    except (ImportError, KeyError, OSError):
        return ""
