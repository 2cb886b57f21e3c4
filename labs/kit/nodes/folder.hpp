// A folder that all nodes of a job see, like a network file system, through which processes without
// any other connection exchange data. A file is complete, or it does not exist.
//
//     create   succeeds for exactly one of several concurrent attempts at the same name
//     write    creates a file or replaces it
//     wait     waits for one file, up to a time limit
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace kit {

class Folder {
 public:
  // Creates the folder if needed. Files remain in it after the processes that use it have ended,
  // even if they were killed.
  explicit Folder(std::string path);

  // Returns false and does nothing if a file of this name exists.
  bool create(const std::string& name, const std::string& text);
  void write(const std::string& name, const std::string& text);
  [[nodiscard]] std::optional<std::string> read(const std::string& name) const;
  [[nodiscard]] std::vector<std::string> list() const;  // all names, sorted
  bool remove(const std::string& name);                 // false if there is no such file
  // Returns true as soon as a file of this name exists, or false if there is none after `longest`.
  [[nodiscard]] bool wait(const std::string& name, std::chrono::milliseconds longest) const;

  // For tests: makes read, list, remove, and a wait that finds no file return late, as on a busy
  // network, so that their results may be outdated.
  void answers_late_by(std::chrono::milliseconds time) { late_ = time; }

 private:
  [[nodiscard]] std::string path_of(const std::string& name) const;
  [[nodiscard]] std::string draft(const std::string& text) const;
  std::string path_;
  std::chrono::milliseconds late_{0};
};

}  // namespace kit
