/* SPDX-License-Identifier: BSD-3-Clause */
/* Futures and chains: what is waited for, what is called, and what functions throw. */
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "trials.hpp"

namespace
{

struct values {
    std::vector<double> numbers = std::vector<double>(1 << 16, 1.0);
    dcp::state state()
    {
        return {{"numbers", dcp::tensor(numbers.data(), {1 << 16})}};
    }
};

/* A failure that is found only when the save is under way: the place cannot be written. */
dcp::save_chain chain_with_retries()
{
    dcp::save_chain_options options;
    options.retries = 1;
    options.retry_seconds = 0.01;
    return dcp::save_chain(options);
}

void futures_say_how_it_ended()
{
    folder where;
    values values;
    dcp::save_chain chain;
    dcp::future future;
    {
        dcp::state state = values.state();
        future = chain.save_async(state, where / "a");
    }
    REQUIRE(chain.in_background());
    REQUIRE(future.wait_staged());
    values.numbers.assign(values.numbers.size(), 2.0);
    REQUIRE(future.wait() && future.done() && future.state() == DCP_FUTURE_DONE);
    future.get();
    future.get();
    REQUIRE(future.message().empty() && future.figures().bytes_moved > 0);
    REQUIRE(future.progress().first == future.progress().second);
    REQUIRE(dcp::open(where / "a").read<double>("numbers", {5}, {1})[0] == 1.0);

    dcp::state state = values.state();
    dcp::future alone = dcp::save_async(state, where / "b");
    dcp::future moved = std::move(alone);
    REQUIRE(!alone.valid());
    moved.get();
    REQUIRE(dcp::verify(where / "b").empty());
}

void failures_are_thrown_by_get()
{
    folder where;
    values values;
    dcp::state state = values.state();
    {
        std::FILE *file = std::fopen((where / "file").c_str(), "w");
        REQUIRE(file && std::fclose(file) == 0);
    }
    dcp::save_chain chain = chain_with_retries();
    dcp::future future = chain.save_async(state, where / "file/a");
    REQUIRE(future.wait());
    dcp::error first = THROWN(dcp::error, future.get());
    REQUIRE(first.status() != DCP_OK && first.what() == future.message());
    REQUIRE(future.state() == DCP_FUTURE_FAILED);

    /* One that nobody asked of is what the next save throws. */
    chain.save_async(state, where / "file/b");
    REQUIRE(THROWN(dcp::error, chain.save_async(state, where / "c")).status() == first.status());
    chain.save_async(state, where / "c").get();
}

void functions_are_called_when_it_is_done()
{
    folder where;
    values values;
    dcp::state state = values.state();
    std::atomic<int> calls{0};
    dcp::future future = dcp::save_async(state, where / "a");
    auto shared = std::make_shared<int>(1);
    future.on_done([&calls, shared](dcp_status status, const std::string &message) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        calls += status == DCP_OK && message.empty();
    });
    future.on_done([&](dcp_status, const std::string &) {
        REQUIRE(future.wait(0)); /* inside of a function */
        calls++;
    });
    REQUIRE(future.wait());
    REQUIRE(calls == 2);
    future.on_done([&](dcp_status, const std::string &) { calls++; });
    REQUIRE(calls == 3);
    future = dcp::future();
    REQUIRE(shared.use_count() == 1);
}

void exceptions_of_functions_are_thrown_by_get()
{
    folder where;
    values values;
    dcp::state state = values.state();
    dcp::future future = dcp::save_async(state, where / "a");
    future.on_done([](dcp_status, const std::string &) { throw own_exception(7); });
    REQUIRE(future.wait());
    REQUIRE(THROWN(own_exception, future.get()).number == 7);
    future.get(); /* the save itself has succeeded */
    REQUIRE(dcp::verify(where / "a").empty());

    dcp::save_options options;
    options.progress = [](const dcp_progress &) -> bool { throw own_exception(8); };
    dcp::state again = values.state();
    int number = 0;
    try {
        dcp::save_async(again, where / "b", options).get();
    } catch (const own_exception &thrown) {
        number = thrown.number;
    }
    REQUIRE(number == 8 && !std::filesystem::exists(where / "b/.metadata"));

    options.progress = nullptr;
    options.after_commit = [](const std::string &, const std::string &) { throw own_exception(9); };
    REQUIRE(THROWN(own_exception, dcp::save_async(again, where / "b", options).get()).number == 9);

    dcp::state failing{{"a", dcp::stateful([](dcp::node) { throw own_exception(10); })}};
    REQUIRE(THROWN(own_exception, dcp::save_async(failing, where / "c")).number == 10);
}

/* Functions and the storage last until the save has ended, whatever is dropped before. */
void what_a_save_needs_is_kept()
{
    values values;
    std::atomic<int> calls{0};
    auto shared = std::make_shared<int>(1);
    dcp::storage memory = dcp::storage::memory();
    dcp::storage kept = memory;
    {
        dcp::state state = values.state();
        dcp::save_options options;
        options.storage = std::move(memory);
        options.progress = [&calls, shared](const dcp_progress &) { return ++calls > 0; };
        dcp::save_async(state, "a", options);
    }
    REQUIRE(calls > 0 && shared.use_count() == 1);
    dcp::open_options in_memory;
    in_memory.storage = kept;
    REQUIRE(dcp::verify("a", in_memory).empty());
}

void saves_are_cancelled()
{
    folder where;
    values values;
    dcp::state state = values.state();
    dcp::save_options options;
    options.write_rate = 100000;
    dcp::future future = dcp::save_async(state, where / "a", options);
    REQUIRE(!future.wait(0));
    future.cancel();
    REQUIRE(THROWN(dcp::error, future.get()).status() == DCP_ERR_CANCELLED);
}

} // namespace

int main()
{
    return run_trials(
        {{"futures say how it ended", futures_say_how_it_ended},
         {"failures are thrown by get", failures_are_thrown_by_get},
         {"functions are called when it is done", functions_are_called_when_it_is_done},
         {"exceptions of functions are thrown by get", exceptions_of_functions_are_thrown_by_get},
         {"what a save needs is kept", what_a_save_needs_is_kept},
         {"saves are cancelled", saves_are_cancelled}});
}
