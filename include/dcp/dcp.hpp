/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file dcp.hpp
 * @brief libdcp for C++17 and later: values that clean up after themselves, failures as exceptions.
 *
 * A thin layer in headers alone: each call is one of C (dcp.h), whose documentation says what it
 * does; nothing here cannot be done there. What C calls dcp_save() is dcp::save() here.
 *
 * | header | what |
 * | --- | --- |
 * | cpp/error.hpp | dcp::error, a status and a message; exceptions on their way through C |
 * | cpp/tensor.hpp | dcp::tensor, dcp::mesh, placements |
 * | cpp/node.hpp, cpp/state.hpp | dcp::state, a tree written in braces; its nodes; stateful entries
 * | | cpp/group.hpp | dcp::group, ranks | | cpp/storage.hpp | dcp::storage, a place for
 * checkpoints; dcp::custom_storage | | cpp/options.hpp, cpp/save.hpp | dcp::save(), dcp::load() |
 * | cpp/async.hpp | dcp::save_async(), dcp::future, dcp::save_chain |
 * | cpp/checkpoint.hpp | dcp::open(), dcp::verify(), dcp::remove() |
 * | cpp/run.hpp | dcp::run_list |
 *
 * **Owning.** Handles are owned by types that can be moved and not copied, or, where a copy shares
 * the handle, say so. One that was moved from is empty. get() gives the handle, for calls of C that
 * have no counterpart here (planners, single shard files, optimizers, whole states), and most types
 * can be made of one.
 *
 * **Failures** are thrown: dcp::error has the status and the message that a call in C would have
 * given. What a function of the program's throws (progress, stateful entries, a storage, a group)
 * crosses the library as a status, so that all ranks learn of it, and is thrown unchanged by the
 * call that the function was part of, or by dcp::future::get().
 *
 * **Options** derive from the structs of C: all of their fields are there, and are zero, and those
 * that are pointers in C have values in C++ in their place.
 *
 * @code
 * dcp::state state{{"model", {{"weight", dcp::tensor(weight.data(), {rows, columns})}}},
 *                  {"step", 1000}};
 * dcp::save(state, "checkpoints/step_1000");
 * @endcode
 */
#ifndef DCP_DCP_HPP
#define DCP_DCP_HPP

#include "../dcp.h"
#include "cpp/async.hpp"
#include "cpp/checkpoint.hpp"
#include "cpp/error.hpp"
#include "cpp/group.hpp"
#include "cpp/node.hpp"
#include "cpp/options.hpp"
#include "cpp/run.hpp"
#include "cpp/save.hpp"
#include "cpp/state.hpp"
#include "cpp/storage.hpp"
#include "cpp/tensor.hpp"

#endif
