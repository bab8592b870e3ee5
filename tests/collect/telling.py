"""A policy that says in which process it acts, and waits there once to be killed."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import numpy as np


def uniform(observations: np.ndarray) -> np.ndarray:
    folder = os.environ.get("TELLING_FOLDER")
    if folder is not None:
        mark = Path(folder) / str(os.getpid())
        if not mark.exists():
            mark.write_text(str(os.getpid()))
            # A link is made once: one process waits, whoever else comes at the same moment.
            with contextlib.suppress(FileExistsError):
                (Path(folder) / "waiting").hardlink_to(mark)
                time.sleep(60)
    return np.full((len(observations), 4), 0.25)
