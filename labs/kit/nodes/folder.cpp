#include "labs/kit/nodes/folder.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <unistd.h>

#include "labs/kit/driver.hpp"
#include "labs/kit/nodes/whereabouts.hpp"

namespace kit {
namespace {

using Clock = std::chrono::steady_clock;

// Counts a request when it has completed, so the count implies the request's effect.
struct Counted {
  ~Counted() { ++whereabouts().requests; }
};

}  // namespace

Folder::Folder(std::string path) : path_(std::move(path)) {
  std::filesystem::create_directories(path_);
  std::filesystem::create_directories(path_ + ".drafts");
}

std::string Folder::path_of(const std::string& name) const {
  if (name.empty() || name.front() == '.' || name.size() > 200 ||
      name.find('/') != std::string::npos || name.find('\0') != std::string::npos)
    throw Misuse{"the folder cannot hold a file named \"" + name + "\""};
  return path_ + "/" + name;
}

// Writes a complete file outside the folder; the caller moves it into the folder in one step.
std::string Folder::draft(const std::string& text) const {
  static std::atomic<int> number = 0;
  const std::string path =
      path_ + ".drafts/" + std::to_string(getpid()) + "." + std::to_string(++number);
  std::ofstream file(path, std::ios::binary);
  if (!(file << text << std::flush)) throw std::runtime_error("cannot write " + path);
  return path;
}

bool Folder::create(const std::string& name, const std::string& text) {
  const Counted count;
  const std::string to = path_of(name), from = draft(text);
  const bool first = link(from.c_str(), to.c_str()) == 0;
  if (!first && errno != EEXIST) throw std::runtime_error("cannot create " + to);
  unlink(from.c_str());
  return first;
}

void Folder::write(const std::string& name, const std::string& text) {
  const Counted count;
  std::filesystem::rename(draft(text), path_of(name));
}

std::optional<std::string> Folder::read(const std::string& name) const {
  const Counted count;
  std::ifstream file(path_of(name), std::ios::binary);
  std::optional<std::string> text;
  if (file) text = (std::ostringstream() << file.rdbuf()).str();
  std::this_thread::sleep_for(late_);
  return text;
}

std::vector<std::string> Folder::list() const {
  const Counted count;
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  std::this_thread::sleep_for(late_);
  return names;
}

bool Folder::remove(const std::string& name) {
  const Counted count;
  const bool gone = unlink(path_of(name).c_str()) == 0;
  std::this_thread::sleep_for(late_);
  return gone;
}

bool Folder::wait(const std::string& name, std::chrono::milliseconds longest) const {
  const Counted count;
  const std::string path = path_of(name);
  const Doing doing("waits for the file " + name + ", at most " + std::to_string(longest.count()) +
                    " ms");
  const auto begun = Clock::now();
  auto nap = std::chrono::microseconds(500);
  while (access(path.c_str(), F_OK) != 0) {
    if (Clock::now() - begun >= longest) {
      std::this_thread::sleep_for(late_);
      return false;
    }
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, std::chrono::microseconds(8000));
  }
  return true;
}

}  // namespace kit
