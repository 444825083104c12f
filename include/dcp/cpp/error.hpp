/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file error.hpp
 * @brief Failures as exceptions, and exceptions of the caller's functions on their way through C.
 */
#ifndef DCP_CPP_ERROR_HPP
#define DCP_CPP_ERROR_HPP

#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "../status.h"

namespace dcp
{

/** A call that has failed. what() is the message: which key, file, offset, rank; what was expected
 * and found. */
class error : public std::runtime_error
{
  public:
    error(dcp_status status, const std::string &message)
        : std::runtime_error(message), status_(status)
    {
    }

    /** With the message of the calling thread's most recent failure. */
    explicit error(dcp_status status) : error(status, message_of(status))
    {
    }

    /** @return the status that the call in C has returned. */
    dcp_status status() const noexcept
    {
        return status_;
    }

  private:
    static std::string message_of(dcp_status status)
    {
        const char *message = dcp_error_message();
        return *message ? message : dcp_status_string(status);
    }

    dcp_status status_;
};

/** @throw error unless the status is DCP_OK. */
inline void check(dcp_status status)
{
    if (status != DCP_OK)
        throw error(status);
}

namespace detail
{

/* A text for C, which would see its end at a NUL. */
inline const char *text_of(const std::string &text)
{
    if (text.find('\0') != std::string::npos)
        throw error(DCP_ERR_ARGUMENT, "\"" + std::string(text.c_str()) + "\" goes on behind a NUL");
    return text.c_str();
}

} // namespace detail

/**
 * Takes exceptions across functions in C, for tables of functions that a program fills in itself
 * (planners, storages, devices, groups). A function of the table does its work in run(); what that
 * throws is kept, and the library gets a status and the text, which reach all ranks. When the call
 * of the library has returned, rethrow() throws the exception itself, on the caller's thread. Any
 * number of threads may use it.
 *
 * The calls of this interface do that by themselves for functions that they are given, and for a
 * carrier that their options name.
 */
class exception_carrier
{
  public:
    /** Calls @p function, which returns nothing or a dcp_status. @return that, or the status of
     * the exception: an error's own, DCP_ERR_NO_MEMORY for std::bad_alloc, else
     * DCP_ERR_CALLBACK. */
    template <class Function> dcp_status run(Function &&function) noexcept
    {
        try {
            if constexpr (std::is_same_v<std::invoke_result_t<Function>, dcp_status>) {
                return std::forward<Function>(function)();
            } else {
                std::forward<Function>(function)();
                return DCP_OK;
            }
        } catch (...) {
            keep(std::current_exception());
            return describe();
        }
    }

    /** Keeps an exception, if it is the first one. */
    void keep(std::exception_ptr exception) noexcept
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!first_)
            first_ = std::move(exception);
    }

    /** Throws the first exception that was kept, if there is one, and forgets it. */
    void rethrow()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        std::exception_ptr exception = std::exchange(first_, nullptr);
        lock.unlock();
        if (exception)
            std::rethrow_exception(exception);
    }

    /** Forgets what was kept. */
    void clear() noexcept
    {
        std::lock_guard<std::mutex> lock(mutex_);
        first_ = nullptr;
    }

    /** Ends a call of the library: throws the exception that was kept, or else an error unless the
     * status is DCP_OK. */
    void finish(dcp_status status)
    {
        rethrow();
        check(status);
    }

  private:
    /* Inside of a handler: the exception in words. */
    static dcp_status describe() noexcept
    {
        try {
            throw;
        } catch (const error &failure) {
            dcp_status status = failure.status() == DCP_OK ? DCP_ERR_CALLBACK : failure.status();
            return dcp_error_set(status, "%s", failure.what());
        } catch (const std::bad_alloc &) {
            return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory in a function of the caller");
        } catch (const std::exception &failure) {
            return dcp_error_set(DCP_ERR_CALLBACK, "%s", failure.what());
        } catch (...) {
            return dcp_error_set(DCP_ERR_CALLBACK, "an exception that has no text");
        }
    }

    std::mutex mutex_;
    std::exception_ptr first_;
};

/** What frees a handle of the library. */
template <class Handle, void (*Free)(Handle *)> struct deleter {
    void operator()(Handle *handle) const noexcept
    {
        Free(handle);
    }
};

/** Owns a handle of the library; as large as a pointer. */
template <class Handle, void (*Free)(Handle *)>
using owner = std::unique_ptr<Handle, deleter<Handle, Free>>;

} // namespace dcp

#endif
