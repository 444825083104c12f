/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file options.hpp
 * @brief Options of saves and loads: those of C, with functions, texts and storages as values.
 */
#ifndef DCP_CPP_OPTIONS_HPP
#define DCP_CPP_OPTIONS_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../load.h"
#include "../progress.h"
#include "../save.h"
#include "error.hpp"
#include "group.hpp"
#include "state.hpp"
#include "storage.hpp"

namespace dcp
{

/** Receives progress, as dcp_progress_function, on any thread. @return true to go on, false to end
 * with DCP_ERR_CANCELLED. What it throws ends the save or load as well, which then throws it. */
using progress_function = std::function<bool(const dcp_progress &progress)>;

/** What is kept between saves of the same structure: dcp_save_plan_cache. */
class save_plan_cache
{
  public:
    save_plan_cache()
    {
        dcp_save_plan_cache *made = nullptr;
        check(dcp_save_plan_cache_new(&made));
        handle_.reset(made);
    }
    dcp_save_plan_cache *get() const noexcept
    {
        return handle_.get();
    }

  private:
    owner<dcp_save_plan_cache, dcp_save_plan_cache_free> handle_;
};

/** What is kept between loads of the same structure: dcp_load_plan_cache. */
class load_plan_cache
{
  public:
    load_plan_cache()
    {
        dcp_load_plan_cache *made = nullptr;
        check(dcp_load_plan_cache_new(&made));
        handle_.reset(made);
    }
    dcp_load_plan_cache *get() const noexcept
    {
        return handle_.get();
    }

  private:
    owner<dcp_load_plan_cache, dcp_load_plan_cache_free> handle_;
};

/** A small file that belongs to a checkpoint: see dcp_save_options::extra_files. */
struct extra_file {
    std::string name;
    std::string bytes;
};

/**
 * Options of a save. The fields are those of dcp_save_options, under their names. Those that are
 * declared here take the place of fields in C that are pointers or belong together; they are looked
 * at by the calls of this interface alone.
 */
struct save_options : dcp_save_options {
    save_options() : dcp_save_options{}
    {
    }

    group_reference group;            /**< the ranks that save together; borrowed */
    std::optional<std::int64_t> step; /**< for metadata.json */
    dcp::storage storage;             /**< where the path is */
    progress_function progress;       /**< optional */
    /** dcp_save_options::after_commit. What it throws is thrown by this rank's save, although the
     * checkpoint is committed. Optional. */
    std::function<void(const std::string &path, const std::string &save_id)> after_commit;
    std::vector<extra_file> extra_files; /**< of this rank */
    /** Of tables that are fields of C, such as a planner's: what it has kept is thrown by the save;
     * borrowed. */
    exception_carrier *carrier = nullptr;
};

/** A rule that says under which name a checkpoint holds what the tree has under another:
 * dcp_rename. */
struct rename {
    dcp_rename_kind kind;
    std::string wanted;
    std::string stored;
};

/** Options of a load. The fields are those of dcp_load_options; see dcp::save_options. */
struct load_options : dcp_load_options {
    load_options() : dcp_load_options{}
    {
    }

    group_reference group;            /**< the ranks that load together; borrowed */
    std::vector<std::string> include; /**< patterns of the names to load; none: all */
    std::vector<std::string> exclude; /**< patterns of the names not to load */
    std::vector<rename> renames;      /**< where to find names that are stored under others */
    std::vector<std::string> members; /**< directories whose union is loaded */
    dcp::storage storage;             /**< where the path is */
    progress_function progress;       /**< optional */
    /** As dcp::save_options::carrier. */
    exception_carrier *carrier = nullptr;
};

/** @cond */
namespace detail
{

/* Texts as an array of C. */
inline std::vector<const char *> texts(const std::vector<std::string> &strings)
{
    std::vector<const char *> pointers;
    pointers.reserve(strings.size());
    for (const std::string &text : strings)
        pointers.push_back(text_of(text));
    return pointers;
}

/* Functions of one call, and the way back of what they throw. */
struct call_functions {
    progress_function progress;
    std::function<void(const std::string &, const std::string &)> after_commit;
    exception_carrier carrier;

    static bool on_progress(void *context, const dcp_progress *progress)
    {
        auto *self = static_cast<call_functions *>(context);
        bool goes_on = false;
        self->carrier.run([&] { goes_on = self->progress(*progress); });
        return goes_on;
    }
    static dcp_status on_commit(void *context, const char *path, const char *save_id)
    {
        auto *self = static_cast<call_functions *>(context);
        return self->carrier.run([&] { self->after_commit(path, save_id ? save_id : ""); });
    }
};

/* Options of a save in C; what they point to is in the options and here. */
struct lowered_save {
    dcp_save_options c;
    std::vector<dcp_extra_file> extra_files;

    lowered_save(const save_options &options, call_functions &functions) : c(options)
    {
        if (options.group.get())
            c.group = options.group.get();
        if (options.step) {
            c.has_step = true;
            c.step = *options.step;
        }
        if (options.storage.get())
            c.storage = options.storage.get();
        if (functions.progress) {
            c.progress = call_functions::on_progress;
            c.progress_context = &functions;
        }
        if (functions.after_commit) {
            c.after_commit = call_functions::on_commit;
            c.after_commit_context = &functions;
        }
        for (const extra_file &file : options.extra_files)
            extra_files.push_back({sizeof(dcp_extra_file), detail::text_of(file.name),
                                   file.bytes.data(), file.bytes.size()});
        if (!extra_files.empty()) {
            c.extra_files = extra_files.data();
            c.extra_file_count = extra_files.size();
        }
    }
    lowered_save(const lowered_save &) = delete;
    lowered_save &operator=(const lowered_save &) = delete;
};

/* Options of a load in C. */
struct lowered_load {
    dcp_load_options c;
    std::vector<const char *> include, exclude, members;
    std::vector<dcp_rename> renames;

    lowered_load(const load_options &options, call_functions &functions)
        : c(options), include(texts(options.include)), exclude(texts(options.exclude)),
          members(texts(options.members))
    {
        if (options.group.get())
            c.group = options.group.get();
        if (options.storage.get())
            c.storage = options.storage.get();
        if (functions.progress) {
            c.progress = call_functions::on_progress;
            c.progress_context = &functions;
        }
        set(include, c.include, c.include_count);
        set(exclude, c.exclude, c.exclude_count);
        set(members, c.members, c.member_count);
        for (const rename &rule : options.renames)
            renames.push_back(
                {rule.kind, detail::text_of(rule.wanted), detail::text_of(rule.stored)});
        if (!renames.empty()) {
            c.renames = renames.data();
            c.rename_count = renames.size();
        }
    }
    lowered_load(const lowered_load &) = delete;
    lowered_load &operator=(const lowered_load &) = delete;

  private:
    static void set(const std::vector<const char *> &from, const char *const *&into,
                    std::size_t &count)
    {
        if (!from.empty()) {
            into = from.data();
            count = from.size();
        }
    }
};

/* Throws what the functions of a call have thrown; else ends its failure, if it has failed, by
 * `fail`, which throws. */
template <class Options, class Fail>
void finish(dcp_status status, state &tree, const Options &options, exception_carrier &carrier,
            Fail &&fail)
{
    std::optional<error> failure;
    if (status != DCP_OK)
        failure.emplace(status);
    carrier.rethrow();
    tree.finish(DCP_OK);
    if (options.carrier)
        options.carrier->rethrow();
    options.group.rethrow();
    if (!failure)
        return options.storage.finish(DCP_OK);
    options.storage.rethrow();
    fail(*failure);
}
template <class Options>
void finish(dcp_status status, state &tree, const Options &options, exception_carrier &carrier)
{
    finish(status, tree, options, carrier, [](const error &failure) { throw failure; });
}

} // namespace detail
/** @endcond */

} // namespace dcp

#endif
