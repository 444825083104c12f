/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file state.hpp
 * @brief State trees that own themselves, written as lists in braces.
 */
#ifndef DCP_CPP_STATE_HPP
#define DCP_CPP_STATE_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../packed.h"
#include "../state.h"
#include "node.hpp"

namespace dcp
{

class state;
struct item;

/**
 * An entry that is asked for its state instead of having one (dcp_stateful): two functions, or an
 * object that has them.
 *
 * @code
 * dcp::stateful([&](dcp::node into) { into.add("rate", rate); },
 *               [&](const dcp::node &filled) { rate = filled["rate"].as<double>(); })
 * @endcode
 *
 * What a function throws is thrown by the save or load on this rank, and is an error with its text
 * on the others. Functions are kept by the dcp::state that the entry is added to.
 */
class stateful
{
  public:
    /** Fills an empty dict: with what is to be saved, or with destinations of a load. */
    using save_function = std::function<void(node into)>;
    /** Takes what was loaded. */
    using load_function = std::function<void(const node &filled)>;

    explicit stateful(save_function save, load_function load = nullptr)
        : save_(std::move(save)), load_(std::move(load))
    {
    }
    /** Calls `object.state_dict(node)` and `object.load_state_dict(node)`. @param object borrowed
     * for as long as the tree is saved and loaded. */
    template <class Object, class = decltype(&Object::load_state_dict)>
    explicit stateful(Object &object)
        : save_([&object](node into) { object.state_dict(into); }),
          load_([&object](const node &filled) { object.load_state_dict(filled); })
    {
    }

    /** Adds it to a dict. @throw error DCP_ERR_UNSUPPORTED below a node that is of no dcp::state.
     */
    void add_to(node parent, key name) const;

  private:
    save_function save_;
    load_function load_;
};

/**
 * Anything that a tree can hold, for lists in braces: nullptr (None), bool, numbers, std::complex,
 * text, std::vector<std::byte>, dcp_dtype, dcp_tensor, dcp::stateful, dcp::list, dcp::tuple,
 * dcp::dict; pairs of a key and a value in braces are a dict. Contents are copied, but for the
 * memory of tensors, which is borrowed.
 */
class value
{
  public:
    template <class Type, class Kept = std::decay_t<Type>,
              class = std::enable_if_t<!std::is_same_v<Kept, value>>>
    value(Type &&content);
    value(std::initializer_list<item> pairs);

    void add_to(node parent, key name) const
    {
        add_(parent, name);
    }

  private:
    std::function<void(node parent, key name)> add_;
};

/** A pair of a dict: a key, which is text or an int, and a value. */
struct item {
    item(std::string text, value its_content)
        : name(std::move(text)), content(std::move(its_content))
    {
    }
    item(const char *text, value its_content) : name(text), content(std::move(its_content))
    {
    }
    template <class Integer,
              class = std::enable_if_t<std::is_integral_v<Integer> &&
                                       (std::is_signed_v<Integer> || sizeof(Integer) < 8)>>
    item(Integer its_number, value its_content)
        : by_number(true), number(its_number), content(std::move(its_content))
    {
    }

    void add_to(node parent) const
    {
        if (by_number)
            content.add_to(parent.int_key(number), key());
        else
            content.add_to(parent, name);
    }

    bool by_number = false;
    std::int64_t number = 0;
    std::string name;
    value content;
};

/** @cond */
namespace detail
{

/* Values behind each other; copies share them, as lists in braces copy what is in them. */
template <class Content, node (node::*Make)(key)> class sequence
{
  public:
    sequence(std::initializer_list<Content> contents)
        : contents_(std::make_shared<const std::vector<Content>>(contents))
    {
    }
    explicit sequence(std::vector<Content> contents)
        : contents_(std::make_shared<const std::vector<Content>>(std::move(contents)))
    {
    }
    void add_to(node parent, key name) const
    {
        node made = (parent.*Make)(name);
        for (const Content &content : *contents_) {
            if constexpr (std::is_same_v<Content, item>)
                content.add_to(made);
            else
                content.add_to(made, key());
        }
    }

  private:
    std::shared_ptr<const std::vector<Content>> contents_;
};

} // namespace detail
/** @endcond */

/** A list of values. */
using list = detail::sequence<value, &node::list>;
/** A tuple of values. */
using tuple = detail::sequence<value, &node::tuple>;
/** A dict of pairs. */
using dict = detail::sequence<item, &node::dict>;
/** A collections.OrderedDict of pairs. */
using ordered_dict = detail::sequence<item, &node::ordered_dict>;

/**
 * The root of a tree, a dict, which it owns with all its nodes and functions. Moved from, it is
 * empty, as a node that is no node.
 *
 * @code
 * dcp::state state{
 *     {"model", {{"weight", dcp::tensor(weight.data(), {rows, columns})}}},
 *     {"rates", dcp::list{1e-3, 1e-4}},
 *     {"step", 1000},
 * };
 * @endcode
 */
class state : public node
{
  public:
    /** An empty dict. */
    state() : state(dcp_state_new())
    {
    }
    /** A dict of these pairs. */
    state(std::initializer_list<item> pairs) : state()
    {
        for (const item &pair : pairs)
            pair.add_to(*this);
    }
    /** Of C: takes a root. @throw error DCP_ERR_NO_MEMORY for NULL. */
    explicit state(dcp_state *root) : keeper_(std::make_unique<detail::keeper>()), root_(root)
    {
        if (!root)
            throw error(DCP_ERR_NO_MEMORY, "no memory for a state");
        reset(root, keeper_.get());
    }
    state(state &&other) noexcept
        : node(other), keeper_(std::move(other.keeper_)), root_(std::move(other.root_))
    {
        other.reset(nullptr, nullptr);
    }
    state &operator=(state &&other) noexcept
    {
        root_ = std::move(other.root_); /* before what it points to */
        keeper_ = std::move(other.keeper_);
        reset(root_.get(), keeper_.get());
        other.reset(nullptr, nullptr);
        return *this;
    }

    /** Ends a call of the library with the tree, as exception_carrier::finish() does. */
    void finish(dcp_status status)
    {
        if (keeper_)
            keeper_->carrier->finish(status);
        else
            check(status);
    }

  private:
    std::unique_ptr<detail::keeper> keeper_;
    owner<dcp_state, dcp_state_free> root_;
};

/** @cond */
namespace detail
{

struct stateful_entry {
    stateful::save_function save;
    stateful::load_function load;
    std::shared_ptr<exception_carrier> carrier;
    keeper inner; /* of what `save` has added the last time */

    static dcp_status call_save(void *context, dcp_state *into)
    {
        auto *entry = static_cast<stateful_entry *>(context);
        entry->inner.carrier = entry->carrier;
        return entry->carrier->run([&] {
            entry->inner.entries.clear();
            entry->save(node(into, &entry->inner));
        });
    }
    static dcp_status call_load(void *context, const dcp_state *filled)
    {
        auto *entry = static_cast<stateful_entry *>(context);
        return entry->carrier->run(
            [&] { entry->load(node(const_cast<dcp_state *>(filled), &entry->inner)); });
    }
};

inline void put(node parent, key name, std::nullptr_t)
{
    check(dcp_state_none(parent.get(), name.get()));
}
inline void put(node parent, key name, const char *text)
{
    check(dcp_state_string(parent.get(), name.get(), text));
}
inline void put(node parent, key name, std::string_view text)
{
    check(dcp_state_text(parent.get(), name.get(), text.data(), text.size()));
}
inline void put(node parent, key name, const std::vector<std::byte> &bytes)
{
    check(dcp_state_bytes(parent.get(), name.get(), bytes.data(), bytes.size()));
}
inline void put(node parent, key name, dcp_dtype dtype)
{
    check(dcp_state_dtype(parent.get(), name.get(), dtype));
}
inline void put(node parent, key name, const dcp_tensor &chunk)
{
    if (!dcp_state_tensor(parent.get(), name.get(), &chunk)) {
        dcp_status status = parent ? dcp_state_status(parent.get()) : DCP_ERR_ARGUMENT;
        throw error(status == DCP_OK ? DCP_ERR_ARGUMENT : status);
    }
}
template <class Type> void put(node parent, key name, const std::complex<Type> &number)
{
    check(dcp_state_complex(parent.get(), name.get(), static_cast<double>(number.real()),
                            static_cast<double>(number.imag())));
}
/* Numbers, and what has add_to(). */
template <class Type, class = std::enable_if_t<std::is_arithmetic_v<Type> || std::is_class_v<Type>>>
void put(node parent, key name, const Type &content)
{
    if constexpr (std::is_same_v<Type, bool>)
        check(dcp_state_bool(parent.get(), name.get(), content));
    else if constexpr (std::is_floating_point_v<Type>)
        check(dcp_state_float(parent.get(), name.get(), static_cast<double>(content)));
    else if constexpr (std::is_integral_v<Type> && std::is_signed_v<Type>)
        check(dcp_state_int(parent.get(), name.get(), content));
    else if constexpr (std::is_integral_v<Type>)
        check(dcp_state_uint(parent.get(), name.get(), content));
    else if constexpr (std::is_convertible_v<const Type &, const dcp_tensor &>)
        put(parent, name, static_cast<const dcp_tensor &>(content));
    else if constexpr (std::is_convertible_v<const Type &, std::string_view>)
        put(parent, name, std::string_view(content));
    else
        content.add_to(parent, name);
}

} // namespace detail
/** @endcond */

inline void stateful::add_to(node parent, key name) const
{
    if (!parent.keeper_)
        throw error(DCP_ERR_UNSUPPORTED, "a stateful entry below a node that is of no dcp::state");
    auto entry = std::make_unique<detail::stateful_entry>();
    entry->save = save_;
    entry->load = load_;
    entry->carrier = parent.keeper_->carrier;
    dcp_stateful table = {detail::stateful_entry::call_save,
                          load_ ? detail::stateful_entry::call_load : nullptr, entry.get()};
    parent.keeper_->entries.push_back(std::move(entry));
    check(dcp_state_stateful(parent.get(), name.get(), &table));
}

template <class Type, class Kept, class> value::value(Type &&content)
{
    if constexpr (std::is_convertible_v<Kept, dcp_tensor> && std::is_class_v<Kept>) {
        auto chunk = std::make_shared<const dcp_tensor>(content); /* too large for copies */
        add_ = [chunk](node parent, key name) { detail::put(parent, name, *chunk); };
    } else if constexpr (std::is_same_v<Kept, const char *> || std::is_same_v<Kept, char *>) {
        add_ = [text = std::string(content)](node parent, key name) {
            detail::put(parent, name, std::string_view(text));
        };
    } else {
        add_ = [kept = Kept(std::forward<Type>(content))](node parent, key name) {
            detail::put(parent, name, kept);
        };
    }
}

inline value::value(std::initializer_list<item> pairs) : value(dict(pairs))
{
}

template <class Type> node &node::add(key name, const Type &content)
{
    detail::put(*this, name, content);
    return *this;
}

inline node &node::unpack(key name, const void *bytes, std::size_t size)
{
    check(dcp_state_unpack(handle_, name.get(), bytes, size));
    return *this;
}

} // namespace dcp

#endif
