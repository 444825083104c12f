# SPDX-License-Identifier: BSD-3-Clause
"""Saving, at once and while the program goes on."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import itertools
import logging
import threading
from typing import Any, Callable, ClassVar, Dict, Generator, List, Optional, Set, Tuple

from . import _structs as structs
from ._errors import error_of
from ._library import ERR_TIMEOUT, SLICE_SECONDS, check, interruptible, lib, path_bytes, release_with, whole_number
from ._progress import Progress, Watch
from ._state import State, state_of
from .checkpoint import PathLike
from .groups import Group, handle_of

_log = logging.getLogger("libdcp")

_COMPRESSIONS = {None: 0, "zstd": 1}
_STAGINGS = {"blocking": 0, "pinned": 1, "overlapped": 2}
# What becomes of a save's pages in the page cache, by dcp_page_cache.
_PAGE_CACHES = {"any": 0, "kept": 10, "dropped": 20, "auto": 30}


def _options(
    group: Optional[Group],
    overwrite: bool,
    step: Optional[int],
    info: Optional[State],
    threads: int,
    sync: bool,
    compression: Optional[str],
    timeout: float,
    memory_limit: int,
    page_cache: str,
) -> structs.dcp_save_options:
    if compression not in _COMPRESSIONS:
        raise ValueError("compression is None or 'zstd', not %r" % (compression,))
    options = structs.dcp_save_options()
    options.group = handle_of(group)
    options.overwrite = 1 if overwrite else 0
    options.has_step = step is not None
    options.step = whole_number(step or 0, "step", 64)
    options.info = info.handle if info else None
    options.thread_count = whole_number(threads, "threads", 32)
    options.skip_sync = not sync
    options.compression = _COMPRESSIONS[compression]
    options.timeout_seconds = timeout
    options.memory_limit = whole_number(memory_limit, "memory_limit", 64, signed=False)
    options.page_cache = page_cache_number(page_cache)
    return options


def page_cache_number(page_cache: str) -> int:
    """The library's number. ValueError: there is no such word."""
    if page_cache not in _PAGE_CACHES:
        raise ValueError("page_cache is any, kept, dropped or auto, not %r" % (page_cache,))
    return _PAGE_CACHES[page_cache]


def save(
    state: Dict[str, Any],
    path: PathLike,
    *,
    group: Optional[Group] = None,
    overwrite: bool = False,
    step: Optional[int] = None,
    info: Optional[Dict[str, Any]] = None,
    threads: int = 0,
    sync: bool = True,
    compression: Optional[str] = None,
    timeout: float = 0,
    memory_limit: int = 0,
    page_cache: str = "any",
    progress: Progress = None,
) -> None:
    """Saves a state as a checkpoint, a directory.

    state: nested dicts, lists and tuples of arrays (NumPy, DLPack, PyTorch in host memory),
    :class:`Sharded` tensors, and plain values; until this returns, nothing may free or shrink the
    storage of a tensor of PyTorch's, which has no way to hold one. path: of the directory. group: the ranks that save
    together, each its own part; collective.
    overwrite: replace a checkpoint that is there, whole, at the moment of the commit; else that is
    ExistsError. step, info: for ``metadata.json``. threads: files of this rank. sync: wait until
    the disk has it. compression: None or "zstd". timeout: seconds of waits for other ranks (0:
    1800). memory_limit: bytes beside the state (0: any). page_cache: what becomes of the pages that
    the files have in the page cache: "any" is what is written fastest, around the cache where that
    can be; "kept" is for a load that follows soon on this machine, "dropped" leaves the memory to
    others, "auto" is one of these two, by how much memory is free. progress: True for tqdm, or a
    function of bytes done and bytes in all.

    TypeError: a value or an array that cannot be saved, with its place in the state. BusyError:
    another save is at work there. InputOutputError: the disk. DeadlineError: a rank did not come in
    time. What a callback or communicator raises comes back; other ranks get an error with its text.
    After any of these an earlier checkpoint is as it was.
    """
    place = path_bytes(path)
    watch = Watch(progress, "saving")
    tree: Optional[State] = None
    fields: Optional[State] = None
    try:
        fields = State.of(info, writable=False) if info is not None else None
        options = _options(
            group, overwrite, step, fields, threads, sync, compression, timeout, memory_limit,
            page_cache,
        )  # fmt: skip
        options.progress = watch.function
        tree, refused = state_of(state, False, group is not None)
        root = tree.handle

        def call() -> None:
            status = lib.dcp_save_sized(
                root, place, ctypes.byref(options), ctypes.sizeof(options)
            )
            _check(status, watch, group, refused)

        _run(call, watch, group)
    finally:
        watch.close()
        for each in (tree, fields):
            if each:
                each.free()


def _check(
    status: int, watch: Watch, group: Optional[Group], refused: Optional[Exception] = None
) -> None:
    if group:
        group.callbacks.raise_first(refused)
    watch.callbacks.check(status)


def _run(call: Callable[[], None], watch: Watch, group: Optional[Group]) -> None:
    """Collectives stay in the caller's thread, which its communicator may insist on."""
    if group:
        call()
    else:
        interruptible(call, watch.cancel)


class Future:
    """An asynchronous save on its way. It can be awaited.

    The save goes on if nobody keeps the future, and the end of the program waits for it. The
    state's memory is held until it has ended.
    """

    _under_way: ClassVar[Set["Future"]] = set()

    def __init__(self, handle: int, held: Tuple[Any, ...], group: Optional[Group]) -> None:
        self._handle = handle
        self._held = held
        self._group = group
        self._lock = threading.Lock()
        self._waits = threading.Lock()
        self._ended = threading.Event()
        self._status = 0
        self._message = ""
        self._callbacks: List[Callable[["Future"], None]] = []
        self._function = structs.DoneFunction(self._end)
        self._finalizer = release_with(self, lib.dcp_future_free, handle)
        self._under_way.add(self)
        status = lib.dcp_future_on_done(handle, self._function, None)
        if status:
            self._under_way.discard(self)
            check(status)

    def _end(self, _context: Any, status: int, text: bytes) -> None:
        with self._lock:
            self._status = status
            self._message = text.decode("utf-8", "replace")
            self._ended.set()
            self._held = ()
            callbacks, self._callbacks = self._callbacks, []
            self._under_way.discard(self)
        for callback in callbacks:
            self._call_back(callback)

    def _call_back(self, callback: Callable[["Future"], None]) -> None:
        """Nobody is there whom an exception could be raised to: it is logged, as asyncio does."""
        try:
            callback(self)
        except Exception:
            _log.exception("a callback of %r raised", self)

    def done(self) -> bool:
        """Whether the save has ended, however it did."""
        if not self._ended.is_set():
            lib.dcp_future_poll(self._handle)
        return self._ended.is_set()

    def cancel(self) -> None:
        """Asks the save to end with CancelledError, if it has not come to its commit."""
        lib.dcp_future_cancel(self._handle)

    def wait_staged(self, timeout: Optional[float] = None) -> None:
        """Waits until the state's arrays may change. DeadlineError: not yet."""
        check(self._wait(lib.dcp_future_wait_staged, timeout))

    def result(self, timeout: Optional[float] = None) -> None:
        """Waits until the checkpoint is durable and visible, and raises what went wrong.

        DeadlineError: it is not yet, after timeout seconds.
        """
        if not self._ended.is_set():
            status = self._wait(lib.dcp_future_wait, timeout)
            if status == ERR_TIMEOUT and not self._ended.is_set():
                check(status)
            self._ended.wait()  # for what is called when the save has ended
        if self._status:
            raise error_of(self._status, self._message)

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        """As result(), but returns what went wrong; None if nothing did."""
        try:
            self.result(timeout)
        except Exception as error:
            if not self._ended.is_set():
                raise
            return error
        return None

    def progress(self) -> Tuple[int, int]:
        """Bytes written so far, and to be written, by this rank; (0, 0) before that is known."""
        done, total = ctypes.c_uint64(), ctypes.c_uint64()
        lib.dcp_future_progress(self._handle, ctypes.byref(done), ctypes.byref(total))
        return done.value, total.value

    def add_done_callback(self, callback: Callable[["Future"], None]) -> None:
        """Calls a function with the future when the save has ended, at once if it has.

        It may be called by any thread. What it raises is logged, as "libdcp".
        """
        with self._lock:
            if not self._ended.is_set():
                self._callbacks.append(callback)
                return
        self._call_back(callback)

    def __await__(self) -> Generator[Any, None, None]:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def wake() -> None:
            if not ended.done():
                ended.set_result(None)

        def notify(_: "Future") -> None:
            if not loop.is_closed():  # nobody awaits it there any more
                loop.call_soon_threadsafe(wake)

        self.add_done_callback(notify)
        yield from ended.__await__()
        self.result()

    def _wait(self, wait: Callable[[int, float], int], timeout: Optional[float]) -> int:
        left = float("inf") if timeout is None else timeout
        while True:
            now = max(min(left, SLICE_SECONDS), 0)
            left -= now
            if self._waits.acquire(timeout=now):  # one thread at a time
                try:
                    status = wait(self._handle, now)
                finally:
                    self._waits.release()
            else:
                status = lib.dcp_error_set(ERR_TIMEOUT, b"%s", b"the save has not come so far yet")
            if status != ERR_TIMEOUT or left <= 0 or self._ended.is_set():
                break
        if self._group:
            self._group.callbacks.raise_first()
        return status


# What saves that begin point to. KeyboardInterrupt may come between the library's call and the future
# that holds it; then it stays here, as the save may be under way.
_beginning: Dict[int, Tuple[Any, ...]] = {}
_numbers = itertools.count()


def begin_save(
    root: Optional[int],
    held: Tuple[Any, ...],
    place: bytes,
    options: structs.dcp_save_options,
    group: Optional[Group],
    refused: Optional[Exception] = None,
) -> Future:
    """The future of a save of a tree. held: what the tree and options point to. refused: is raised
    when the other ranks have learned of it."""
    handle = ctypes.c_void_p()
    key = next(_numbers)
    _beginning[key] = held
    status = lib.dcp_save_async_sized(
        root, place, ctypes.byref(options), ctypes.sizeof(options), ctypes.byref(handle)
    )
    try:
        if refused:
            raise refused
        check(status)
        future = Future(int(handle.value or 0), held, group)
    except Exception:
        del _beginning[key]
        raise
    del _beginning[key]
    return future


# Before Python ends: the library's own wait at the end of the process comes when callbacks cannot
# be called any more.
atexit.register(lib.dcp_finish_saves)


class Saver:
    """A chain of asynchronous saves: it keeps their staging memory, and has one of them at a time.

    staging: "blocking" (all is copied when save() returns), "pinned" (the same, into page-locked
    memory), or "overlapped" (arrays stay as they are until ``future.wait_staged()`` returns).
    retries: further attempts after a failure of the place, the first after retry_seconds, each next
    after twice as long. fallback: a directory to save in when all have failed.
    """

    def __init__(
        self,
        *,
        group: Optional[Group] = None,
        staging: str = "blocking",
        retries: int = 0,
        retry_seconds: float = 0,
        fallback: Optional[PathLike] = None,
        timeout: float = 0,
    ) -> None:
        if staging not in _STAGINGS:
            raise ValueError("staging is one of %s, not %r" % (", ".join(_STAGINGS), staging))
        options = structs.dcp_save_chain_options()
        options.group = handle_of(group)
        options.staging = _STAGINGS[staging]
        options.retries = whole_number(retries, "retries", 32)
        options.retry_seconds = retry_seconds
        options.fallback_path = path_bytes(fallback) if fallback is not None else None
        options.timeout_seconds = timeout
        handle = ctypes.c_void_p()
        check(
            lib.dcp_save_chain_new_sized(
                ctypes.byref(options), ctypes.sizeof(options), ctypes.byref(handle)
            )
        )
        self._group = group
        self._lock = threading.Lock()
        self._handle: Optional[int] = handle.value
        self._finalizer = release_with(self, lib.dcp_save_chain_free, handle.value)

    def save(
        self,
        state: Dict[str, Any],
        path: PathLike,
        *,
        overwrite: bool = False,
        step: Optional[int] = None,
        info: Optional[Dict[str, Any]] = None,
        threads: int = 0,
        sync: bool = True,
        compression: Optional[str] = None,
        timeout: float = 0,
        memory_limit: int = 0,
        page_cache: str = "any",
    ) -> Future:
        """Begins a save; arguments are as for ``libdcp.save``. Waits for the one before it.

        ValueError: the saver is closed. What goes wrong later comes from the future. Arrays are
        held until it has ended; overlapped ones must not be freed by other means, as by resizing a
        storage of PyTorch's, before ``future.wait_staged()`` returns.
        """
        place = path_bytes(path)
        tree: Optional[State] = None
        fields: Optional[State] = None
        try:
            fields = State.of(info, writable=False) if info is not None else None
            options = _options(
                self._group, overwrite, step, fields, threads, sync, compression, timeout,
                memory_limit, page_cache,
            )  # fmt: skip
            tree, refused = state_of(state, False, self._group is not None)
            root, held = tree.handle, tuple(tree.held)
            begun: List[Future] = []

            def begin() -> None:
                begun.append(self._begin(root, held, place, options, refused))

            if self._group:
                begin()
            else:
                try:
                    interruptible(begin, lambda: None)
                except KeyboardInterrupt:
                    for future in begun:
                        future.cancel()
                    raise
            return begun[0]
        finally:
            for each in (tree, fields):
                if each:
                    each.free()

    def _begin(
        self,
        root: Optional[int],
        held: Tuple[Any, ...],
        place: bytes,
        options: structs.dcp_save_options,
        refused: Optional[Exception],
    ) -> Future:
        with self._lock:  # threads take turns
            if self._handle is None:
                raise ValueError("the saver is closed")
            options.chain = self._handle
            return begin_save(root, held, place, options, self._group, refused)

    def close(self) -> None:
        """Waits for the save that is under way."""
        with self._lock:
            if self._handle is not None:
                self._handle = None
                self._finalizer()

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
