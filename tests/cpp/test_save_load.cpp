/* SPDX-License-Identifier: BSD-3-Clause */
/* Saving, loading and looking, and exceptions of functions on their way. */
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "trials.hpp"

namespace
{

struct model {
    std::vector<float> weight = std::vector<float>(24);
    int step = 0;

    dcp::state state()
    {
        return {{"model", {{"weight", dcp::tensor(weight.data(), {6, 4})}}}, {"step", step}};
    }
    void fill()
    {
        std::iota(weight.begin(), weight.end(), 1.0F);
        step = 7;
    }
};

void what_is_saved_comes_back()
{
    folder where;
    model saved, loaded;
    saved.fill();
    dcp::state from = saved.state();
    dcp::state into = loaded.state();
    dcp::save(from, where / "a");
    dcp::load_report report = dcp::load(into, where / "a");
    REQUIRE(loaded.weight == saved.weight && into["step"].as<int>() == 7);
    REQUIRE(report.size() == 0 && report.bytes_checked() > 0 && report.bytes_unchecked() == 0);
    REQUIRE(dcp::verify(where / "a").empty());
}

void options_reach_the_library()
{
    folder where;
    model saved;
    saved.fill();
    dcp::state from = saved.state();
    dcp::save_options options;
    std::string committed;
    int calls = 0;
    options.step = 1000;
    options.extra_files = {{"config", "layers: 2\n"}};
    options.after_commit = [&](const std::string &path, const std::string &) { committed = path; };
    options.progress = [&](const dcp_progress &) { return ++calls > 0; };
    dcp::save_plan_cache cache;
    options.plan_cache = cache.get();
    dcp::save(from, where / "a", options);
    REQUIRE(committed == where / "a" && calls > 1);
    REQUIRE(dcp::save_estimate(from, where / "b", options).total_files > 0);

    dcp::checkpoint checkpoint = dcp::open(where / "a");
    dcp_save_info info = checkpoint.info();
    REQUIRE(info.has_step && info.step == 1000);
    REQUIRE(checkpoint.read_extra_file("config") == "layers: 2\n");
    REQUIRE(THROWN(dcp::error, dcp::save(from, where / "a", options)).status() == DCP_ERR_EXISTS);

    model loaded;
    dcp::state into{{"net", {{"w", dcp::tensor(loaded.weight.data(), {6, 4})}}}, {"more", 1}};
    dcp::load_options renamed;
    renamed.include = {"net"};
    renamed.renames = {{DCP_RENAME_EXACT, "net.w", "model.weight"}};
    dcp::load_report report = dcp::load(into, where / "a", renamed);
    REQUIRE(loaded.weight == saved.weight);
}

void failures_of_loads_have_reports()
{
    folder where;
    model saved;
    dcp::state from = saved.state();
    dcp::save(from, where / "a");
    dcp::state into{{"other", 1}};
    dcp::load_error failure = THROWN(dcp::load_error, dcp::load(into, where / "a"));
    REQUIRE(failure.status() == DCP_ERR_MISSING_KEY);
    REQUIRE(std::string(failure.what()).find("other") != std::string::npos);
    bool found = false;
    for (std::size_t i = 0; i < failure.report().size(); i++)
        found = found || std::string(failure.report()[i].name) == "other";
    REQUIRE(found);
    REQUIRE(THROWN(dcp::error, failure.report()[99]).status() == DCP_ERR_ARGUMENT);
    REQUIRE(THROWN(dcp::error, dcp::load(into, where / "none")).status() == DCP_ERR_NOT_FOUND);
}

void parts_are_read()
{
    folder where;
    model saved;
    saved.fill();
    dcp::state from = saved.state();
    from.add("name", "net").add("nothing", dcp::tensor(DCP_F32, {0, 4}));
    dcp::save(from, where / "a");
    dcp::checkpoint checkpoint(where / "a");
    std::string names;
    for (const dcp::entry &each : checkpoint)
        names += std::string(each.name) + (each.is_tensor ? " tensor " : " object ");
    REQUIRE(checkpoint.size() == 4 && names.find("model.weight tensor") != std::string::npos);
    REQUIRE(checkpoint.contains("step") && !checkpoint.contains("none"));
    REQUIRE(checkpoint.read<float>("model.weight") == saved.weight);
    REQUIRE(checkpoint.read<float>("model.weight", {2, 1}, {2, 2}) ==
            (std::vector<float>{10, 11, 14, 15}));
    REQUIRE(checkpoint.read<float>("nothing").empty());
    REQUIRE(checkpoint.read<float>("model.weight", {6, 0}, {0, 4}).empty());
    REQUIRE(checkpoint.value<int>("step") == 7);
    REQUIRE(checkpoint.value<std::string>("name") == "net");
    REQUIRE(THROWN(dcp::error, checkpoint.read<double>("model.weight")).status() == DCP_ERR_DTYPE);
    REQUIRE(THROWN(dcp::error, checkpoint.read<float>("step")).status() == DCP_ERR_KIND);
    REQUIRE(THROWN(dcp::error, checkpoint.read<float>("none")).status() == DCP_ERR_NOT_FOUND);
    REQUIRE(THROWN(dcp::error, checkpoint.read<float>("model.weight", {5, 0}, {2, 4})).status() ==
            DCP_ERR_ARGUMENT);
    dcp::mapping mapped = checkpoint.map(checkpoint["model.weight"]);
    REQUIRE(mapped.bytes == 96 && static_cast<const float *>(mapped.data)[23] == 24);

    std::size_t bytes = 0;
    checkpoint.read_stream(checkpoint["step"], 0,
                           [&](const void *, std::size_t size) { bytes += size; });
    REQUIRE(bytes > 0);
    own_exception thrown =
        THROWN(own_exception,
               checkpoint.read_stream(checkpoint["step"], 0,
                                      [](const void *, std::size_t) { throw own_exception(4); }));
    REQUIRE(thrown.number == 4);
}

void faults_and_runs_are_listed()
{
    folder where;
    model saved;
    dcp::state from = saved.state();
    for (int step : {10, 20}) {
        dcp::save_options options;
        options.step = step;
        dcp::save(from, where / ("step_" + std::to_string(step)), options);
    }
    dcp::run_list run(where / "");
    REQUIRE(run.size() == 2 && run.latest()->step == 20 &&
            run.reason().find("20") != std::string::npos);
    std::filesystem::resize_file(where / "step_20/__0_0.distcp", 100);
    REQUIRE(!dcp::verify(where / "step_20").empty());
    REQUIRE(dcp::run_list(where / "").latest()->step == 10);
    dcp::storage memory = dcp::storage::memory();
    REQUIRE(dcp::copy(where / "step_10", "there", {}, memory).files > 0);
    REQUIRE(dcp::copy(where / "step_10", "there", {}, memory).was_whole);
    REQUIRE(THROWN(dcp::error, dcp::copy(where / "step_20", "new", {}, memory)).status() ==
            DCP_ERR_CHECKSUM);
    REQUIRE(dcp::remove(where / "step_20").removed > 0);
    REQUIRE(THROWN(dcp::error, dcp::remove(where / "step_20")).status() == DCP_ERR_NOT_FOUND);
    REQUIRE(dcp::run_list(where / "").size() == 1);
}

void stateful_entries_throw_through()
{
    folder where;
    double rate = 0.5;
    bool fails = false;
    dcp::state from{{"schedule", dcp::stateful(
                                     [&](dcp::node into) {
                                         if (fails)
                                             throw own_exception(1);
                                         into.add("rate", rate);
                                     },
                                     [&](const dcp::node &filled) {
                                         if (fails)
                                             throw own_exception(2);
                                         rate = filled["rate"].as<double>();
                                     })}};
    dcp::save(from, where / "a");
    rate = 0;
    dcp::load(from, where / "a");
    REQUIRE(rate == 0.5);

    fails = true;
    REQUIRE(THROWN(own_exception, dcp::save(from, where / "b")).number == 1);
    REQUIRE(!std::filesystem::exists(where / "b/.metadata"));
    fails = false;
    dcp::save(from, where / "b"); /* what was thrown is not thrown again */
    dcp::state other{{"schedule", dcp::stateful([](dcp::node into) { into.add("rate", 0.0); },
                                                [](const dcp::node &) { throw 5; })}};
    REQUIRE(THROWN(int, dcp::load(other, where / "a")) == 5);
}

struct counter {
    int value = 0;
    void state_dict(dcp::node into) const
    {
        into.add("value", value);
        into.add("inner", dcp::stateful([this](dcp::node below) { below.add("twice", 2 * value); },
                                        [](const dcp::node &) {}));
    }
    void load_state_dict(const dcp::node &filled)
    {
        value = filled["value"].as<int>();
    }
};

void objects_are_stateful()
{
    folder where;
    counter saved{3}, loaded;
    dcp::state from{{"counter", dcp::stateful(saved)}};
    dcp::state moved = std::move(from);
    dcp::save(moved, where / "a");
    dcp::state into{{"counter", dcp::stateful(loaded)}};
    dcp::load(into, where / "a");
    REQUIRE(loaded.value == 3);
    REQUIRE(dcp::open(where / "a").value<int>("counter.inner.twice") == 6);
}

void texts_with_a_nul_are_not_cut()
{
    folder where;
    dcp::state state{{"a", 1}};
    std::string cut = (where / "a") + std::string("\0b", 2);
    auto refused = [](const dcp::error &failure) {
        return failure.status() == DCP_ERR_ARGUMENT &&
               std::string(failure.what()).find("goes on behind a NUL") != std::string::npos;
    };
    REQUIRE(refused(THROWN(dcp::error, dcp::save(state, cut))));
    REQUIRE(refused(THROWN(dcp::error, dcp::save_async(state, cut))));
    dcp::save_options files;
    files.extra_files.push_back({std::string("x\0y", 3), {}});
    REQUIRE(refused(THROWN(dcp::error, dcp::save(state, where / "a", files))));
    dcp::save(state, where / "a");
    REQUIRE(refused(THROWN(dcp::error, dcp::load(state, cut))));
    REQUIRE(refused(THROWN(dcp::error, dcp::open(cut))));
    REQUIRE(refused(THROWN(dcp::error, dcp::verify(cut))));
    dcp::load_options options;
    options.include = {std::string("a\0b", 3)};
    REQUIRE(refused(THROWN(dcp::error, dcp::load(state, where / "a", options))));
    dcp::save_chain_options chain;
    chain.fallback_path = cut;
    REQUIRE(refused(THROWN(dcp::error, dcp::save_chain(chain))));
}

void progress_and_commit_throw_through()
{
    folder where;
    model saved;
    dcp::state from = saved.state();
    dcp::save_options options;
    options.progress = [](const dcp_progress &) -> bool { throw own_exception(3); };
    REQUIRE(THROWN(own_exception, dcp::save(from, where / "a", options)).number == 3);
    options.progress = [](const dcp_progress &) { return false; };
    REQUIRE(THROWN(dcp::error, dcp::save(from, where / "a", options)).status() ==
            DCP_ERR_CANCELLED);
    options.progress = nullptr;
    options.after_commit = [](const std::string &, const std::string &) { throw own_exception(6); };
    REQUIRE(THROWN(own_exception, dcp::save(from, where / "a", options)).number == 6);
    REQUIRE(dcp::verify(where / "a").empty());
    dcp::load_options loading;
    loading.progress = [](const dcp_progress &) -> bool { throw own_exception(8); };
    REQUIRE(THROWN(own_exception, dcp::load(from, where / "a", loading)).number == 8);
}

void hooks_of_c_throw_through()
{
    folder where;
    model saved;
    dcp::state from = saved.state();
    dcp::exception_carrier carrier;
    dcp_save_planner planner{};
    planner.size_of = sizeof planner;
    planner.context = &carrier;
    planner.create_local_plan = [](void *context, dcp_saving *, dcp_save_plan *) {
        return static_cast<dcp::exception_carrier *>(context)->run([] { throw own_exception(9); });
    };
    dcp::save_options options;
    options.planner = &planner;
    options.carrier = &carrier;
    REQUIRE(THROWN(own_exception, dcp::save(from, where / "a", options)).number == 9);
    options.carrier = nullptr;
    dcp::error reported = THROWN(dcp::error, dcp::save(from, where / "a", options));
    REQUIRE(reported.status() == DCP_ERR_CALLBACK);
    REQUIRE(std::string(reported.what()).find("own words") != std::string::npos);
}

/* One rank throws: it gets its exception, the other one an error with the text. */
void other_ranks_are_reported()
{
    folder where;
    std::vector<dcp::group> groups = dcp::group::threads(2);
    std::vector<std::thread> threads;
    std::vector<std::string> ends(2);
    for (std::size_t rank = 0; rank < 2; rank++)
        threads.emplace_back([&, rank, group = std::move(groups[rank])]() mutable {
            dcp::save_options options;
            options.group = group;
            dcp::state state{{"entry", dcp::stateful([&](dcp::node into) {
                                  if (rank == 1)
                                      throw own_exception(1);
                                  into.add("a", 1);
                              })}};
            try {
                dcp::save(state, where / "a", options);
            } catch (const own_exception &) {
                ends[rank] = "own";
            } catch (const dcp::error &failure) {
                ends[rank] = failure.what();
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    REQUIRE(ends[1] == "own");
    REQUIRE(ends[0].find("own words") != std::string::npos &&
            ends[0].find("rank 1") != std::string::npos);
}

} // namespace

int main()
{
    return run_trials({{"what is saved comes back", what_is_saved_comes_back},
                       {"options reach the library", options_reach_the_library},
                       {"failures of loads have reports", failures_of_loads_have_reports},
                       {"parts are read", parts_are_read},
                       {"faults and runs are listed", faults_and_runs_are_listed},
                       {"stateful entries throw through", stateful_entries_throw_through},
                       {"objects are stateful", objects_are_stateful},
                       {"texts with a NUL are not cut", texts_with_a_nul_are_not_cut},
                       {"progress and commit throw through", progress_and_commit_throw_through},
                       {"hooks of C throw through", hooks_of_c_throw_through},
                       {"other ranks are told", other_ranks_are_reported}});
}
