/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file checkpoint.hpp
 * @brief Looking into checkpoints, reading parts of them, checking, copying and removing them.
 */
#ifndef DCP_CPP_CHECKPOINT_HPP
#define DCP_CPP_CHECKPOINT_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../checkpoint.h"
#include "../checkpoint_copy.h"
#include "options.hpp"

namespace dcp
{

/** How a checkpoint is opened or verified, see dcp_open_options. */
struct open_options {
    dcp::storage storage;             /**< where the path is */
    std::vector<std::string> members; /**< directories whose union is the checkpoint */
};

/** A stored name: dcp_entry, and where it is among the others. Pointers are borrowed from the
 * checkpoint. */
struct entry : dcp_entry {
    entry() : dcp_entry{}
    {
    }
    std::size_t index = 0;

    /** @return the global shape of a tensor, borrowed. */
    extents shape() const noexcept
    {
        return {global_shape, is_tensor ? static_cast<std::size_t>(ndim) : 0};
    }
};

/** A stored chunk in memory (dcp_mapping), until it is destroyed. */
class mapping : public dcp_mapped_chunk
{
  public:
    mapping(dcp_mapping *handle, const dcp_mapped_chunk &chunk, dcp::storage storage)
        : dcp_mapped_chunk(chunk), storage_(std::move(storage)), handle_(handle)
    {
    }

  private:
    dcp::storage storage_;
    owner<dcp_mapping, dcp_mapping_free> handle_;
};

/**
 * An open checkpoint (dcp_checkpoint): a range of entries. Any number of threads may read at the
 * same time.
 */
class checkpoint
{
  public:
    /** Opens what load() can load, see dcp_checkpoint_open(). */
    explicit checkpoint(const std::string &path, const open_options &options = {})
        : storage_(options.storage)
    {
        std::vector<const char *> members = detail::texts(options.members);
        dcp_open_options c{};
        c.storage = storage_.get();
        c.members = members.data();
        c.member_count = members.size();
        dcp_checkpoint *opened = nullptr;
        storage_.finish(dcp_checkpoint_open(detail::text_of(path), &c, &opened));
        handle_.reset(opened);
    }
    /** Of C: takes a checkpoint. */
    explicit checkpoint(dcp_checkpoint *handle) noexcept : handle_(handle)
    {
    }

    dcp_checkpoint *get() const noexcept
    {
        return handle_.get();
    }

    /** @return number of names. */
    std::size_t size() const noexcept
    {
        return handle_ ? dcp_checkpoint_count(get()) : 0;
    }
    /** @return entry @p index, in the order of the metadata. */
    entry operator[](std::size_t index) const
    {
        entry found;
        check(dcp_checkpoint_entry(get(), index, &found));
        found.index = index;
        return found;
    }
    /** @return the entry of a name. @throw error DCP_ERR_NOT_FOUND. */
    entry operator[](key name) const
    {
        std::size_t index = 0;
        check(dcp_checkpoint_find(get(), name.get(), &index));
        return (*this)[index];
    }
    /** @return whether there is such a name. */
    bool contains(key name) const
    {
        std::size_t index = 0;
        dcp_status status = dcp_checkpoint_find(get(), name.get(), &index);
        if (status != DCP_OK && status != DCP_ERR_NOT_FOUND)
            throw error(status);
        return status == DCP_OK;
    }
    /** @return where a stored piece of an entry lies. */
    dcp_stored_chunk chunk(const entry &of, std::size_t index) const
    {
        dcp_stored_chunk found{};
        check(dcp_checkpoint_chunk(get(), of.index, index, &found));
        return found;
    }

    /** Reads a box of a tensor into memory, see dcp_checkpoint_read_tensor(). */
    void read(const entry &of, const dcp_tensor &destination,
              const dcp_read_options &options = dcp_read_options{})
    {
        storage_.finish(dcp_checkpoint_read_tensor(get(), of.index, &destination, &options));
    }
    /** Reads a whole tensor, row-major. @throw error DCP_ERR_DTYPE if its elements are not of this
     * type. */
    template <class Element> std::vector<Element> read(const entry &of)
    {
        if (!of.is_tensor)
            throw error(DCP_ERR_KIND, std::string(of.name) + " is an object, not a tensor");
        std::vector<Element> elements =
            memory<Element>(static_cast<std::size_t>(of.bytes) / sizeof(Element));
        read(of, tensor(elements.data(), of.shape()));
        return elements;
    }
    /** The same, by name. */
    template <class Element> std::vector<Element> read(key name)
    {
        return read<Element>((*this)[name]);
    }
    /** Reads the box of a tensor that begins at @p offsets and has @p sizes elements, row-major. */
    template <class Element>
    std::vector<Element> read(const entry &of, extents offsets, extents sizes)
    {
        tensor box(dtype_of<Element>::value, of.shape());
        box.box(offsets, sizes);
        for (std::int32_t i = 0; i < box.ndim; i++)
            if (box.sizes[i] < 0 || box.offsets[i] < 0 ||
                box.sizes[i] > box.global_shape[i] - box.offsets[i])
                throw error(DCP_ERR_ARGUMENT, "dimension " + std::to_string(i) + " of " + of.name +
                                                  " has " + std::to_string(box.global_shape[i]) +
                                                  " elements: none at " +
                                                  std::to_string(box.offsets[i]) + " to " +
                                                  std::to_string(box.sizes[i]) + " on");
        std::vector<Element> elements = memory<Element>(static_cast<std::size_t>(box.count()));
        read(of, box.in(elements.data()));
        return elements;
    }
    /** The same, by name. */
    template <class Element> std::vector<Element> read(key name, extents offsets, extents sizes)
    {
        return read<Element>((*this)[name], offsets, sizes);
    }
    /** Reads an object and adds it to a tree, see dcp_checkpoint_read_object(). @return its node.
     */
    node read_object(const entry &of, node parent, key name, const dcp_read_options &options = {})
    {
        storage_.finish(
            dcp_checkpoint_read_object(get(), of.index, parent.get(), name.get(), &options));
        return parent.at(parent.size() - 1);
    }
    /** Reads a plain value, as node::as() does. */
    template <class Type> Type value(key name)
    {
        static_assert(!std::is_same_v<Type, std::string_view>, "nothing would hold the text");
        state tree;
        return read_object((*this)[name], tree, "value").template as<Type>();
    }
    /** Maps a stored chunk into memory, see dcp_checkpoint_map_chunk(). */
    mapping map(const entry &of, std::size_t chunk = 0, const dcp_read_options &options = {})
    {
        dcp_mapping *made = nullptr;
        dcp_mapped_chunk mapped{};
        storage_.finish(dcp_checkpoint_map_chunk(get(), of.index, chunk, &options, &made, &mapped));
        return {made, mapped, storage_};
    }
    /** Gives the stream of an object or a chunk to a function, piece by piece; see
     * dcp_checkpoint_read_stream(). What it throws is thrown by this call. */
    template <class Function>
    void read_stream(const entry &of, std::size_t chunk, Function &&take,
                     const dcp_read_options &options = {})
    {
        struct sink {
            Function &take;
            exception_carrier carrier;
        } into{take, {}};
        dcp_status status = dcp_checkpoint_read_stream(
            get(), of.index, chunk,
            [](void *context, const void *bytes, std::size_t size) {
                auto *self = static_cast<sink *>(context);
                return self->carrier.run([&] { self->take(bytes, size); });
            },
            &into, &options);
        if (status != DCP_OK)
            into.carrier.rethrow();
        storage_.finish(status);
    }

    /** What metadata.json says, see dcp_checkpoint_info(). @param parent gets the caller's own
     * fields under @p name; empty: they are not wanted. */
    dcp_save_info info(node parent = {}, key name = {}) const
    {
        dcp_save_info found{};
        storage_.finish(dcp_checkpoint_info(get(), parent.get(), name.get(), &found));
        return found;
    }
    /** @return number of extra files. */
    std::size_t extra_file_count() const noexcept
    {
        return handle_ ? dcp_checkpoint_extra_file_count(get()) : 0;
    }
    /** @return what extra file @p index is. */
    dcp_extra_file_info extra_file(std::size_t index) const
    {
        dcp_extra_file_info found{};
        check(dcp_checkpoint_extra_file(get(), index, &found));
        return found;
    }
    /** Reads a whole extra file, see dcp_checkpoint_read_extra_file(). @throw error
     * DCP_ERR_NOT_FOUND and others. */
    std::string read_extra_file(const std::string &name, const dcp_read_options &options = {})
    {
        std::size_t index = 0;
        check(dcp_checkpoint_find_extra_file(get(), detail::text_of(name), &index));
        std::string bytes(static_cast<std::size_t>(extra_file(index).size), '\0');
        storage_.finish(
            dcp_checkpoint_read_extra_file(get(), index, bytes.data(), bytes.size(), &options));
        return bytes;
    }

    /** @name Entries, for range-based loops */
    /** @{ */
    class iterator;
    iterator begin() const noexcept;
    iterator end() const noexcept;
    /** @} */

  private:
    /* Has an address, however few elements. */
    template <class Element> static std::vector<Element> memory(std::size_t count)
    {
        static_assert(!std::is_same_v<Element, bool>, "a vector<bool> has no elements in memory");
        std::vector<Element> elements;
        elements.reserve(count + 1);
        elements.resize(count);
        return elements;
    }

    dcp::storage storage_; /* outlives the handle */
    owner<dcp_checkpoint, dcp_checkpoint_close> handle_;
};

/** Goes through the entries of a checkpoint. */
class checkpoint::iterator
{
  public:
    iterator(const checkpoint *of, std::size_t index) noexcept : of_(of), index_(index)
    {
    }
    entry operator*() const
    {
        return (*of_)[index_];
    }
    iterator &operator++() noexcept
    {
        index_++;
        return *this;
    }
    bool operator==(const iterator &other) const noexcept
    {
        return index_ == other.index_;
    }
    bool operator!=(const iterator &other) const noexcept
    {
        return index_ != other.index_;
    }

  private:
    const checkpoint *of_;
    std::size_t index_;
};

inline checkpoint::iterator checkpoint::begin() const noexcept
{
    return {this, 0};
}
inline checkpoint::iterator checkpoint::end() const noexcept
{
    return {this, size()};
}

/** Opens a checkpoint. */
inline checkpoint open(const std::string &path, const open_options &options = {})
{
    return checkpoint(path, options);
}

/** A fault of a checkpoint, see dcp_fault_function. */
struct fault {
    std::string file;
    std::uint64_t offset;
    std::string name;
    std::string what;
};

/** Checks a whole checkpoint, see dcp_verify(). @return its faults, in the order in which they were
 * found; none if it is whole. @throw error what kept the check from being made. */
inline std::vector<fault> verify(const std::string &path, const open_options &options = {})
{
    struct faults {
        std::vector<fault> found;
        exception_carrier carrier;
    } into;
    std::vector<const char *> members = detail::texts(options.members);
    dcp_open_options c{};
    c.storage = options.storage.get();
    c.members = members.data();
    c.member_count = members.size();
    std::uint64_t count = 0;
    dcp_status status = dcp_verify(
        detail::text_of(path), &c,
        [](void *context, const char *file, std::uint64_t offset, const char *name,
           const char *what) {
            auto *self = static_cast<faults *>(context);
            self->carrier.run([&] { self->found.push_back({file, offset, name, what}); });
        },
        &into, &count);
    options.storage.finish(status);
    into.carrier.rethrow();
    return std::move(into.found);
}

/** Copies a checkpoint, verified, see dcp_checkpoint_copy(). @param options but for its storages.
 * @return what was done. */
inline dcp_copied copy(const std::string &path, const std::string &destination,
                       const storage &from = {}, const storage &to = {},
                       dcp_copy_options options = {})
{
    dcp_copied copied{};
    options.source = from.get();
    options.destination = to.get();
    dcp_status status =
        dcp_checkpoint_copy(detail::text_of(path), detail::text_of(destination), &options, &copied);
    if (status != DCP_OK) {
        error failure(status);
        from.rethrow();
        to.rethrow();
        throw failure;
    }
    from.finish(status);
    to.finish(status);
    return copied;
}

/** Removes a checkpoint, see dcp_checkpoint_remove(). @return what was done. */
inline dcp_removal remove(const std::string &path, const storage &where = {})
{
    dcp_removal removal{};
    dcp_remove_options options{};
    options.storage = where.get();
    where.finish(dcp_checkpoint_remove(detail::text_of(path), &options, &removal));
    return removal;
}

} // namespace dcp

#endif
