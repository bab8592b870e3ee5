"""Reading ahead: a thread fetches the next items while the last one is worked on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator
from contextlib import closing
from typing import TypeVar

Item = TypeVar("Item")
DEPTH = 2
_POLL = 0.1


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def ahead(items: Generator[Item]) -> Generator[Item]:
    """The same items, or the same error; the thread ends with this iterator."""
    ready: queue.Queue[Item | _End] = queue.Queue(DEPTH)
    stop = threading.Event()

    def put(item: Item | _End) -> None:
        while not stop.is_set():
            try:
                ready.put(item, timeout=_POLL)
                return
            except queue.Full:
                continue

    def fetch() -> None:
        try:
            with closing(items):
                for item in items:
                    put(item)
                    if stop.is_set():
                        return
            put(_End(None))
        except BaseException as error:
            put(_End(error))

    thread = threading.Thread(target=fetch, daemon=True)
    thread.start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        stop.set()
        thread.join()
