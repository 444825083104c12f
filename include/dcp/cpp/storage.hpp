/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file storage.hpp
 * @brief Places for checkpoints as values, and storages that are classes of the caller's.
 */
#ifndef DCP_CPP_STORAGE_HPP
#define DCP_CPP_STORAGE_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../storage.h"
#include "error.hpp"

namespace dcp
{

/**
 * A storage of the caller's: the eight functions that a storage must have, see dcp_storage, which
 * also says what a directory and a file are. Directories are named by their ids. All functions may
 * be called from any thread, several at a time. What is not there is `error(DCP_ERR_NOT_FOUND,
 * ...)`; whatever is thrown becomes a status, and is thrown by the call of the library that it has
 * failed.
 *
 * A storage that can do more fills in a dcp_storage itself, and its functions work in
 * exception_carrier::run().
 */
class custom_storage
{
  public:
    /** A file that is open for reading, or being written. Its destructor closes it; one that was
     * being written and is not sealed vanishes. */
    class file
    {
      public:
        virtual ~file() = default;
        /** @return bytes of a file that is open for reading. */
        virtual std::uint64_t size() const = 0;
        /** Reads all of the bytes, which lie inside of the file; by any thread. */
        virtual void read(void *bytes, std::size_t size, std::uint64_t offset) = 0;
        /** Writes a part; by any thread, in any order. */
        virtual void write(const void *bytes, std::size_t size, std::uint64_t offset) = 0;
        /** All parts are written: the file appears, of @p size bytes. */
        virtual void seal(std::uint64_t size, dcp_storage_condition condition) = 0;
    };

    virtual ~custom_storage() = default;
    /** Whether it takes an id; what it does not take goes to the file system. */
    virtual bool takes(const char *id) const noexcept
    {
        (void)id;
        return true;
    }
    /** Calls @p visit with the name of each file in a directory. */
    virtual void list(const std::string &directory,
                      const std::function<void(const std::string &name)> &visit) = 0;
    /** Removes a file. */
    virtual void remove(const std::string &directory, const std::string &name) = 0;
    /** Opens a file for reading. */
    virtual std::unique_ptr<file> open(const std::string &directory, const std::string &name,
                                       const dcp_storage_access &access) = 0;
    /** Begins a file. */
    virtual std::unique_ptr<file> create(const std::string &directory, const std::string &name,
                                         const dcp_storage_access &access) = 0;
};

/** @cond */
namespace detail
{

/* The table of a custom storage. */
struct storage_adapter {
    std::shared_ptr<custom_storage> own;
    exception_carrier carrier;
    dcp_storage table{};

    explicit storage_adapter(std::shared_ptr<custom_storage> storage) : own(std::move(storage))
    {
        if (!own)
            throw error(DCP_ERR_ARGUMENT, "a storage without a class");
        table.size_of = sizeof table;
        table.context = this;
        table.takes = takes;
        table.list = list;
        table.remove = remove;
        table.open_file = open_file;
        table.read = read;
        table.close_file = close_file;
        table.create = create;
        table.write = write;
        table.seal = seal;
    }

    using file = custom_storage::file;
    static storage_adapter *self(void *context)
    {
        return static_cast<storage_adapter *>(context);
    }
    static std::unique_ptr<file> given(std::unique_ptr<file> file)
    {
        if (!file)
            throw error(DCP_ERR_CALLBACK, "a custom storage gave no file");
        return file;
    }
    /* What a directory or file lacks is an answer, and no exception that anybody waits for. */
    template <class Function> dcp_status run(Function &&function) noexcept
    {
        dcp_status answer = DCP_OK;
        dcp_status status = carrier.run([&] {
            try {
                function();
            } catch (const error &failure) {
                if (failure.status() != DCP_ERR_NOT_FOUND && failure.status() != DCP_ERR_EXISTS &&
                    failure.status() != DCP_ERR_BUSY)
                    throw;
                answer = dcp_error_set(failure.status(), "%s", failure.what());
            }
        });
        return answer == DCP_OK ? status : answer;
    }

    static bool takes(void *context, const char *id)
    {
        return self(context)->own->takes(id);
    }
    static dcp_status list(void *context, void *directory, dcp_storage_visitor visitor,
                           void *visitor_context)
    {
        dcp_status refused = DCP_OK;
        dcp_status status = self(context)->run([&] {
            self(context)->own->list(
                static_cast<const char *>(directory), [&](const std::string &name) {
                    if (refused == DCP_OK)
                        refused = visitor(visitor_context, detail::text_of(name));
                });
        });
        return status == DCP_OK ? refused : status;
    }
    static dcp_status remove(void *context, void *directory, const char *name)
    {
        return self(context)->run(
            [&] { self(context)->own->remove(static_cast<const char *>(directory), name); });
    }
    static dcp_status open_file(void *context, void *directory, const char *name,
                                const dcp_storage_access *access, dcp_storage_file *opened)
    {
        return self(context)->run([&] {
            std::unique_ptr<file> found = given(
                self(context)->own->open(static_cast<const char *>(directory), name, *access));
            opened->size = found->size();
            opened->handle = found.release();
        });
    }
    static dcp_status read(void *context, dcp_storage_file *opened, void *bytes, std::size_t size,
                           std::uint64_t offset)
    {
        return self(context)->run(
            [&] { static_cast<file *>(opened->handle)->read(bytes, size, offset); });
    }
    static void close_file(void *, dcp_storage_file *opened)
    {
        delete static_cast<file *>(opened->handle);
    }
    static dcp_status create(void *context, void *directory, const char *name,
                             const dcp_storage_access *access, dcp_storage_file *begun)
    {
        return self(context)->run([&] {
            begun->handle = given(self(context)->own->create(static_cast<const char *>(directory),
                                                             name, *access))
                                .release();
        });
    }
    static dcp_status write(void *context, dcp_storage_file *begun, const void *bytes,
                            std::size_t size, std::uint64_t offset)
    {
        return self(context)->run(
            [&] { static_cast<file *>(begun->handle)->write(bytes, size, offset); });
    }
    static dcp_status seal(void *context, dcp_storage_file *begun, std::uint64_t size,
                           dcp_storage_condition condition, const char *)
    {
        std::unique_ptr<file> whole(static_cast<file *>(begun->handle));
        return self(context)->run([&] { whole->seal(size, condition); });
    }
};

} // namespace detail
/** @endcond */

/**
 * Where checkpoints are: the file system by default. A value: copies are the same storage, which
 * lasts as long as one of them, or a checkpoint or save that was given it.
 */
class storage
{
  public:
    /** The file system. */
    storage() noexcept = default;
    /** Of C. @param table borrowed: it stays as long as anything uses it. */
    explicit storage(const dcp_storage *table) noexcept : table_(table)
    {
    }
    /** A storage of the caller's. */
    explicit storage(std::shared_ptr<custom_storage> own)
        : adapter_(std::make_shared<detail::storage_adapter>(std::move(own))),
          table_(&adapter_->table)
    {
    }
    /** @return a new storage in memory (dcp_storage_memory_new()). */
    static storage memory()
    {
        dcp_storage *made = nullptr;
        check(dcp_storage_memory_new(&made));
        storage result;
        result.memory_.reset(made, dcp_storage_memory_free);
        result.table_ = made;
        return result;
    }

    /** @return the table; NULL is the file system. */
    const dcp_storage *get() const noexcept
    {
        return table_;
    }

    /** @return the names in a directory, sorted; see dcp_storage_list(). */
    std::vector<std::string> list(const std::string &id) const
    {
        struct names {
            std::vector<std::string> all;
            exception_carrier carrier;
        } found;
        finish(dcp_storage_list(
            table_, detail::text_of(id),
            [](void *context, const char *name) {
                auto *into = static_cast<names *>(context);
                return into->carrier.run([&] { into->all.emplace_back(name); });
            },
            &found));
        found.carrier.rethrow();
        return std::move(found.all);
    }
    /** Removes one file of a directory, see dcp_storage_remove(). */
    void remove(const std::string &id, const std::string &name) const
    {
        finish(dcp_storage_remove(table_, detail::text_of(id), detail::text_of(name)));
    }

    /** Ends a call of the library with the storage: after a failure, throws what a function of the
     * storage has thrown, or else an error. What the library has got over is forgotten. Of several
     * calls that fail at the same time one throws the exception, the others errors with its text.
     */
    void finish(dcp_status status) const
    {
        if (status == DCP_OK) {
            if (adapter_)
                adapter_->carrier.clear();
            return;
        }
        error failure(status);
        rethrow();
        throw failure;
    }
    /** The first half of that. */
    void rethrow() const
    {
        if (adapter_)
            adapter_->carrier.rethrow();
    }

  private:
    std::shared_ptr<detail::storage_adapter> adapter_;
    std::shared_ptr<dcp_storage> memory_;
    const dcp_storage *table_ = nullptr;
};

} // namespace dcp

#endif
