/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file async.hpp
 * @brief Saving while training goes on: futures and chains.
 */
#ifndef DCP_CPP_ASYNC_HPP
#define DCP_CPP_ASYNC_HPP

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../async.h"
#include "options.hpp"

namespace dcp
{

/** Called when a save has ended, with DCP_OK and "", or with its failure and message; see
 * dcp_future_on_done(). */
using done_function = std::function<void(dcp_status status, const std::string &message)>;

/** @cond */
namespace detail
{

/* What an asynchronous save needs until it has ended, however long its future lives. */
class async_call
{
  public:
    call_functions functions;
    dcp::storage storage;
    group_reference group;
    exception_carrier *carrier = nullptr;

    /* Throws what functions have thrown, and then the failure, if there is one. */
    void finish(const std::optional<error> &failure)
    {
        functions.carrier.rethrow();
        if (carrier)
            carrier->rethrow();
        group.rethrow();
        if (!failure)
            return storage.finish(DCP_OK);
        storage.rethrow();
        throw *failure;
    }

    void expect()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        callers_.reserve(expected_ + 1); /* so that calling them cannot fail */
        expected_++;
    }
    void forget()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        expected_--;
        changed_.notify_all();
    }
    /* Calls a function that is expected. */
    void call(const done_function &function, dcp_status status, const char *message) noexcept
    {
        enter();
        functions.carrier.run([&] { function(status, message); });
        std::lock_guard<std::mutex> lock(mutex_);
        callers_.erase(std::find(callers_.begin(), callers_.end(), std::this_thread::get_id()));
        expected_--;
        changed_.notify_all();
    }
    /* Waits until all functions have returned; not in one of them. False: not yet. */
    bool await_functions(double timeout_seconds)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        auto over = [&] {
            return expected_ == 0 || std::find(callers_.begin(), callers_.end(),
                                               std::this_thread::get_id()) != callers_.end();
        };
        if (timeout_seconds >= 0 && timeout_seconds < 1e9)
            return changed_.wait_for(lock, std::chrono::duration<double>(timeout_seconds), over);
        changed_.wait(lock, over);
        return true;
    }

  private:
    void enter() noexcept
    {
        std::lock_guard<std::mutex> lock(mutex_);
        callers_.push_back(std::this_thread::get_id());
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t expected_ = 0; /* functions that have not returned */
    std::vector<std::thread::id> callers_;
};

} // namespace detail
/** @endcond */

/**
 * A save on its way (dcp_future). Any thread may ask; one at a time may wait. It is freed, which
 * waits for the save, by its destructor: a failure that was not asked for is what the next save of
 * the chain throws, unless the save has functions or a storage of the program's; exceptions of such
 * functions are lost then. get() hears all of it.
 */
class future
{
  public:
    /** Empty: nothing but valid() may be asked of it. */
    future() noexcept = default;
    /** Of C: takes a future. */
    explicit future(dcp_future *handle)
        : call_(std::make_shared<detail::async_call>()), handle_(handle)
    {
    }

    /** @return whether there is a save; not when it was moved from. */
    bool valid() const noexcept
    {
        return handle_ != nullptr;
    }
    dcp_future *get_handle() const noexcept
    {
        return handle_.get();
    }

    /** Waits until tensors may change, see dcp_future_wait_staged(). @param timeout_seconds
     * negative: as long as it takes. @return false: not yet. @throw error of staging. */
    bool wait_staged(double timeout_seconds = -1)
    {
        dcp_status status = dcp_future_wait_staged(handle_.get(), timeout_seconds);
        if (status == DCP_ERR_TIMEOUT && timeout_seconds >= 0 && !failed())
            return false;
        if (status != DCP_OK)
            required().finish(error(status));
        return true;
    }
    /** Waits until the save has ended and the functions of on_done() have returned. Says nothing of
     * how: that is get(). @return false: not yet. */
    bool wait(double timeout_seconds = -1)
    {
        using clock = std::chrono::steady_clock;
        clock::time_point start = clock::now();
        if (std::isnan(timeout_seconds))
            throw error(DCP_ERR_ARGUMENT, "timeout_seconds is not a number");
        detail::async_call &call = required();
        dcp_status status = dcp_future_wait(handle_.get(), timeout_seconds);
        if (status == DCP_ERR_TIMEOUT && timeout_seconds >= 0 && !failed())
            return false;
        double waited = std::chrono::duration<double>(clock::now() - start).count();
        return call.await_functions(timeout_seconds < 0 ? -1
                                                        : std::max(0.0, timeout_seconds - waited));
    }
    /** Waits until the checkpoint is durable and visible. @throw error why it is not; whatever
     * functions of the save have thrown, also if it is. */
    void get()
    {
        std::shared_ptr<detail::async_call> call = call_;
        required();
        std::optional<error> failure;
        dcp_status status = dcp_future_wait(handle_.get(), -1);
        if (status != DCP_OK)
            failure.emplace(status);
        call->await_functions(-1);
        call->finish(failure);
    }
    /** @return whether the save has ended, without waiting. Collective, and commits, where commits
     * are not in the background. */
    bool done()
    {
        return state() >= DCP_FUTURE_DONE;
    }
    /** As dcp_future_poll(). */
    dcp_future_state state()
    {
        required();
        return dcp_future_poll(handle_.get());
    }
    /** Has a function called when the save has ended, or at once if it has; see
     * dcp_future_on_done(). What it throws is thrown by get(). */
    void on_done(done_function function)
    {
        struct expected {
            std::shared_ptr<detail::async_call> call;
            done_function function;
        };
        required();
        auto kept = std::make_unique<expected>(expected{call_, std::move(function)});
        call_->expect();
        dcp_status status = dcp_future_on_done(
            handle_.get(),
            [](void *context, dcp_status how, const char *message) {
                std::unique_ptr<expected> ours(static_cast<expected *>(context));
                ours->call->call(ours->function, how, message);
            },
            kept.get());
        if (status != DCP_OK) {
            call_->forget();
            throw error(status);
        }
        static_cast<void>(kept.release());
    }
    /** @return the message of a save that has failed, else "". */
    std::string message() const
    {
        required();
        return dcp_future_message(handle_.get());
    }
    /** @return the figures so far. */
    dcp_figures figures() const
    {
        dcp_figures found{};
        found.size_of = sizeof found;
        check(dcp_future_figures(handle_.get(), &found));
        return found;
    }
    /** @return bytes that this rank has written, and will have. */
    std::pair<std::uint64_t, std::uint64_t> progress() const
    {
        std::pair<std::uint64_t, std::uint64_t> bytes{};
        required();
        dcp_future_progress(handle_.get(), &bytes.first, &bytes.second);
        return bytes;
    }
    /** Asks the save to end with DCP_ERR_CANCELLED, see dcp_future_cancel(). */
    void cancel()
    {
        required();
        dcp_future_cancel(handle_.get());
    }

  private:
    friend future save_async(dcp::state &, const std::string &, const save_options &);

    future(dcp_future *handle, std::shared_ptr<detail::async_call> call)
        : call_(std::move(call)), handle_(handle)
    {
    }
    detail::async_call &required() const
    {
        if (!handle_)
            throw error(DCP_ERR_ARGUMENT, "the future is empty");
        return *call_;
    }
    bool failed() const
    {
        return handle_ && *dcp_future_message(handle_.get());
    }

    std::shared_ptr<detail::async_call> call_;
    owner<dcp_future, dcp_future_free> handle_; /* freed first, which waits for functions */
};

/**
 * Begins to save a state, see dcp_save_async(). Collective. The tree and the options may go when it
 * has returned; the memory of tensors as dcp_staging_kind says. Functions and the storage of the
 * options are kept until the save has ended.
 * @throw error of planning; whatever functions of the tree have thrown.
 */
inline future save_async(state &tree, const std::string &path, const save_options &options = {})
{
    auto call = std::make_shared<detail::async_call>();
    call->functions.progress = options.progress;
    call->functions.after_commit = options.after_commit;
    call->storage = options.storage;
    call->group = options.group;
    call->carrier = options.carrier;
    auto kept = std::make_unique<std::shared_ptr<detail::async_call>>(call);
    detail::lowered_save lowered(options, call->functions);
    dcp_future *begun = nullptr;
    dcp_status status = dcp_save_async(tree.get(), detail::text_of(path), &lowered.c, &begun);
    if (status != DCP_OK)
        detail::finish(status, tree, options, call->functions.carrier);
    future result(begun, call);
    if (options.progress || options.after_commit || options.storage.get()) {
        status = dcp_future_on_done(
            begun,
            [](void *context, dcp_status, const char *) {
                delete static_cast<std::shared_ptr<detail::async_call> *>(context);
            },
            kept.get());
        if (status != DCP_OK) { /* nothing would keep the functions longer than this */
            error failure(status);
            result.cancel();
            result.wait();
            throw failure;
        }
        static_cast<void>(kept.release());
    }
    return result;
}

/** Options of a chain. The fields are those of dcp_save_chain_options; see dcp::save_options. */
struct save_chain_options : dcp_save_chain_options {
    save_chain_options() : dcp_save_chain_options{}
    {
    }
    group_reference group;     /**< the ranks that save together; borrowed */
    std::string fallback_path; /**< a directory for saves that fail; "": none */
};

/** Saves that follow each other, one at a time, and share staging memory (dcp_save_chain). */
class save_chain
{
  public:
    /** Collective over the group. */
    explicit save_chain(const save_chain_options &options = {}) : group_(options.group)
    {
        dcp_save_chain_options c = options;
        if (options.group.get())
            c.group = options.group.get();
        if (!options.fallback_path.empty())
            c.fallback_path = detail::text_of(options.fallback_path);
        dcp_save_chain *made = nullptr;
        dcp_status status = dcp_save_chain_new(&c, &made);
        if (status != DCP_OK)
            fail(error(status));
        handle_.reset(made);
    }

    dcp_save_chain *get() const noexcept
    {
        return handle_.get();
    }
    /** dcp::save_async() in this chain, over its group unless the options name one. */
    future save_async(state &tree, const std::string &path, save_options options = {})
    {
        options.chain = get();
        if (!options.group.get())
            options.group = group_;
        return dcp::save_async(tree, path, options);
    }
    /** @return whether commits run in the background. */
    bool in_background() const noexcept
    {
        return dcp_save_chain_in_background(get());
    }
    /** Makes staging memory before the first save, see dcp_save_chain_reserve(). */
    void reserve(std::uint64_t bytes, const dcp_device *device = nullptr)
    {
        check(dcp_save_chain_reserve(get(), bytes, device));
    }

  private:
    [[noreturn]] void fail(const error &failure) const
    {
        group_.rethrow();
        throw failure;
    }

    group_reference group_;
    owner<dcp_save_chain, dcp_save_chain_free> handle_;
};

} // namespace dcp

#endif
