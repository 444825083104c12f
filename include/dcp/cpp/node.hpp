/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file node.hpp
 * @brief A node of a state tree: looking at it, and adding to it.
 */
#ifndef DCP_CPP_NODE_HPP
#define DCP_CPP_NODE_HPP

#include <complex>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "../state.h"
#include "error.hpp"
#include "tensor.hpp"

namespace dcp
{

class node;
class stateful;
class value;

/** @cond */
namespace detail
{

/* What a tree in C points to and a dcp::state owns: functions of stateful entries. */
struct stateful_entry;
struct keeper {
    std::shared_ptr<exception_carrier> carrier = std::make_shared<exception_carrier>();
    std::vector<std::unique_ptr<stateful_entry>> entries;
};

} // namespace detail
/** @endcond */

/** A key of a dict, NUL-terminated and borrowed for the call; without one, what is added is
 * appended to a list, tuple or set. */
class key
{
  public:
    key() noexcept = default;
    key(const char *text) noexcept : text_(text)
    {
    }
    /** @throw error DCP_ERR_ARGUMENT for text with a NUL in it. */
    key(const std::string &text) : text_(detail::text_of(text))
    {
    }
    const char *get() const noexcept
    {
        return text_;
    }

  private:
    const char *text_ = nullptr;
};

/**
 * A node of a tree: as small as a pointer, borrowed from its dcp::state, copied freely. One that is
 * empty (`!node`) is no node; adding to it and reading it fails.
 *
 * Every failure is thrown. One while building stays in the tree as well, so that no save takes what
 * is not whole.
 */
class node
{
  public:
    node() noexcept = default;
    /** Of C: @p handle keeps its owner. Stateful entries cannot be added to it. */
    explicit node(dcp_state *handle) noexcept : handle_(handle)
    {
    }

    dcp_state *get() const noexcept
    {
        return handle_;
    }
    explicit operator bool() const noexcept
    {
        return handle_ != nullptr;
    }

    /** @name Looking */
    /** @{ */
    dcp_kind kind() const noexcept
    {
        return handle_ ? dcp_state_kind(handle_) : DCP_KIND_NONE;
    }
    /** @return number of children of a container; 0 for leaves. */
    std::size_t size() const noexcept
    {
        return handle_ ? dcp_state_count(handle_) : 0;
    }
    /** @return the child of a dict under a key; empty if there is none. */
    node find(key name) const noexcept
    {
        return below(handle_ && name.get() ? dcp_state_find(handle_, name.get()) : nullptr);
    }
    /** The same with an int for a key. */
    node find_int(std::int64_t number) const noexcept
    {
        return below(handle_ ? dcp_state_find_int(handle_, number) : nullptr);
    }
    /** @return the child of a dict under a key. @throw error DCP_ERR_NOT_FOUND. */
    node operator[](key name) const
    {
        node child = find(name);
        if (!child)
            throw error(DCP_ERR_NOT_FOUND,
                        "there is no entry \"" + std::string(name.get() ? name.get() : "") + "\"");
        return child;
    }
    /** @return child @p index, of a dict the value. @throw error DCP_ERR_NOT_FOUND. */
    node at(std::size_t index) const
    {
        node child = below(handle_ ? dcp_state_at(handle_, index) : nullptr);
        if (!child)
            throw error(DCP_ERR_NOT_FOUND, "there is no child " + std::to_string(index) + " of " +
                                               std::to_string(size()));
        return child;
    }
    /** The same. */
    node operator[](std::size_t index) const
    {
        return at(index);
    }
    /** @return the key of pair @p index of a dict, only to be looked at; empty if there is none. */
    node key_at(std::size_t index) const noexcept
    {
        return below(const_cast<dcp_state *>(handle_ ? dcp_state_key_at(handle_, index) : nullptr));
    }
    /**
     * Reads a leaf: bool, integers, floating-point numbers, std::complex, std::string,
     * std::string_view (borrowed from the tree), std::vector<std::byte>, dcp_dtype.
     * @throw error DCP_ERR_KIND if it is something else, or the value does not fit.
     */
    template <class Type> Type as() const;
    /** @return the node as JSON, see dcp_state_to_json(). @param limit most bytes; 0: 64 MiB. */
    std::string json(std::size_t limit = 0) const
    {
        char *text = nullptr;
        check(dcp_state_to_json(handle_, limit, &text));
        owner<char, dcp_text_free> freed(text);
        return text;
    }
    /** @return number of chunks that a tensor has here. */
    std::size_t chunk_count() const noexcept
    {
        return handle_ ? dcp_state_chunk_count(handle_) : 0;
    }
    /** @return a chunk of a tensor; its memory may be what a load has allocated. */
    tensor chunk(std::size_t index = 0) const
    {
        tensor found;
        check(dcp_state_chunk(handle_, index, &found));
        return found;
    }
    /** @} */

    /** @name Adding a child, under a key in a dict, without one in a list, tuple or set */
    /** @{ */
    node dict(key name = {})
    {
        return made(dcp_state_dict(handle_, name.get()));
    }
    node ordered_dict(key name = {})
    {
        return made(dcp_state_ordered_dict(handle_, name.get()));
    }
    node list(key name = {})
    {
        return made(dcp_state_list(handle_, name.get()));
    }
    node tuple(key name = {})
    {
        return made(dcp_state_tuple(handle_, name.get()));
    }
    node set(key name = {})
    {
        return made(dcp_state_set(handle_, name.get()));
    }
    node frozenset(key name = {})
    {
        return made(dcp_state_frozenset(handle_, name.get()));
    }
    /** Begins a pair of a dict: of what is then added to it, the first is the key. */
    node pair()
    {
        return made(dcp_state_pair(handle_));
    }
    /** A pair that has its key, an int, and takes the value. */
    node int_key(std::int64_t number)
    {
        return made(dcp_state_int_key(handle_, number));
    }
    /** Adds anything that a dcp::value can be. No copy is made of it first. @return this node. */
    template <class Type> node &add(key name, const Type &content);
    /** The same, appended. */
    template <class Type> node &append(const Type &content)
    {
        return add(key(), content);
    }
    /** Adds another chunk to a tensor. @return this node. */
    node &add_chunk(const dcp_tensor &chunk)
    {
        check(dcp_state_add_chunk(handle_, &chunk));
        return *this;
    }
    /** Adds the chunks that a flat range of a tensor is, see dcp_state_flat_range(). */
    node flat_range(key name, const dcp_tensor &whole, std::int64_t start, std::int64_t length,
                    void *data)
    {
        return made(dcp_state_flat_range(handle_, name.get(), &whole, start, length, data));
    }
    /** Adds a copy of a node, see dcp_state_copy(); functions of stateful entries stay those of
     * the other tree's dcp::state. */
    node copy(key name, const node &other)
    {
        return made(dcp_state_copy(handle_, name.get(), other.get()));
    }
    /** Adds an object as the stream that it is stored as, see dcp_state_stream(). */
    node &stream(key name, const void *bytes, std::size_t size)
    {
        check(dcp_state_stream(handle_, name.get(), bytes, size));
        return *this;
    }
    /** Builds what bytes describe, see dcp_state_unpack(). */
    node &unpack(key name, const void *bytes, std::size_t size);
    /** @} */

    /** @name Children of a container, of a dict the values, for range-based loops */
    /** @{ */
    class iterator;
    iterator begin() const noexcept;
    iterator end() const noexcept;
    /** @} */

  protected:
    /** @cond */
    node(dcp_state *handle, detail::keeper *keeper) noexcept : handle_(handle), keeper_(keeper)
    {
    }
    void reset(dcp_state *handle, detail::keeper *keeper) noexcept
    {
        handle_ = handle;
        keeper_ = keeper;
    }
    friend struct detail::stateful_entry;
    friend class stateful;
    /** @endcond */

  private:
    node below(dcp_state *child) const noexcept
    {
        return child ? node(child, keeper_) : node();
    }
    node made(dcp_state *child) const
    {
        if (!child) {
            dcp_status status = handle_ ? dcp_state_status(handle_) : DCP_ERR_ARGUMENT;
            throw error(status == DCP_OK ? DCP_ERR_ARGUMENT : status);
        }
        return below(child);
    }

    dcp_state *handle_ = nullptr;
    detail::keeper *keeper_ = nullptr;
};

/** Goes through the children of a node. */
class node::iterator
{
  public:
    iterator(node parent, std::size_t index) noexcept : parent_(parent), index_(index)
    {
    }
    node operator*() const
    {
        return parent_.at(index_);
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
    node parent_;
    std::size_t index_;
};

inline node::iterator node::begin() const noexcept
{
    return {*this, 0};
}
inline node::iterator node::end() const noexcept
{
    return {*this, size()};
}

/** @cond */
namespace detail
{

template <class Type, class = void> struct reader;

template <> struct reader<bool> {
    static bool read(const dcp_state *node)
    {
        bool value = false;
        check(dcp_state_as_bool(node, &value));
        return value;
    }
};

template <class Type> struct reader<Type, std::enable_if_t<std::is_integral_v<Type>>> {
    static Type read(const dcp_state *node)
    {
        using wide = std::conditional_t<std::is_signed_v<Type>, std::int64_t, std::uint64_t>;
        using limits = std::numeric_limits<Type>;
        wide value = 0;
        if constexpr (std::is_signed_v<Type>)
            check(dcp_state_as_int(node, &value));
        else
            check(dcp_state_as_uint(node, &value));
        if (value < limits::min() || value > limits::max())
            throw error(DCP_ERR_KIND, std::to_string(value) + " does not fit " +
                                          std::to_string(8 * sizeof(Type)) + " bits");
        return static_cast<Type>(value);
    }
};

template <class Type> struct reader<Type, std::enable_if_t<std::is_floating_point_v<Type>>> {
    static Type read(const dcp_state *node)
    {
        double value = 0;
        check(dcp_state_as_float(node, &value));
        return static_cast<Type>(value);
    }
};

template <class Type> struct reader<std::complex<Type>> {
    static std::complex<Type> read(const dcp_state *node)
    {
        double real = 0;
        double imaginary = 0;
        check(dcp_state_as_complex(node, &real, &imaginary));
        return {static_cast<Type>(real), static_cast<Type>(imaginary)};
    }
};

template <> struct reader<std::string_view> {
    static std::string_view read(const dcp_state *node)
    {
        const char *text = nullptr;
        std::size_t length = 0;
        check(dcp_state_as_text(node, &text, &length));
        return {text, length};
    }
};

template <> struct reader<std::string> {
    static std::string read(const dcp_state *node)
    {
        return std::string(reader<std::string_view>::read(node));
    }
};

template <> struct reader<std::vector<std::byte>> {
    static std::vector<std::byte> read(const dcp_state *node)
    {
        const void *bytes = nullptr;
        std::size_t length = 0;
        check(dcp_state_as_bytes(node, &bytes, &length));
        const std::byte *first = static_cast<const std::byte *>(bytes);
        return {first, first + length};
    }
};

template <> struct reader<dcp_dtype> {
    static dcp_dtype read(const dcp_state *node)
    {
        dcp_dtype value = DCP_DTYPE_NONE;
        check(dcp_state_as_dtype(node, &value));
        return value;
    }
};

} // namespace detail
/** @endcond */

template <class Type> Type node::as() const
{
    return detail::reader<Type>::read(handle_);
}

} // namespace dcp

#endif
