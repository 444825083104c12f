/* SPDX-License-Identifier: BSD-3-Clause */
/* Storages and groups that are classes of the program's, and what they throw. */
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trials.hpp"

namespace
{

using contents = std::shared_ptr<std::string>;

/* Files by "DIRECTORY/NAME" in a map; fails on demand. */
class map_storage : public dcp::custom_storage
{
  public:
    void list(const std::string &directory,
              const std::function<void(const std::string &)> &visit) override
    {
        std::map<std::string, contents> now = copy();
        for (const auto &[path, bytes] : now)
            if (path.compare(0, directory.size() + 1, directory + "/") == 0)
                visit(path.substr(directory.size() + 1));
    }
    void remove(const std::string &directory, const std::string &name) override
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!files_.erase(directory + "/" + name))
            throw dcp::error(DCP_ERR_NOT_FOUND, "there is no " + name);
    }
    std::unique_ptr<file> open(const std::string &directory, const std::string &name,
                               const dcp_storage_access &) override
    {
        std::lock_guard<std::mutex> lock(mutex_);
        auto found = files_.find(directory + "/" + name);
        if (found == files_.end())
            throw dcp::error(DCP_ERR_NOT_FOUND, "there is no " + name);
        return std::make_unique<map_file>(*this, directory + "/" + name, found->second);
    }
    std::unique_ptr<file> create(const std::string &directory, const std::string &name,
                                 const dcp_storage_access &) override
    {
        return std::make_unique<map_file>(*this, directory + "/" + name,
                                          std::make_shared<std::string>());
    }

    bool fails_to_write = false;
    bool fails_to_read = false;

  private:
    class map_file : public file
    {
      public:
        map_file(map_storage &storage, std::string path, contents bytes)
            : storage_(storage), path_(std::move(path)), bytes_(std::move(bytes))
        {
        }
        std::uint64_t size() const override
        {
            return bytes_->size();
        }
        void read(void *bytes, std::size_t size, std::uint64_t offset) override
        {
            if (storage_.fails_to_read)
                throw own_exception(2);
            std::memcpy(bytes, bytes_->data() + offset, size);
        }
        void write(const void *bytes, std::size_t size, std::uint64_t offset) override
        {
            std::lock_guard<std::mutex> lock(storage_.mutex_);
            if (storage_.fails_to_write)
                throw own_exception(1);
            if (bytes_->size() < offset + size)
                bytes_->resize(offset + size);
            std::memcpy(bytes_->data() + offset, bytes, size);
        }
        void seal(std::uint64_t, dcp_storage_condition condition) override
        {
            std::lock_guard<std::mutex> lock(storage_.mutex_);
            if (condition == DCP_PUBLISH_IF_ABSENT && storage_.files_.count(path_))
                throw dcp::error(DCP_ERR_EXISTS, path_ + " is there");
            storage_.files_[path_] = bytes_;
        }

      private:
        map_storage &storage_;
        std::string path_;
        contents bytes_;
    };

    std::map<std::string, contents> copy()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        return files_;
    }

    std::mutex mutex_;
    std::map<std::string, contents> files_;
};

void a_class_is_a_storage()
{
    auto own = std::make_shared<map_storage>();
    dcp::storage storage(own);
    std::vector<float> saved(1000, 3), loaded(1000);
    dcp::state from{{"a", dcp::tensor(saved.data(), {1000})}, {"step", 1}};
    dcp::state into{{"a", dcp::tensor(loaded.data(), {1000})}, {"step", 0}};
    dcp::save_options saving;
    dcp::load_options loading;
    dcp::open_options opening;
    saving.storage = loading.storage = opening.storage = storage;

    dcp::save(from, "x", saving);
    REQUIRE(!storage.list("x").empty() && dcp::verify("x", opening).empty());
    dcp::load(into, "x", loading);
    REQUIRE(loaded == saved && dcp::open("x", opening).value<int>("step") == 1);
    REQUIRE(THROWN(dcp::error, dcp::open("y", opening)).status() == DCP_ERR_NOT_FOUND);

    own->fails_to_read = true;
    REQUIRE(THROWN(own_exception, dcp::load(into, "x", loading)).number == 2);
    REQUIRE(THROWN(own_exception, dcp::open("x", opening)).number == 2);
    own->fails_to_read = false;
    own->fails_to_write = true;
    REQUIRE(THROWN(own_exception, dcp::save(from, "z", saving)).number == 1);
    int number = 0;
    try {
        dcp::save_async(from, "z", saving).get();
    } catch (const own_exception &thrown) {
        number = thrown.number;
    }
    REQUIRE(number == 1);
    own->fails_to_write = false;
    dcp::save_async(from, "z", saving).get();
    REQUIRE(dcp::remove("z", storage).removed > 0 && storage.list("z").empty());
    REQUIRE(THROWN(dcp::error, storage.remove("x", "none")).status() == DCP_ERR_NOT_FOUND);
}

/* What ranks, as threads, share. */
struct meeting {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<char> bytes;
    int came = 0;
    int round = 0;
};

class rank_of_meeting : public dcp::collectives
{
  public:
    rank_of_meeting(std::shared_ptr<meeting> with, int rank) : with_(std::move(with)), rank_(rank)
    {
    }
    void all_gather(const dcp_collective &, const void *send, std::size_t bytes,
                    void *receive) override
    {
        if (fails)
            throw own_exception(3);
        exchange(send, bytes);
        std::memcpy(receive, with_->bytes.data(), 2 * bytes);
        exchange(nullptr, 0);
    }
    void broadcast(const dcp_collective &, int root, void *data, std::size_t bytes) override
    {
        exchange(data, bytes);
        std::memcpy(data, with_->bytes.data() + static_cast<std::size_t>(root) * bytes, bytes);
        exchange(nullptr, 0);
    }
    bool fails = false;

  private:
    /* Returns when both ranks have brought their bytes. */
    void exchange(const void *send, std::size_t bytes)
    {
        std::unique_lock<std::mutex> lock(with_->mutex);
        if (bytes) {
            with_->bytes.resize(2 * bytes);
            std::memcpy(with_->bytes.data() + static_cast<std::size_t>(rank_) * bytes, send, bytes);
        }
        int round = with_->round;
        if (++with_->came == 2) {
            with_->came = 0;
            with_->round++;
            with_->changed.notify_all();
        }
        with_->changed.wait(lock, [&] { return with_->round != round; });
    }

    std::shared_ptr<meeting> with_;
    int rank_;
};

void a_class_is_a_group()
{
    folder where;
    auto shared = std::make_shared<meeting>();
    std::vector<std::string> failures(2);
    auto run = [&](int rank) {
        try {
            dcp::group group(std::make_shared<rank_of_meeting>(shared, rank), rank, 2);
            REQUIRE(group.all_gather(10 + rank) == (std::vector<int>{10, 11}));
            std::vector<double> row(4, rank);
            dcp::mesh mesh({2}, rank);
            dcp::state state{
                {"rows", dcp::tensor(row.data(), {2, 4}).shard(mesh, {dcp::shard(0)})}};
            dcp::save_options options;
            options.group = group;
            dcp::save(state, where / "a", options);
        } catch (const std::exception &failure) {
            failures[static_cast<std::size_t>(rank)] = failure.what();
        }
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    REQUIRE(failures[0].empty() && failures[1].empty());
    REQUIRE(dcp::open(where / "a").read<double>("rows", {1, 0}, {1, 1})[0] == 1);
}

void a_group_throws_through()
{
    folder where;
    auto own = std::make_shared<rank_of_meeting>(std::make_shared<meeting>(), 0);
    own->fails = true;
    dcp::group group(own, 0, 2);
    REQUIRE(THROWN(own_exception, group.all_gather(1)).number == 3);
    dcp::group again(own, 0, 2);
    dcp::state state{{"a", 1}};
    dcp::save_options options;
    options.group = again;
    REQUIRE(THROWN(own_exception, dcp::save(state, where / "a", options)).number == 3);
    REQUIRE(THROWN(dcp::error, dcp::group(own, 3, 2)).status() == DCP_ERR_ARGUMENT);
    REQUIRE(THROWN(dcp::error, dcp::group(nullptr, 0, 1)).status() == DCP_ERR_ARGUMENT);
    REQUIRE(THROWN(dcp::error, dcp::storage(std::shared_ptr<dcp::custom_storage>())).status() ==
            DCP_ERR_ARGUMENT);
}

} // namespace

int main()
{
    return run_trials({{"a class is a storage", a_class_is_a_storage},
                       {"a class is a group", a_class_is_a_group},
                       {"a group throws through", a_group_throws_through}});
}
