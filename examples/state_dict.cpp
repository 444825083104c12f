/* SPDX-License-Identifier: BSD-3-Clause */
/* From C++: handles in unique_ptr, failures as exceptions, two ranks as two threads. Run it as:
 * state_dict DIRECTORY */
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <dcp.h>

namespace
{

struct release {
    void operator()(dcp_state *state) const
    {
        dcp_state_free(state);
    }
    void operator()(dcp_group *group) const
    {
        dcp_group_free(group);
    }
};
using state_ptr = std::unique_ptr<dcp_state, release>;
using group_ptr = std::unique_ptr<dcp_group, release>;

void check(dcp_status status)
{
    if (status != DCP_OK)
        throw std::runtime_error(std::string(dcp_status_string(status)) + ": " +
                                 dcp_error_message());
}

/* A vector that is sharded evenly over the ranks. */
struct shard {
    std::vector<double> values;
    dcp_tensor tensor{};

    shard(int64_t length, int rank, int ranks)
    {
        dcp_mesh mesh{};
        mesh.ndim = 1;
        mesh.shape[0] = ranks;
        mesh.rank = rank;
        dcp_placement placement = dcp_shard(0);
        tensor.dtype = DCP_F64;
        tensor.ndim = 1;
        tensor.global_shape[0] = length;
        check(dcp_mesh_shard(&mesh, &tensor, &placement));
        values.resize(static_cast<size_t>(tensor.sizes[0]));
        tensor.data = values.data();
    }

    state_ptr state()
    {
        state_ptr root(dcp_state_new());
        dcp_state_tensor(root.get(), "vector", &tensor);
        return root;
    }
};

constexpr int64_t length = 1001;

void save_rank(const std::string &path, group_ptr group)
{
    shard part(length, dcp_group_rank(group.get()), dcp_group_size(group.get()));
    for (size_t i = 0; i < part.values.size(); i++)
        part.values[i] = static_cast<double>(part.tensor.offsets[0]) + static_cast<double>(i);

    dcp_save_options options{};
    options.group = group.get();
    options.overwrite = DCP_OVERWRITE_REPLACE;
    state_ptr state = part.state();
    check(dcp_save(state.get(), path.c_str(), &options));
}

void save_on_threads(const std::string &path, int ranks)
{
    std::vector<dcp_group *> groups(static_cast<size_t>(ranks));
    std::vector<std::string> failures(groups.size());
    std::vector<std::thread> threads;

    check(dcp_group_new_threads(ranks, groups.data()));
    for (size_t r = 0; r < groups.size(); r++) {
        threads.emplace_back([&path, &failures, r, group = groups[r]] {
            try {
                save_rank(path, group_ptr(group));
            } catch (const std::exception &error) {
                failures[r] = error.what();
            }
        });
    }
    for (std::thread &thread : threads)
        thread.join();
    for (const std::string &failure : failures)
        if (!failure.empty())
            throw std::runtime_error(failure);
}

} // namespace

int main(int argc, char **argv)
try {
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    save_on_threads(argv[1], 2);

    shard whole(length, 0, 1);
    state_ptr state = whole.state();
    check(dcp_load(state.get(), argv[1], nullptr, nullptr));
    for (size_t i = 0; i < whole.values.size(); i++)
        if (whole.values[i] != static_cast<double>(i))
            throw std::runtime_error("element " + std::to_string(i) + " differs");
    std::printf("saved by 2 ranks, loaded by 1: %zu values\n", whole.values.size());
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
