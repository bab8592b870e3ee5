"""One thread where bits matter: sums must not depend on how many cores happen to be free."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator

from threadpoolctl import ThreadpoolController


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch, if it is loaded, and BLAS use one thread inside the block."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else 0
    if torch:
        torch.set_num_threads(1)
    try:
        with _pools(len(sys.modules)).limit(limits=1):
            yield
    finally:
        if torch:
            torch.set_num_threads(before)


@functools.lru_cache(maxsize=1)
def _pools(modules: int) -> ThreadpoolController:
    """The thread pools of this process, searched again only if more modules are loaded.

    It takes milliseconds, and a stage asks for one thread every epoch.
    """
    return ThreadpoolController()
