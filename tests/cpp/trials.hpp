/* SPDX-License-Identifier: BSD-3-Clause */
/* Trials of the interface in C++: functions that throw where something is not as it should be. A
 * program runs all of them, and names those that fail. */
#ifndef TESTS_CPP_TRIALS_HPP
#define TESTS_CPP_TRIALS_HPP

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <dcp/dcp.hpp>

#define REQUIRE(condition)                                                                         \
    (static_cast<bool>(condition)                                                                  \
         ? void()                                                                                  \
         : throw std::logic_error(std::string(__FILE__) + ":" + std::to_string(__LINE__) +         \
                                  ": " #condition))

/* Runs the expression, which must throw this exception, and gives it. */
#define THROWN(exception, ...)                                                                     \
    ([&] {                                                                                         \
        try {                                                                                      \
            static_cast<void>(__VA_ARGS__);                                                        \
        } catch (const exception &caught) {                                                        \
            return caught;                                                                         \
        }                                                                                          \
        throw std::logic_error(std::string(__FILE__) + ":" + std::to_string(__LINE__) +            \
                               ": did not throw: " #__VA_ARGS__);                                  \
    }())

struct trial {
    const char *name;
    void (*function)();
};

/* An exception that only the program knows, with something in it that no status could carry. */
struct own_exception : std::runtime_error {
    explicit own_exception(int its_number) : std::runtime_error("own words"), number(its_number)
    {
    }
    int number;
};

/* An empty directory that goes with its contents. */
class folder
{
  public:
    folder()
    {
        std::string pattern = (std::filesystem::temp_directory_path() / "dcp_cpp.XXXXXX").string();
        if (!mkdtemp(pattern.data()))
            throw std::runtime_error("no temporary directory");
        path_ = pattern;
    }
    folder(const folder &) = delete;
    folder &operator=(const folder &) = delete;
    ~folder()
    {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    std::string operator/(const std::string &name) const
    {
        return path_ + "/" + name;
    }

  private:
    std::string path_;
};

inline int run_trials(const std::vector<trial> &trials)
{
    int failed = 0;
    for (const trial &each : trials) {
        try {
            each.function();
            std::printf("ok      %s\n", each.name);
        } catch (const std::exception &failure) {
            std::printf("FAILED  %s: %s\n", each.name, failure.what());
            failed++;
        }
    }
    return failed ? 1 : 0;
}

#endif
