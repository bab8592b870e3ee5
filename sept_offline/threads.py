"""One thread where bits matter: sums must not depend on how many cores happen to be free."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from threadpoolctl import threadpool_limits


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Torch, if it is loaded, and BLAS use one thread inside; then what they used before."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else 0
    if torch:
        torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        if torch:
            torch.set_num_threads(before)
