/* SPDX-License-Identifier: BSD-3-Clause */
/* Trees written in braces, their nodes, and tensors. */
#include <complex>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "trials.hpp"

namespace
{

void braces_make_a_tree()
{
    std::vector<float> weight(6);
    dcp::state state{
        {"model", {{"weight", dcp::tensor(weight.data(), {2, 3})}, {"name", "net"}}},
        {"rates", dcp::list{1e-3, "two", nullptr, true}},
        {"shape", dcp::tuple{1, dcp::list{2u, std::string("3")}}},
        {"ordered", dcp::ordered_dict{{"z", 1}, {"a", 2}}},
        {"by number", {{0, {{"step", 1}}}, {1, std::complex<double>(1, -2)}}},
        {"bytes", std::vector<std::byte>{std::byte{0}, std::byte{255}}},
        {"dtype", DCP_BF16},
        {"empty", {}},
        {"step", std::uint64_t{18446744073709551615U}},
    };
    REQUIRE(state.json() ==
            R"({"model": {"weight": {"$tensor": {"dtype": "float32", "shape": [2, 3]}}, )"
            R"("name": "net"}, "rates": [0.001, "two", null, true], "shape": [1, [2, "3"]], )"
            R"("ordered": {"z": 1, "a": 2}, )"
            R"("by number": {"$dict": [[0, {"step": 1}], [1, {"$complex": [1.0, -2.0]}]]}, )"
            R"("bytes": {"$bytes": "00ff"}, "dtype": {"$dtype": "bfloat16"}, "empty": {}, )"
            R"("step": 18446744073709551615})");
    REQUIRE(state["shape"].kind() == DCP_KIND_TUPLE);
    REQUIRE(state["ordered"].kind() == DCP_KIND_ORDERED_DICT);
    REQUIRE(state["model"]["weight"].chunk().data == weight.data());
}

void values_outlive_what_they_were_made_of()
{
    dcp::dict inner{{"a", std::string("text that is too long for small strings")}};
    dcp::value copied = inner;
    inner = dcp::dict{{"b", 1}};
    dcp::state state{{"first", copied}, {"second", inner}, {"third", copied}};
    REQUIRE(state["first"]["a"].as<std::string>() == state["third"]["a"].as<std::string>());
    REQUIRE(state["second"]["b"].as<int>() == 1);
}

void nodes_are_read()
{
    dcp::state state;
    state.add("int", -5).add("big", std::numeric_limits<std::int64_t>::max()).add("float", 0.5F);
    state.add("text", std::string("a\0b", 3)).add("flag", true);
    state.add("complex", std::complex<float>(1, 2));
    dcp::node list = state.list("list");
    list.append(1).append(2).append(3);
    dcp::node pair = state.dict("pairs").pair();
    pair.append("key").append("value");

    REQUIRE(state["int"].as<signed char>() == -5 && state["int"].as<long>() == -5);
    REQUIRE(state["float"].as<float>() == 0.5F && state["int"].as<double>() == -5);
    REQUIRE(state["text"].as<std::string>().size() == 3);
    REQUIRE(state["flag"].as<bool>());
    REQUIRE(state["complex"].as<std::complex<double>>() == std::complex<double>(1, 2));
    REQUIRE(state["pairs"].key_at(0).as<std::string>() == "key" && state["pairs"][0].get());
    int sum = 0;
    for (dcp::node each : list)
        sum = 10 * sum + each.as<int>();
    REQUIRE(sum == 123);

    REQUIRE(THROWN(dcp::error, state["int"].as<unsigned>()).status() == DCP_ERR_KIND);
    REQUIRE(THROWN(dcp::error, state["big"].as<int>()).status() == DCP_ERR_KIND);
    REQUIRE(THROWN(dcp::error, state["text"].as<int>()).status() == DCP_ERR_KIND);
    REQUIRE(THROWN(dcp::error, state["none"]).status() == DCP_ERR_NOT_FOUND);
    REQUIRE(THROWN(dcp::error, list.at(3)).status() == DCP_ERR_NOT_FOUND);
    REQUIRE(!state.find("none") && !state.find_int(1));
}

void failures_of_building_are_thrown()
{
    dcp::state state{{"a", 1}};
    dcp::error twice = THROWN(dcp::error, state.add("a", 2));
    REQUIRE(twice.status() == DCP_ERR_DUPLICATE);
    REQUIRE(std::string(twice.what()).find("\"a\"") != std::string::npos);
    REQUIRE(THROWN(dcp::error, dcp::state{{"b", 1}, {"b", 1}}).status() == DCP_ERR_DUPLICATE);

    dcp::state other;
    REQUIRE(THROWN(dcp::error, other.add(std::string("a\0b", 3), 1)).status() == DCP_ERR_ARGUMENT);
    REQUIRE(other.size() == 0);
    REQUIRE(THROWN(dcp::error, other.dict("\xff")).status() == DCP_ERR_ARGUMENT);
    REQUIRE(THROWN(dcp::error, dcp::node(other.get()).add("s", dcp::stateful([](dcp::node) {})))
                .status() == DCP_ERR_UNSUPPORTED);
}

void what_was_moved_from_is_empty()
{
    dcp::state from{{"a", 1}};
    dcp::state into = std::move(from);
    REQUIRE(into["a"].as<int>() == 1);
    REQUIRE(!from && from.size() == 0 && !from.find("a") && from.begin() == from.end());
    REQUIRE(THROWN(dcp::error, from.add("b", 1)).status() == DCP_ERR_ARGUMENT);
    REQUIRE(THROWN(dcp::error, from.dict("b")).status() == DCP_ERR_ARGUMENT);
    REQUIRE(THROWN(dcp::error, from["a"].as<int>()).status() == DCP_ERR_NOT_FOUND);
    REQUIRE(THROWN(dcp::error, from.json()).status() == DCP_ERR_ARGUMENT);
    REQUIRE(THROWN(dcp::error, dcp::save(from, "/nowhere")).status() == DCP_ERR_ARGUMENT);
    from = dcp::state{{"c", 3}};
    REQUIRE(from["c"].as<int>() == 3);
    into = std::move(from);
    REQUIRE(into["c"].as<int>() == 3);

    dcp::future future;
    REQUIRE(!future.valid());
    REQUIRE(THROWN(dcp::error, future.get()).status() == DCP_ERR_ARGUMENT);
    REQUIRE(THROWN(dcp::error, future.wait(0)).status() == DCP_ERR_ARGUMENT);
    REQUIRE(THROWN(dcp::error, future.wait_staged()).status() == DCP_ERR_ARGUMENT);
    REQUIRE(THROWN(dcp::error, future.on_done(nullptr)).status() == DCP_ERR_ARGUMENT);
    REQUIRE(THROWN(dcp::error, future.figures()).status() == DCP_ERR_ARGUMENT);
    REQUIRE(dcp::group().size() == 1 && dcp::load_report().size() == 0);
}

void tensors_say_which_chunk_they_are()
{
    std::vector<float> rows(12);
    dcp::mesh mesh({3}, 1);
    dcp::tensor weight = dcp::tensor(rows.data(), {7, 4}).shard(mesh, {dcp::shard(0)});
    REQUIRE(weight.dtype == DCP_F32 && weight.sharded && weight.data == rows.data());
    REQUIRE(weight.offsets[0] == 3 && weight.sizes[0] == 3 && weight.sizes[1] == 4);
    REQUIRE(weight.count() == 12);

    dcp::tensor box = dcp::tensor(DCP_BF16, {10}).box({2}, {5}).stride({2});
    REQUIRE(box.count() == 5 && box.strided && box.strides[0] == 2 && !box.data);
    std::vector<std::int64_t> many(65);
    REQUIRE(THROWN(dcp::error, dcp::tensor(DCP_F32, many)).status() == DCP_ERR_ARGUMENT);
    REQUIRE(THROWN(dcp::error, dcp::tensor(DCP_F32, {1}).box({0, 0}, {1, 1})).status() ==
            DCP_ERR_ARGUMENT);
    REQUIRE(THROWN(dcp::error, dcp::mesh(many, 0)).status() == DCP_ERR_ARGUMENT);
    REQUIRE(THROWN(dcp::error, dcp::tensor(DCP_F32, {4}).shard(mesh, {})).status() ==
            DCP_ERR_ARGUMENT);
    REQUIRE(THROWN(dcp::error, dcp::tensor(DCP_F32, {4}).shard(mesh, {dcp::shard(9)})).status() ==
            DCP_ERR_ARGUMENT);
}

} // namespace

int main()
{
    return run_trials(
        {{"braces make a tree", braces_make_a_tree},
         {"values outlive what they were made of", values_outlive_what_they_were_made_of},
         {"nodes are read", nodes_are_read},
         {"failures of building are thrown", failures_of_building_are_thrown},
         {"what was moved from is empty", what_was_moved_from_is_empty},
         {"tensors say which chunk they are", tensors_say_which_chunk_they_are}});
}
