// Tests checkpoints that are truncated, damaged, interrupted, or refused by the disk. An incomplete
// checkpoint must never be read as complete, and the previous one must be found.
#include "runtime/checkpoint/manager.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/checkpoint/sha256.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/tiny_files.hpp"

using namespace ringsmith;
namespace fs = std::filesystem;

namespace {

using Folder = testing::TemporaryFolder;

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Returns a snapshot in which every number is the step, so that check_is_of_step() can verify it.
Snapshot of_step(std::int64_t step) {
  const auto value = static_cast<double>(step);
  return {step,
          {{"model", {{"w", full({50, 100}, value)}, {"b", full({}, value, {DType::i64})}}},
           {"optimizer", {{"state.0.exp_avg", full({5000}, value)}}}},
          {{"rng.0", get_rng_state()}, {"step", std::to_string(step)}}};
}

void check_is_of_step(const Snapshot& snapshot) {
  for (const auto& [file, tensors] : snapshot.tensors)
    for (const auto& [name, tensor] : tensors)
      for (const double x : tensor.to(DType::f64).to_vector<double>())
        REQUIRE(x == static_cast<double>(snapshot.step));
  REQUIRE(snapshot.values.at("step") == std::to_string(snapshot.step));
}

std::vector<std::int64_t> steps_in(const std::string& folder) {
  std::vector<std::int64_t> out;
  for (const auto& [step, path] : list_snapshots(folder)) out.push_back(step);
  return out;
}
using Steps = std::vector<std::int64_t>;

void ignore(const std::string& /*line*/) {}

}  // namespace

TEST_CASE("a snapshot comes back as it was, and sha256sum agrees with its manifest") {
  const Folder folder;
  const std::string path = folder / snapshot_name(200);
  CHECK(snapshot_name(200) == "step-000200");
  CHECK(snapshot_name(12345678) == "step-12345678");
  Snapshot snapshot = of_step(200);
  snapshot.values["odd"] = "quotes \" and \xc3\xa4, a line\nmore";
  write_snapshot(path, snapshot);
  const Snapshot back = read_snapshot(path);
  CHECK(back.step == 200);
  CHECK(back.values == snapshot.values);
  CHECK(back.tensors.size() == 2);
  CHECK(back.tensors.at("model").at("w").sizes() == Shape{50, 100});
  CHECK(back.tensors.at("model").at("b").dtype() == DType::i64);
  for (const auto& [file, tensors] : back.tensors)
    for (const auto& [name, tensor] : tensors)
      for (const double x : tensor.to(DType::f64).to_vector<double>()) REQUIRE(x == 200);

  const auto manifest = nlohmann::json::parse(slurp(path + "/manifest.json"));
  CHECK(manifest.at("step") == 200);
  REQUIRE(manifest.at("files").size() == 3);
  REQUIRE(std::distance(fs::directory_iterator(path), {}) == 4);
  for (const auto& [name, facts] : manifest.at("files").items()) {
    const std::string file = path + "/" + name;
    CHECK(facts.at("bytes") == fs::file_size(file));
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> tool(
        popen(("sha256sum '" + file + "'").c_str(), "r"), &pclose);
    std::string digest(64, '\0');
    REQUIRE(std::fread(digest.data(), 1, digest.size(), tool.get()) == digest.size());
    CHECK(facts.at("sha256") == digest);
  }
  CHECK_THROWS_WITH(write_snapshot(path, {1, {{"../x", {}}}, {}}), ContainsSubstring("'../x'"));
  CHECK_THROWS_WITH(write_snapshot(path, {1, {}, {{"v", "\xff"}}}), ContainsSubstring("UTF-8"));
  CHECK(read_snapshot(path).step == 200);
  write_snapshot(path, of_step(201));
  check_is_of_step(read_snapshot(path));
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("a file cut or changed anywhere is refused by its name, and the one before is taken") {
  const Folder folder;
  for (const std::int64_t step : {100, 200})
    write_snapshot(folder / snapshot_name(step), of_step(step));
  const std::string path = folder / snapshot_name(200);
  CheckpointManager manager(folder.path);
  int cases = 0;
  const auto check_refused = [&](const std::string& name, const std::string& how) {
    INFO(name << " " << how);
    ++cases;
    std::string said;
    try {
      (void)read_snapshot(path);
      FAIL("was read as whole");
    } catch (const UsageError& e) {
      said = e.what();
    }
    REQUIRE_THAT(said, ContainsSubstring("'" + path + "'") && ContainsSubstring(" " + name + " "));
    REQUIRE(said.find('\n') == std::string::npos);
    std::vector<std::string> skipped;
    const auto found =
        manager.load_newest([&](const std::string& line) { skipped.push_back(line); });
    REQUIRE(found.has_value());
    REQUIRE(found->step == 100);
    REQUIRE(skipped == std::vector<std::string>{said});
  };
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename(), file = entry.path(), whole = slurp(file);
    const std::size_t size = whole.size();
    std::vector<std::size_t> places;
    for (std::size_t at = 0; at < size; ++at)
      if (at % 4096 == 0 || at < 16 || at + 16 >= size || name == "manifest.json")
        places.push_back(at);
    for (const std::size_t at : places) {
      spill(file, whole.substr(0, at));
      check_refused(name, "cut at " + std::to_string(at));
      for (const char bits : {'\x01', '\x20'}) {
        std::string changed = whole;
        changed[at] = static_cast<char>(changed[at] ^ bits);
        spill(file, changed);
        check_refused(name, "changed at " + std::to_string(at));
      }
    }
    for (const std::string& more : {std::string("\n"), std::string(4096, '\0')}) {
      spill(file, whole + more);
      check_refused(name, "with " + std::to_string(more.size()) + " bytes more");
    }
    fs::remove(file);
    check_refused(name, "removed");
    spill(file, whole);
    REQUIRE(read_snapshot(path).step == 200);
  }
  CHECK(cases > 1000);
  CHECK(manager.load_newest(ignore)->step == 200);
  CHECK_THROWS_WITH(read_snapshot(folder / "nowhere"),
                    ContainsSubstring("manifest.json is missing"));
}

TEST_CASE("a save takes a copy: what the program does next does not reach the disk") {
  const Folder folder;
  CheckpointManager manager(folder.path);
  const Snapshot live = of_step(7);
  for (int i = 0; i < 5; ++i) {
    manager.save(live);
    for (const auto& [file, tensors] : live.tensors)
      for (const auto& [name, tensor] : tensors) tensor.fill_(-1);
    manager.wait();
    check_is_of_step(*manager.load_newest(ignore));
    for (const auto& [file, tensors] : live.tensors)
      for (const auto& [name, tensor] : tensors) tensor.fill_(7);
  }
}

TEST_CASE("so many stay as were asked for: the newest that can be used") {
  const Folder folder;
  {
    CheckpointManager manager(folder.path, 2);
    for (const std::int64_t step : {1, 2, 30, 31}) {
      manager.save(of_step(step));
      manager.wait();
    }
    CHECK(steps_in(folder.path) == Steps{30, 31});
  }
  // Truncated and damaged checkpoints do not count. The next save removes them if it is later.
  write_snapshot(folder / snapshot_name(40), of_step(40));
  fs::remove(folder / "step-000040/manifest.json");
  write_snapshot(folder / snapshot_name(50), of_step(50));
  spill(folder / "step-000050/state.json", "{}");
  write_snapshot(folder / snapshot_name(9000), of_step(9000));
  spill(folder / "step-009000/state.json", "{}");
  fs::create_directory(folder.path / "step-60");  // the manager does not use such names
  CheckpointManager manager(folder.path, 2);
  CHECK(manager.load_newest(ignore)->step == 31);
  manager.save(of_step(55));
  manager.wait();
  CHECK(steps_in(folder.path) == Steps{31, 55, 9000});  // later steps are kept
  CHECK(fs::exists(folder.path / "step-60"));
  manager.save(of_step(9000));  // replaces the damaged one
  manager.wait();
  CHECK(steps_in(folder.path) == Steps{55, 9000});
  manager.save(of_step(9001));
  manager.wait();
  CHECK(steps_in(folder.path) == Steps{9000, 9001});
  check_is_of_step(*manager.load_newest(ignore));
  CHECK_THROWS_WITH(CheckpointManager(folder / "none", 0), ContainsSubstring("at least 1"));
}

TEST_CASE("what is held replaces nothing before it is released, and never if it is dropped") {
  const Folder folder;
  {
    CheckpointManager manager(folder.path, 1);
    manager.release();  // nothing is held
    manager.save(of_step(1));
    const Snapshot live = of_step(2);
    manager.hold(live);
    live.tensors.at("model").at("w").fill_(-1);  // the manager holds a copy
    manager.wait();
    CHECK(steps_in(folder.path) == Steps{1});
    manager.release();
    manager.wait();
    CHECK(steps_in(folder.path) == Steps{2});
    check_is_of_step(*manager.load_newest(ignore));
    manager.hold(of_step(3));
    manager.drop();
    manager.release();
    manager.hold(of_step(4));
    manager.hold(of_step(5));  // replaces the previous one
    manager.release();
    manager.wait();
    CHECK(steps_in(folder.path) == Steps{5});
    manager.hold(of_step(6));
  }
  CHECK(steps_in(folder.path) == Steps{5});  // 6 was never released
}

TEST_CASE("a checkpoint that is whole but of no use is skipped, with the reason, and goes first") {
  const Folder folder;
  for (const std::int64_t step : {1, 2, 3})
    write_snapshot(folder / snapshot_name(step), of_step(step));
  CheckpointManager manager(folder.path, 2);
  std::vector<std::string> skipped;
  const auto found =
      manager.load_newest([&](const std::string& line) { skipped.push_back(line); },
                          [](const Snapshot& s) { require(s.step < 3, "step 3 has diverged"); });
  REQUIRE(found.has_value());
  CHECK(found->step == 2);
  CHECK(skipped == std::vector<std::string>{"step 3 has diverged"});
  manager.save(of_step(4));
  manager.wait();
  CHECK(steps_in(folder.path) == Steps{2, 4});  // step 3 does not count as one of the two
}

TEST_CASE("one folder, one job") {
  const Folder folder;
  {
    const CheckpointManager first(folder.path);
    CHECK_THROWS_WITH(CheckpointManager(folder.path),
                      ContainsSubstring("'" + folder.path.string() + "'") &&
                          ContainsSubstring("in use by another process (pid " +
                                            std::to_string(::getpid()) + " on "));
  }
  CHECK_NOTHROW(CheckpointManager(folder.path));
}

TEST_CASE("a full disk is told once, leaves nothing of its own, and keeps what was there") {
  const Folder folder;
  CheckpointManager manager(folder.path);
  manager.save(of_step(1));
  manager.wait();
  {
    const testing::TinyFiles full_disk(10'000);
    manager.save(of_step(2));
    while (!manager.failed()) std::this_thread::yield();
    CHECK(manager.wait_for(std::chrono::milliseconds(0)));
    CHECK(manager.failed());
    CHECK_THROWS_WITH(manager.wait(), ContainsSubstring("step-000002/model.safetensors") &&
                                          ContainsSubstring("File too large"));
    CHECK_FALSE(manager.failed());
    CHECK_NOTHROW(manager.wait());
    manager.save(of_step(3));
    CHECK_THROWS_AS(manager.save(of_step(4)), Error);  // waits for the previous save
  }
  CHECK(steps_in(folder.path) == Steps{1});
  manager.save(of_step(5));
  manager.wait();
  CHECK(steps_in(folder.path) == Steps{1, 5});
}

TEST_CASE("a folder that is gone, or may not be written to, is named") {
  const Folder folder;
  CHECK_THROWS_WITH(CheckpointManager(folder / "no/such"), ContainsSubstring("No such file"));
  CheckpointManager manager(folder / "run");
  fs::rename(folder.path / "run", folder.path / "moved");
  manager.save(of_step(1));
  CHECK_THROWS_WITH(manager.wait(), ContainsSubstring(folder / "run/step-000001") &&
                                        ContainsSubstring("No such file"));
  // Denies writing to the owner, too, because the owner may be the user that runs this test.
  fs::permissions(folder.path / "moved/lock", fs::perms(0444));
  fs::permissions(folder.path / "moved", fs::perms(0555));
  fs::permissions(folder.path, fs::perms(0755));
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {  // root may write everywhere
    if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
    try {
      const CheckpointManager refused(folder / "moved");
      _exit(1);
    } catch (const UsageError& e) {
      _exit(std::string(e.what()).find("moved/lock': Permission denied") != std::string::npos ? 0
                                                                                              : 3);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  fs::permissions(folder.path / "moved", fs::perms(0755));  // so that it can be removed
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("kill -9 at any moment of saving: what is found is whole, and never older than before") {
  const Folder folder;
  const Folder elsewhere;
  const auto begin = std::chrono::steady_clock::now();
  write_snapshot(elsewhere / snapshot_name(1), of_step(1));
  const std::chrono::duration<double> one = std::chrono::steady_clock::now() - begin;
  std::mt19937 random(std::random_device{}());
  std::int64_t newest = 0;
  int kills_in_a_save = 0;
  for (int kill_number = 0; kill_number < 12; ++kill_number) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      CheckpointManager manager(folder.path, 2);
      for (std::int64_t step = newest + 1;; ++step) manager.save(of_step(step));
    }
    std::this_thread::sleep_for(one * (static_cast<double>(random() % 500) / 100));
    ::kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    CheckpointManager manager(folder.path, 2);
    const auto found = manager.load_newest([&](const std::string&) { ++kills_in_a_save; });
    if (!found) {
      CHECK(newest == 0);
      continue;
    }
    check_is_of_step(*found);
    CHECK(found->step >= newest);
    newest = found->step;
  }
  INFO(newest << " steps saved, " << kills_in_a_save << " kills cut one short");
  CHECK(newest > 0);
}

TEST_CASE("kill -9 at any moment of saving a step again: a whole checkpoint of it remains") {
  const Folder folder;
  const std::string path = folder / snapshot_name(1);
  const std::string a = folder / "a", b = folder / "b";
  REQUIRE((fs::create_directory(a) && fs::create_directory(b)));
  if (renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) != 0) {
    WARN("not tested: the file system of " << folder.path << " cannot exchange names");
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  write_snapshot(path, of_step(1));
  const std::chrono::duration<double> once = std::chrono::steady_clock::now() - begin;
  std::mt19937 random(std::random_device{}());
  for (int kill_number = 0; kill_number < 12; ++kill_number) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0)
      for (;;) write_snapshot(path, of_step(1));
    std::this_thread::sleep_for(once * (static_cast<double>(random() % 500) / 100));
    ::kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    check_is_of_step(read_snapshot(path));
  }
  fs::create_directory(path + ".new");
  spill(path + ".new/model.safetensors", "x");
  CheckpointManager manager(folder.path, 2);
  manager.save(of_step(2));
  manager.wait();
  CHECK_FALSE(fs::exists(path + ".new"));
  check_is_of_step(read_snapshot(path));
}

TEST_CASE("a sealed manifest that leaves out what a checkpoint has, or is of no step, is refused") {
  const Folder folder;
  const std::string path = folder / snapshot_name(7);
  const auto sealed = [&](const std::string& step, const std::string& files) {
    const std::string text = "{\n \"format\": \"ringsmith snapshot 1\",\n \"step\": " + step +
                             ",\n \"files\": " + files + ",\n";
    const auto digest = sha256(std::as_bytes(std::span(text)));
    spill(path + "/manifest.json", text + " \"sha256\": \"" + digest + "\"\n}\n");
  };
  write_snapshot(path, of_step(7));
  for (const std::string step : {"7", "-1", "9223372036854775807", "18446744073709551615"}) {
    sealed(step, "{}");
    CHECK_THROWS_WITH(read_snapshot(path), ContainsSubstring("'" + path + "'") &&
                                               ContainsSubstring("does not list state.json"));
  }
}

TEST_CASE("a checkpoint that is a link to a folder: of it only the link is removed") {
  const Folder folder, elsewhere;
  const std::string far = elsewhere / snapshot_name(1), link = folder / snapshot_name(1);
  write_snapshot(far, of_step(1));
  fs::create_directory_symlink(far, link);
  check_is_of_step(read_snapshot(link));
  CheckpointManager manager(folder.path, 1);
  manager.save(of_step(2));
  manager.wait();
  CHECK_FALSE(fs::is_symlink(link));
  check_is_of_step(read_snapshot(far));
  fs::create_directory_symlink(far, folder / snapshot_name(3));  // the next checkpoint's path
  manager.save(of_step(3));
  manager.wait();
  check_is_of_step(read_snapshot(folder / snapshot_name(3)));
  check_is_of_step(read_snapshot(far));
}

TEST_CASE("what has a checkpoint's name and is no folder stays, and is no checkpoint") {
  const Folder folder;
  const std::string fifo = folder / snapshot_name(1), file = folder / snapshot_name(2);
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  spill(file, "precious");
  CheckpointManager manager(folder.path, 1);
  for (const int step : {3, 4}) {
    manager.save(of_step(step));
    manager.wait();
  }
  CHECK_FALSE(fs::exists(folder / snapshot_name(3)));
  for (const int step : {1, 2}) {
    manager.save(of_step(step));
    CHECK_THROWS_WITH(manager.wait(), ContainsSubstring(folder / snapshot_name(step)));
  }
  CHECK(fs::is_fifo(fifo));
  CHECK(slurp(file) == "precious");
  check_is_of_step(read_snapshot(folder / snapshot_name(4)));
}

TEST_CASE("a lock that is a link, a FIFO or a device is refused, and what it names stays") {
  const Folder folder, elsewhere;
  const std::string lock = folder / "lock", file = elsewhere / "file";
  spill(file, "precious");
  const auto refused = [&](const std::string& why) {
    CHECK_THROWS_WITH(CheckpointManager(folder.path),
                      "cannot write '" + lock + "': it is " + why + "; remove it");
    fs::remove(lock);
  };
  fs::create_symlink(file, lock);
  refused("a symbolic link");
  CHECK(slurp(file) == "precious");
  fs::create_symlink("/dev/null", lock);
  refused("a device");
  REQUIRE(mkfifo(lock.c_str(), 0600) == 0);
  refused("a FIFO");
  fs::create_directory(lock);
  refused("a folder");
  CHECK_NOTHROW(CheckpointManager(folder.path));
}
