/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file run.hpp
 * @brief The checkpoints of a training run.
 */
#ifndef DCP_CPP_RUN_HPP
#define DCP_CPP_RUN_HPP

#include <cstddef>
#include <optional>
#include <string>

#include "../run_list.h"
#include "error.hpp"
#include "storage.hpp"

namespace dcp
{

/** The checkpoints of a run, oldest first (dcp_run_list). Texts of what it gives are borrowed from
 * it. */
class run_list
{
  public:
    /** Finds and checks them, see dcp_run_list_read(). @param latest_only only what finding the
     * latest one takes is checked. */
    explicit run_list(const std::string &path, const storage &where = {}, bool latest_only = false)
    {
        dcp_run_list_options options{};
        options.storage = where.get();
        options.latest_only = latest_only;
        dcp_run_list *found = nullptr;
        where.finish(dcp_run_list_read(detail::text_of(path), &options, &found));
        handle_.reset(found);
    }

    dcp_run_list *get() const noexcept
    {
        return handle_.get();
    }
    /** @return number of checkpoints. */
    std::size_t size() const noexcept
    {
        return handle_ ? dcp_run_list_count(get()) : 0;
    }
    dcp_run_checkpoint operator[](std::size_t index) const
    {
        dcp_run_checkpoint found{};
        check(dcp_run_list_checkpoint(get(), index, &found));
        return found;
    }
    /** @return the newest one that is whole; nothing if there is none. @throw error
     * DCP_ERR_DUPLICATE if several would be it. */
    std::optional<dcp_run_checkpoint> latest() const
    {
        std::size_t index = 0;
        dcp_status status = dcp_run_list_latest(get(), &index);
        if (status == DCP_ERR_NOT_FOUND)
            return std::nullopt;
        check(status);
        return (*this)[index];
    }
    /** @return one line: which is the latest and why, or why there is none. */
    std::string reason() const
    {
        return dcp_run_list_reason(get());
    }
    /** @return number of marks that a framework left. */
    std::size_t mark_count() const noexcept
    {
        return handle_ ? dcp_run_list_mark_count(get()) : 0;
    }
    dcp_run_mark mark(std::size_t index) const
    {
        dcp_run_mark found{};
        check(dcp_run_list_mark(get(), index, &found));
        return found;
    }

  private:
    owner<dcp_run_list, dcp_run_list_free> handle_;
};

} // namespace dcp

#endif
