/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file save.hpp
 * @brief Saving and loading a state.
 */
#ifndef DCP_CPP_SAVE_HPP
#define DCP_CPP_SAVE_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "../estimate.h"
#include "../load.h"
#include "../save.h"
#include "options.hpp"

namespace dcp
{

/**
 * Saves a state as the checkpoint @p path, see dcp_save(). Collective over the group.
 * @throw error what dcp_save() returns; whatever functions of the tree and the options have thrown.
 */
inline void save(state &tree, const std::string &path, const save_options &options = {})
{
    detail::call_functions functions{options.progress, options.after_commit, {}};
    detail::lowered_save lowered(options, functions);
    detail::finish(dcp_save(tree.get(), detail::text_of(path), &lowered.c), tree, options,
                   functions.carrier);
}

/** @return what save() would need, see dcp_save_estimate(). Collective over the group. */
inline dcp_estimate save_estimate(state &tree, const std::string &path,
                                  const save_options &options = {})
{
    dcp_estimate estimate{};
    estimate.size_of = sizeof estimate;
    detail::call_functions functions{options.progress, nullptr, {}};
    detail::lowered_save lowered(options, functions);
    detail::finish(dcp_save_estimate(tree.get(), detail::text_of(path), &lowered.c, &estimate),
                   tree, options, functions.carrier);
    return estimate;
}

/** What a load found: a range of dcp_report_line, whose texts are borrowed from it. Copies share
 * it. */
class load_report
{
  public:
    /** An empty one. */
    load_report() noexcept = default;
    /** Of C: takes a report. */
    explicit load_report(dcp_load_report *handle) : handle_(handle, dcp_load_report_free)
    {
    }

    dcp_load_report *get() const noexcept
    {
        return handle_.get();
    }
    std::size_t size() const noexcept
    {
        return handle_ ? dcp_load_report_count(get()) : 0;
    }
    dcp_report_line operator[](std::size_t index) const
    {
        dcp_report_line line{};
        check(dcp_load_report_line(get(), index, &line));
        return line;
    }
    /** dcp_figures::bytes_checked of this rank. */
    std::uint64_t bytes_checked() const noexcept
    {
        return handle_ ? dcp_load_report_bytes_checked(get()) : 0;
    }
    /** dcp_figures::bytes_unchecked of this rank. */
    std::uint64_t bytes_unchecked() const noexcept
    {
        return handle_ ? dcp_load_report_bytes_unchecked(get()) : 0;
    }

  private:
    std::shared_ptr<dcp_load_report> handle_;
};

/** A load that has failed for what is in its report. */
class load_error : public error
{
  public:
    load_error(const error &failure, load_report report)
        : error(failure), report_(std::move(report))
    {
    }
    const load_report &report() const noexcept
    {
        return report_;
    }

  private:
    load_report report_;
};

/**
 * Fills a state from the checkpoint @p path, see dcp_load(). Collective over the group.
 * @throw load_error a failure that has a report; error what else dcp_load() returns; whatever
 * functions of the tree and the options have thrown.
 */
inline load_report load(state &tree, const std::string &path, const load_options &options = {})
{
    dcp_load_report *found = nullptr;
    detail::call_functions functions{options.progress, nullptr, {}};
    detail::lowered_load lowered(options, functions);
    dcp_status status = dcp_load(tree.get(), detail::text_of(path), &lowered.c, &found);
    owner<dcp_load_report, dcp_load_report_free> kept(found);
    detail::finish(status, tree, options, functions.carrier, [&](const error &failure) {
        if (kept)
            throw load_error(failure, load_report(kept.release()));
        throw failure;
    });
    return load_report(kept.release());
}

} // namespace dcp

#endif
