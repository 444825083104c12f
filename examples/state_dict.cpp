/* SPDX-License-Identifier: BSD-3-Clause */
/* From C++: a vector saved by two ranks, which are threads, and loaded by one. Run it as:
 * state_dict DIRECTORY */
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <dcp/dcp.hpp>

namespace
{

constexpr std::int64_t length = 1001;

/* A vector that is sharded evenly over the ranks. */
struct shard {
    std::vector<double> values;
    dcp::tensor tensor;

    shard(int rank, int ranks)
    {
        tensor = dcp::tensor(DCP_F64, {length}).shard(dcp::mesh({ranks}, rank), {dcp::shard(0)});
        values.resize(static_cast<std::size_t>(tensor.count()));
        tensor.data = values.data();
    }
};

void save_rank(const std::string &path, const dcp::group &group)
{
    shard part(group.rank(), group.size());
    for (std::size_t i = 0; i < part.values.size(); i++)
        part.values[i] = static_cast<double>(part.tensor.offsets[0]) + static_cast<double>(i);

    dcp::state state{{"vector", part.tensor}};
    dcp::save_options options;
    options.group = group;
    options.overwrite = DCP_OVERWRITE_REPLACE;
    dcp::save(state, path, options);
}

void save_on_threads(const std::string &path, int ranks)
{
    std::vector<dcp::group> groups = dcp::group::threads(ranks);
    std::vector<std::exception_ptr> failures(groups.size());
    std::vector<std::thread> threads;

    for (std::size_t r = 0; r < groups.size(); r++)
        threads.emplace_back([&path, &failures, r, group = std::move(groups[r])] {
            try {
                save_rank(path, group);
            } catch (...) {
                failures[r] = std::current_exception();
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    for (const std::exception_ptr &failure : failures)
        if (failure)
            std::rethrow_exception(failure);
}

} // namespace

int main(int argc, char **argv)
try {
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    save_on_threads(argv[1], 2);

    shard whole(0, 1);
    dcp::state state{{"vector", whole.tensor}};
    dcp::load(state, argv[1]);
    for (std::size_t i = 0; i < whole.values.size(); i++)
        if (whole.values[i] != static_cast<double>(i))
            throw std::runtime_error("element " + std::to_string(i) + " differs");
    std::printf("saved by 2 ranks, loaded by 1: %zu values\n", whole.values.size());
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
