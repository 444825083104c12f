/* SPDX-License-Identifier: BSD-3-Clause */
/* By the interface in C++: saves a tensor and a number, loads both again, and compares. */
#include <cstdio>
#include <exception>
#include <vector>

#include <dcp/dcp.hpp>

int main(int argc, char **argv)
try {
    std::vector<float> saved{0, 1, 2, 3, 4, 5}, loaded(6);
    const char *path = argc > 1 ? argv[1] : "save_load_hpp.checkpoint";
    dcp::state from{{"model", {{"weight", dcp::tensor(saved.data(), {2, 3})}}}, {"step", 7}};
    dcp::state into{{"model", {{"weight", dcp::tensor(loaded.data(), {2, 3})}}}, {"step", 0}};
    dcp::save_options options;
    options.overwrite = DCP_OVERWRITE_REPLACE;
    dcp::save_async(from, path, options).get();
    dcp::load(into, path);
    return loaded == saved && into["step"].as<int>() == 7 ? 0 : 1;
} catch (const std::exception &failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
}
