# SPDX-License-Identifier: BSD-3-Clause
"""Structs of the C interface, or as much of them as the package needs.

Structs that are passed with their size may end earlier than the library's: what is missing is
zero there. Fields have the names and order of the headers; a test compares them with the list of
frozen layouts.
"""

from __future__ import annotations

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)

MAX_DIMS = 64

Sink = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)
FaultFunction = CFUNCTYPE(None, c_void_p, c_char_p, c_uint64, c_char_p, c_char_p)
DoneFunction = CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class dcp_device(Structure):
    _fields_ = [("operations", c_void_p), ("index", c_int32), ("queue", c_void_p)]


class dcp_tensor(Structure):
    """Without the layout at its end."""

    _fields_ = [
        ("dtype", c_int),
        ("ndim", c_int32),
        ("sharded", c_bool),
        ("strided", c_bool),
        ("requires_grad", c_bool),
        ("device", dcp_device),
        ("data", c_void_p),
        ("global_shape", c_int64 * MAX_DIMS),
        ("offsets", c_int64 * MAX_DIMS),
        ("sizes", c_int64 * MAX_DIMS),
        ("strides", c_int64 * MAX_DIMS),
    ]


class dcp_path_part(Structure):
    _fields_ = [("key", c_char_p), ("position", c_int64)]


class dcp_entry(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("path", POINTER(dcp_path_part)),
        ("path_length", c_size_t),
        ("is_tensor", c_bool),
        ("dtype", c_int),
        ("ndim", c_int32),
        ("global_shape", POINTER(c_int64)),
        ("bytes", c_uint64),
        ("chunk_count", c_size_t),
    ]


class dcp_stored_chunk(Structure):
    _fields_ = [
        ("offsets", POINTER(c_int64)),
        ("sizes", POINTER(c_int64)),
        ("file", c_char_p),
        ("offset", c_uint64),
        ("length", c_uint64),
    ]


class dcp_mapped_chunk(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("bytes", c_size_t),
        ("alignment", c_size_t),
        ("offsets", POINTER(c_int64)),
        ("sizes", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
    ]


class dcp_open_options(Structure):
    _fields_ = [
        ("storage", c_void_p),
        ("members", POINTER(c_char_p)),
        ("member_count", c_size_t),
        ("local_parts", c_bool),
        ("progress", c_void_p),
        ("progress_context", c_void_p),
    ]


class dcp_read_options(Structure):
    _fields_ = [("verification", c_int), ("convert", c_bool)]


class dcp_save_info(Structure):
    _fields_ = [
        ("found", c_bool),
        ("stale", c_bool),
        ("has_step", c_bool),
        ("has_info", c_bool),
        ("step", c_int64),
        ("unix_time", c_int64),
        ("world_size", c_int32),
        ("save_id", c_char_p),
    ]


class dcp_progress(Structure):
    _fields_ = [("phase", c_int), ("bytes_done", c_uint64), ("bytes_total", c_uint64)]


ProgressFunction = CFUNCTYPE(c_bool, c_void_p, POINTER(dcp_progress))


AfterCommit = CFUNCTYPE(c_int, c_void_p, c_char_p, c_char_p)


class dcp_save_options(Structure):
    """As it is."""

    _fields_ = [
        ("group", c_void_p),
        ("coordinator", c_int32),
        ("overwrite", c_int),
        ("replicas", c_int),
        ("files", c_int),
        ("thread_count", c_int32),
        ("skip_sync", c_bool),
        ("timeout_seconds", c_double),
        ("has_step", c_bool),
        ("step", c_int64),
        ("info", c_void_p),
        ("figures", c_void_p),
        ("progress", ProgressFunction),
        ("progress_context", c_void_p),
        ("io", c_uint32),
        ("compression", c_int),
        ("compression_level", c_int32),
        ("compression_threads", c_int32),
        ("write_rate", c_uint64),
        ("io_threads", c_int32),
        ("io_priority", c_int),
        ("planner", c_void_p),
        ("storage_writer", c_void_p),
        ("no_dist", c_bool),
        ("unflattened", c_bool),
        ("plan_cache", c_void_p),
        ("memory_limit", c_uint64),
        ("storage_writers", c_void_p),
        ("storage_writer_count", c_size_t),
        ("storage", c_void_p),
        ("chain", c_void_p),
        ("takeover_seconds", c_double),
        ("check_replicas", c_int),
        ("allow_different_replicas", c_bool),
        ("allow_partial", c_bool),
        ("without_collectives", c_bool),
        ("rank", c_int32),
        ("after_commit", AfterCommit),
        ("after_commit_context", c_void_p),
        ("metadata", c_void_p),
        ("page_cache", c_int),
        ("extra_files", c_void_p),
        ("extra_file_count", c_size_t),
        ("checkpoint_id", c_char_p),
    ]


class dcp_load_options(Structure):
    """Up to the plan cache."""

    _fields_ = [
        ("group", c_void_p),
        ("coordinator", c_int32),
        ("strictness", c_int),
        ("verification", c_int),
        ("convert", c_bool),
        ("timeout_seconds", c_double),
        ("thread_count", c_int32),
        ("io", c_uint32),
        ("include", POINTER(c_char_p)),
        ("include_count", c_size_t),
        ("exclude", POINTER(c_char_p)),
        ("exclude_count", c_size_t),
        ("renames", c_void_p),
        ("rename_count", c_size_t),
        ("figures", c_void_p),
        ("progress", ProgressFunction),
        ("progress_context", c_void_p),
        ("unflattened", c_bool),
        ("members", POINTER(c_char_p)),
        ("member_count", c_size_t),
        ("reading", c_int),
        ("group_bytes_per_second", c_uint64),
        ("io_priority", c_int),
        ("planner", c_void_p),
        ("storage_reader", c_void_p),
        ("storage_readers", c_void_p),
        ("storage_reader_count", c_size_t),
        ("no_dist", c_bool),
        ("memory_limit", c_uint64),
        ("plan_cache", c_void_p),
    ]


class dcp_shard_writer_options(Structure):
    _fields_ = [
        ("storage", c_void_p),
        ("save_id", c_char_p),
        ("skip_sync", c_bool),
        ("io", c_uint32),
        ("compression", c_int),
        ("compression_level", c_int32),
        ("compression_threads", c_int32),
        ("write_rate", c_uint64),
        ("io_threads", c_int32),
        ("io_priority", c_int),
        ("timeout_seconds", c_double),
        ("page_cache", c_int),
    ]


class dcp_report_line(Structure):
    _fields_ = [
        ("difference", c_int),
        ("name", c_char_p),
        ("detail", c_char_p),
        ("stored_name", c_char_p),
    ]


class dcp_save_chain_options(Structure):
    _fields_ = [
        ("group", c_void_p),
        ("timeout_seconds", c_double),
        ("staging", c_int),
        ("staging_limit", c_uint64),
        ("staging_threads", c_int32),
        ("stager", c_void_p),
        ("detect_changes", c_bool),
        ("when_busy", c_int),
        ("retries", c_int32),
        ("retry_seconds", c_double),
        ("fallback_path", c_char_p),
        ("log_failures", c_bool),
        ("exit_seconds", c_double),
        ("make_room", c_void_p),
        ("make_room_context", c_void_p),
    ]


class dcp_collective(Structure):
    _fields_ = [("phase", c_char_p), ("timeout_seconds", c_double)]


AllGather = CFUNCTYPE(c_int, c_void_p, POINTER(dcp_collective), c_void_p, c_size_t, c_void_p)
Broadcast = CFUNCTYPE(c_int, c_void_p, POINTER(dcp_collective), c_int, c_void_p, c_size_t)
AllToAll = CFUNCTYPE(
    c_int,
    c_void_p,
    POINTER(dcp_collective),
    c_void_p,
    POINTER(c_size_t),
    POINTER(c_size_t),
    c_void_p,
    POINTER(c_size_t),
    POINTER(c_size_t),
)
Close = CFUNCTYPE(None, c_void_p)
Duplicate = CFUNCTYPE(c_int, c_void_p, POINTER(dcp_collective), POINTER(c_void_p))


class dcp_group_operations(Structure):
    """Up to the making of copies; what has no type here is left out of groups."""

    _fields_ = [
        ("size_of", c_size_t),
        ("all_gather", AllGather),
        ("broadcast", Broadcast),
        ("gather", c_void_p),
        ("scatter", c_void_p),
        ("close", Close),
        ("all_to_all", AllToAll),
        ("duplicate", Duplicate),
    ]


StatefulFunction = CFUNCTYPE(c_int, c_void_p, c_void_p)


class dcp_stateful(Structure):
    _fields_ = [
        ("state_dict", StatefulFunction),
        ("load_state_dict", c_void_p),
        ("context", c_void_p),
    ]
