# SPDX-License-Identifier: BSD-3-Clause
"""The shared library: found, checked, and called."""

from __future__ import annotations

import ctypes
import ctypes.util
import operator
import os
import threading
import weakref
from ctypes import c_bool, c_char_p, c_double, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Callable, List, Optional, Tuple, TypeVar

from . import _structs as structs
from ._errors import error_of

#: Releases of the library that this package fits: of one minor version.
INTERFACE = (0, 1)

OK = 0
ERR_ARGUMENT = 10
ERR_UNSUPPORTED = 11
ERR_FORMAT = 40
ERR_TIMEOUT = 71
ERR_CALLBACK = 80

T = TypeVar("T")

SLICE_SECONDS = 0.2  # of a wait, after which Control-C is noticed


def _open() -> ctypes.CDLL:
    soname = "libdcp.so.%d.%d" % INTERFACE
    chosen = os.environ.get("LIBDCP_LIBRARY")
    own = Path(__file__).parent / soname
    library = ctypes.CDLL(chosen or (str(own) if own.exists() else soname))
    if not hasattr(library, "dcp_version_number"):
        raise ImportError("libdcp: %s is another library" % library._name)
    library.dcp_version_number.restype = c_int
    number = library.dcp_version_number()
    found = (number // 10000, number // 100 % 100)
    if found != INTERFACE:
        raise ImportError(
            "libdcp: the package is for version %d.%d of the library, found %d.%d"
            % (INTERFACE + found)
        )
    return library


def _declare(library: ctypes.CDLL) -> None:
    handle, text = c_void_p, c_char_p
    pointer = ctypes.POINTER
    functions: List[Tuple[str, Any, List[Any]]] = [
        ("dcp_version_string", text, []),
        ("dcp_error_message", text, []),
        ("dcp_error_set", c_int, [c_int, text, text]),
        ("dcp_memory_allocate", c_int, [c_size_t, pointer(handle)]),
        ("dcp_memory_free", None, [handle]),
        ("dcp_memory_copy", None, [handle, handle, c_size_t]),
        ("dcp_state_new", handle, []),
        ("dcp_state_free", None, [handle]),
        ("dcp_state_find", handle, [handle, text]),
        ("dcp_state_stateful", c_int, [handle, text, pointer(structs.dcp_stateful)]),
        ("dcp_state_pack", c_int, [handle, c_size_t, structs.Sink, c_void_p]),
        ("dcp_state_unpack", c_int, [handle, text, c_char_p, c_size_t]),
        (
            "dcp_checkpoint_open_sized",
            c_int,
            [text, pointer(structs.dcp_open_options), c_size_t, pointer(handle)],
        ),
        ("dcp_checkpoint_close", None, [handle]),
        ("dcp_checkpoint_count", c_size_t, [handle]),
        (
            "dcp_checkpoint_entries_sized",
            c_int,
            [handle, c_size_t, c_size_t, pointer(structs.dcp_entry), c_size_t],
        ),
        (
            "dcp_checkpoint_chunk_sized",
            c_int,
            [handle, c_size_t, c_size_t, pointer(structs.dcp_stored_chunk), c_size_t],
        ),
        (
            "dcp_checkpoint_read_tensor_sized",
            c_int,
            [
                handle,
                c_size_t,
                pointer(structs.dcp_tensor),
                c_size_t,
                pointer(structs.dcp_read_options),
                c_size_t,
            ],
        ),
        (
            "dcp_checkpoint_read_object_sized",
            c_int,
            [handle, c_size_t, handle, text, pointer(structs.dcp_read_options), c_size_t],
        ),
        (
            "dcp_checkpoint_map_chunk_sized",
            c_int,
            [
                handle,
                c_size_t,
                c_size_t,
                pointer(structs.dcp_read_options),
                c_size_t,
                pointer(handle),
                pointer(structs.dcp_mapped_chunk),
                c_size_t,
            ],
        ),
        ("dcp_mapping_free", None, [handle]),
        (
            "dcp_checkpoint_info_sized",
            c_int,
            [handle, handle, text, pointer(structs.dcp_save_info), c_size_t],
        ),
        (
            "dcp_verify_sized",
            c_int,
            [
                text,
                pointer(structs.dcp_open_options),
                c_size_t,
                structs.FaultFunction,
                c_void_p,
                pointer(c_uint64),
            ],
        ),
        (
            "dcp_save_sized",
            c_int,
            [handle, text, pointer(structs.dcp_save_options), c_size_t],
        ),
        (
            "dcp_load_sized",
            c_int,
            [handle, text, pointer(structs.dcp_load_options), c_size_t, pointer(handle)],
        ),
        ("dcp_load_report_count", c_size_t, [handle]),
        (
            "dcp_load_report_line_sized",
            c_int,
            [handle, c_size_t, pointer(structs.dcp_report_line), c_size_t],
        ),
        ("dcp_load_report_free", None, [handle]),
        (
            "dcp_save_chain_new_sized",
            c_int,
            [pointer(structs.dcp_save_chain_options), c_size_t, pointer(handle)],
        ),
        ("dcp_save_chain_free", None, [handle]),
        (
            "dcp_save_async_sized",
            c_int,
            [handle, text, pointer(structs.dcp_save_options), c_size_t, pointer(handle)],
        ),
        ("dcp_future_wait_staged", c_int, [handle, c_double]),
        ("dcp_future_wait", c_int, [handle, c_double]),
        ("dcp_future_poll", c_int, [handle]),
        ("dcp_future_on_done", c_int, [handle, structs.DoneFunction, c_void_p]),
        ("dcp_future_progress", None, [handle, pointer(c_uint64), pointer(c_uint64)]),
        ("dcp_future_cancel", None, [handle]),
        ("dcp_future_free", None, [handle]),
        ("dcp_finish_saves", None, []),
        ("dcp_save_plan_cache_new", c_int, [pointer(handle)]),
        ("dcp_save_plan_cache_free", None, [handle]),
        ("dcp_load_plan_cache_new", c_int, [pointer(handle)]),
        ("dcp_load_plan_cache_free", None, [handle]),
        ("dcp_save_id_make", c_int, [c_char_p]),
        (
            "dcp_shard_writer_open_sized",
            c_int,
            [text, text, pointer(structs.dcp_shard_writer_options), c_size_t, pointer(handle)],
        ),
        ("dcp_shard_writer_add_packed", c_int, [handle, c_char_p, c_size_t]),
        ("dcp_shard_writer_count", c_size_t, [handle]),
        ("dcp_shard_writer_seal", c_int, [handle]),
        (
            "dcp_shard_writer_locations",
            c_int,
            [handle, pointer(ctypes.c_uint64), c_size_t],
        ),
        ("dcp_shard_writer_free", None, [handle]),
        (
            "dcp_checkpoint_read_stream_sized",
            c_int,
            [
                handle,
                c_size_t,
                c_size_t,
                structs.Sink,
                c_void_p,
                pointer(structs.dcp_read_options),
                c_size_t,
            ],
        ),
        (
            "dcp_group_new",
            c_int,
            [pointer(structs.dcp_group_operations), c_void_p, c_int, c_int, pointer(handle)],
        ),
        ("dcp_group_free", None, [handle]),
        ("dcp_set_log", c_int, [c_void_p, c_void_p, c_int]),
        ("dcp_save_chain_in_background", c_bool, [handle]),
    ]
    for name, result, arguments in functions:
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(
                "libdcp: %s is older than the package, it has no %s" % (library._name, name)
            )
        function.restype = result
        function.argtypes = arguments


lib = _open()
_declare(lib)


def message() -> str:
    """What the calling thread's last failure says."""
    text: bytes = lib.dcp_error_message()
    return text.decode("utf-8", "replace")


def check(status: int) -> None:
    """Raises the exception of a failure, with the message of the calling thread."""
    if status != OK:
        raise error_of(status, message())


def release_with(owner: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Has a function called when an object goes, or when the result is called.

    At the end of the program it is not called: daemon threads may be using what it would free.
    """
    finalizer = weakref.finalize(owner, function, *arguments)
    finalizer.atexit = False
    return finalizer


class Callbacks:
    """Exceptions that callbacks raised during a call: they come back from it, whole."""

    def __init__(self) -> None:
        self.raised: List[BaseException] = []

    def call(self, function: Callable[[], None]) -> int:
        """Runs a callback's body; a status for the library."""
        try:
            function()
        except BaseException as error:  # even KeyboardInterrupt must not pass through C
            self.raised.append(error)
            text = "%s: %s" % (type(error).__name__, error)
            lib.dcp_error_set(ERR_CALLBACK, b"%s", text.encode("utf-8", "replace"))
            return ERR_CALLBACK
        return OK

    def check(self, status: int) -> None:
        if self.raised:
            raise self.raised[0]
        check(status)

    def raise_first(self, earlier: Optional[BaseException] = None) -> None:
        """Raises what came first, which may have been before the call, and forgets the others."""
        raised, self.raised = self.raised, []
        if earlier:
            raise earlier
        if raised:
            raise raised[0]


def interruptible(call: Callable[[], T], cancel: Callable[[], None]) -> T:
    """Runs a long call so that Control-C is noticed.

    In the main thread the call runs in another one. KeyboardInterrupt is raised when the call has
    been cancelled and has returned, or will never begin: nothing of it is under way then.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    results: List[T] = []
    errors: List[BaseException] = []
    claimed = threading.Lock()  # by the thread that begins the call, or by the one that forgoes it
    done = threading.Event()

    def run() -> None:
        if not claimed.acquire(blocking=False):
            return
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run, name="libdcp", daemon=True)
    interrupted: Optional[KeyboardInterrupt] = None
    begun = False
    while not done.is_set():
        try:
            if not begun:
                begun = True
                thread.start()
            # A signal that another thread takes does not end the wait.
            while not done.wait(SLICE_SECONDS):
                pass
        except KeyboardInterrupt as error:
            interrupted = error
            if claimed.acquire(blocking=False):
                raise
            cancel()
        except RuntimeError:  # Python is ending, or the system has no more threads
            return call()
    thread.join()
    if interrupted is not None:
        raise interrupted
    if errors:
        raise errors[0]
    return results[0]


def texts(values: Any, what: str) -> Tuple[Any, int]:
    """Paths or patterns for the library, kept alive by whoever keeps the array, and how many.
    TypeError: it is one text."""
    if isinstance(values, (str, bytes)):
        raise TypeError("%s is a sequence of texts, not one: %r" % (what, values))
    encoded = [path_bytes(value) for value in values]
    return (c_char_p * len(encoded))(*encoded) if encoded else None, len(encoded)


def path_bytes(path: Any) -> bytes:
    """A path, id or pattern as the library takes it. ValueError: it has a NUL inside, where the
    library would see its end."""
    encoded = os.fsencode(os.fspath(path))
    if b"\0" in encoded:
        raise ValueError("%r has a NUL inside" % (path,))
    return encoded


def whole_number(value: Any, what: str, bits: int, signed: bool = True) -> int:
    """An int for the library, which ctypes would cut to its bits. ArgumentError: it has more."""
    number = operator.index(value)
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if not least <= number <= most:
        text = "%s is %d, expected %d to %d" % (what, number, least, most)
        raise error_of(ERR_ARGUMENT, text)
    return number
