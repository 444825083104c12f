# SPDX-License-Identifier: BSD-3-Clause
"""How far a save or load has come, and ending it."""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional, Union

from . import _structs as structs
from ._library import Callbacks

#: Is given bytes done, and bytes in all (0 while that is not known).
ProgressFunction = Callable[[int, int], None]
Progress = Union[None, bool, ProgressFunction]


class Watch:
    """Shows progress, and cancels when it is asked to or when the caller's function raises."""

    def __init__(self, progress: Progress, what: str) -> None:
        self.callbacks = Callbacks()
        self._cancelled = threading.Event()
        self._bar: Optional[Any] = None
        self._show: Optional[ProgressFunction] = None
        if progress is True:
            self._open_bar(what)
        elif progress:
            self._show = progress
        self.function = structs.ProgressFunction(self._called)

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def _open_bar(self, what: str) -> None:
        try:
            import tqdm  # type: ignore[import-untyped,unused-ignore]
        except ImportError:
            return
        self._bar = tqdm.tqdm(desc=what, unit="B", unit_scale=True)
        self._show = self._move_bar

    def _move_bar(self, done: int, total: int) -> None:
        assert self._bar is not None
        self._bar.total = total or None
        self._bar.update(done - self._bar.n)

    def _called(self, _context: Any, progress: Any) -> bool:
        if self._cancelled.is_set():
            return False
        show = self._show
        if show is None:
            return True
        done, total = progress.contents.bytes_done, progress.contents.bytes_total
        return self.callbacks.call(lambda: show(done, total)) == 0
