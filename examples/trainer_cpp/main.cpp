/* SPDX-License-Identifier: BSD-3-Clause */
/* A trainer in C++: it resumes from the newest whole checkpoint of its directory, and saves behind
 * the next step. Run it as: trainer_cpp DIRECTORY STEPS */
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <random>
#include <sstream>
#include <string>

#include <dcp/dcp.hpp>

#include "network.hpp"

namespace
{

constexpr std::int64_t save_every = 20;

class trainer
{
  public:
    explicit trainer(std::string directory) : directory_(std::move(directory))
    {
    }

    void resume()
    {
        std::filesystem::create_directories(directory_);
        dcp::run_list run(directory_);
        std::optional<dcp_run_checkpoint> latest = run.latest();
        if (!latest)
            return;
        dcp::state into = state();
        dcp::load_options options;
        options.strictness = DCP_STRICT_RAISE_ALL;
        dcp::load(into, directory_ + "/" + latest->path, options);
        step_ = into["step"].as<std::int64_t>();
        std::printf("resumed after step %lld\n", static_cast<long long>(step_));
    }

    void train(std::int64_t steps)
    {
        while (step_ < steps) {
            batch batch;
            batch.draw(random_);
            double loss = network_.gradients(batch);
            if (saving_.valid())
                saving_.wait_staged(); /* the copies of the last save are taken meanwhile */
            network_.adam(rate_, ++step_);
            rate_ *= 0.995;
            std::printf("step %lld: loss %a\n", static_cast<long long>(step_), loss);
            if (step_ % save_every == 0)
                save();
        }
        if (saving_.valid())
            saving_.get();
    }

  private:
    void save()
    {
        if (saving_.valid())
            saving_.get(); /* how the last one has ended */
        dcp::save_options options;
        options.step = step_;
        dcp::state now = state();
        saving_ = chain_.save_async(now, directory_ + "/step_" + std::to_string(step_), options);
    }

    /* What a checkpoint holds, for saving and loading alike. */
    dcp::state state()
    {
        dcp::state root{{"schedule", {{"rate", schedule()}}}, {"data", data()}, {"step", step_}};
        dcp::node model = root.dict("model");
        dcp::node moments = root.dict("optimizer").dict("state");
        for (parameter &each : network_.parameters) {
            auto chunk = [&each](std::vector<float> &memory) {
                return dcp::tensor(memory.data(), {static_cast<std::int64_t>(each.rows),
                                                   static_cast<std::int64_t>(each.columns)});
            };
            model.add(each.name, chunk(each.value));
            moments.dict(each.name)
                .add("exp_avg", chunk(each.exp_avg))
                .add("exp_avg_sq", chunk(each.exp_avg_sq));
        }
        return root;
    }

    dcp::stateful schedule()
    {
        return dcp::stateful(
            [this](dcp::node into) { into.add("now", rate_); },
            [this](const dcp::node &filled) { rate_ = filled["now"].as<double>(); });
    }

    dcp::stateful data()
    {
        return dcp::stateful(
            [this](dcp::node into) {
                std::ostringstream text;
                text << random_;
                into.add("random", text.str());
            },
            [this](const dcp::node &filled) {
                std::istringstream(filled["random"].as<std::string>()) >> random_;
            });
    }

    static dcp::save_chain_options overlapped()
    {
        dcp::save_chain_options options;
        options.staging = DCP_STAGING_OVERLAPPED;
        return options;
    }

    std::string directory_;
    std::mt19937 random_{1};
    network network_{random_};
    double rate_ = 0.02;
    std::int64_t step_ = 0;
    dcp::save_chain chain_{overlapped()};
    dcp::future saving_;
};

} // namespace

int main(int argc, char **argv)
try {
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s DIRECTORY STEPS\n", argv[0]);
        return 2;
    }
    trainer trainer(argv[1]);
    trainer.resume();
    trainer.train(std::atoll(argv[2]));
    return 0;
} catch (const std::exception &failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
}
