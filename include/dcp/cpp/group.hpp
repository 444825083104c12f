/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file group.hpp
 * @brief Process groups that free themselves, and groups over a class of the caller's.
 */
#ifndef DCP_CPP_GROUP_HPP
#define DCP_CPP_GROUP_HPP

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "../group.h"
#include "error.hpp"

namespace dcp
{

/**
 * What a group over communication of the caller's has to do; see dcp_group_operations, of which
 * these are the two that a group must have. What they throw fails the call on all ranks, and is
 * thrown by it on this one, if the call is a save, load or split with this group (options and
 * dcp::group pass it on).
 */
class collectives
{
  public:
    virtual ~collectives() = default;
    /** Gives every rank the concatenation of every rank's @p bytes bytes, in rank order. */
    virtual void all_gather(const dcp_collective &call, const void *send, std::size_t bytes,
                            void *receive) = 0;
    /** Gives every rank the root's @p bytes bytes. */
    virtual void broadcast(const dcp_collective &call, int root, void *data, std::size_t bytes) = 0;
};

/** @cond */
namespace detail
{

/* The table of a group over collectives. */
struct group_adapter {
    std::shared_ptr<collectives> own;
    exception_carrier carrier;

    static dcp_status all_gather(void *context, const dcp_collective *call, const void *send,
                                 std::size_t bytes, void *receive)
    {
        auto *self = static_cast<group_adapter *>(context);
        return self->carrier.run([&] { self->own->all_gather(*call, send, bytes, receive); });
    }
    static dcp_status broadcast(void *context, const dcp_collective *call, int root, void *data,
                                std::size_t bytes)
    {
        auto *self = static_cast<group_adapter *>(context);
        return self->carrier.run([&] { self->own->broadcast(*call, root, data, bytes); });
    }
};

} // namespace detail
/** @endcond */

/**
 * The ranks that save or load together (dcp_group). Empty, and moved from, it is this process
 * alone.
 */
class group
{
  public:
    group() noexcept = default;
    /** Of C: takes a group, such as one of dcp_group_new_mpi(). */
    explicit group(dcp_group *handle) noexcept : handle_(handle)
    {
    }
    /** Over communication of the caller's. @param operations kept as long as the group is. */
    group(std::shared_ptr<collectives> operations, int rank, int size)
        : operations_(std::make_shared<detail::group_adapter>())
    {
        if (!operations)
            throw error(DCP_ERR_ARGUMENT, "a group without collectives");
        operations_->own = std::move(operations);
        dcp_group_operations table{};
        table.size_of = sizeof table;
        table.all_gather = detail::group_adapter::all_gather;
        table.broadcast = detail::group_adapter::broadcast;
        dcp_group *made = nullptr;
        check(dcp_group_new(&table, operations_.get(), rank, size, &made));
        handle_.reset(made);
    }
    /** @return groups of threads of this process: the r-th is for the thread that plays rank r. */
    static std::vector<group> threads(int size)
    {
        std::vector<dcp_group *> handles(size > 0 ? static_cast<std::size_t>(size) : 0);
        std::vector<group> groups;
        groups.reserve(handles.size());
        check(dcp_group_new_threads(size, handles.data()));
        for (dcp_group *handle : handles)
            groups.emplace_back(handle);
        return groups;
    }

    dcp_group *get() const noexcept
    {
        return handle_.get();
    }
    int rank() const noexcept
    {
        return dcp_group_rank(get());
    }
    int size() const noexcept
    {
        return dcp_group_size(get());
    }

    /** Splits the group, as dcp_group_split(). Collective. */
    group split(int color, int key = 0, double timeout_seconds = 0)
    {
        dcp_group *part = nullptr;
        finish(dcp_group_split(get(), color, key, timeout_seconds, &part));
        return group(part);
    }
    /** Gives every rank the values of every rank, in rank order. Collective. */
    template <class Type> std::vector<Type> all_gather(const Type &mine, double timeout_seconds = 0)
    {
        static_assert(std::is_trivially_copyable_v<Type>, "bytes are what ranks exchange");
        std::vector<Type> all(static_cast<std::size_t>(size()));
        finish(dcp_group_all_gather(get(), &mine, sizeof mine, timeout_seconds, all.data()));
        return all;
    }
    /** Gives every rank the value of one. Collective. */
    template <class Type> void broadcast(int root, Type &value, double timeout_seconds = 0)
    {
        static_assert(std::is_trivially_copyable_v<Type>, "bytes are what ranks exchange");
        finish(dcp_group_broadcast(get(), root, sizeof value, timeout_seconds, &value));
    }
    /** Returns when all ranks have called it. */
    void barrier(double timeout_seconds = 0)
    {
        finish(dcp_group_barrier(get(), timeout_seconds));
    }

    /** Ends a call of the library with the group, as exception_carrier::finish() does. */
    void finish(dcp_status status) const
    {
        if (operations_)
            operations_->carrier.finish(status);
        else
            check(status);
    }

  private:
    friend class group_reference;

    std::shared_ptr<detail::group_adapter> operations_; /* outlives the handle */
    owner<dcp_group, dcp_group_free> handle_;
};

/** A group as an option names it: borrowed, of this interface or of C. */
class group_reference
{
  public:
    group_reference() noexcept = default;
    group_reference(const group &group) noexcept
        : operations_(group.operations_), handle_(group.get())
    {
    }
    group_reference(dcp_group *handle) noexcept : handle_(handle)
    {
    }
    dcp_group *get() const noexcept
    {
        return handle_;
    }
    /** Throws what a function of the group has thrown. */
    void rethrow() const
    {
        if (operations_)
            operations_->carrier.rethrow();
    }

  private:
    std::shared_ptr<detail::group_adapter> operations_;
    dcp_group *handle_ = nullptr;
};

} // namespace dcp

#endif
