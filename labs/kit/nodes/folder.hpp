// A folder that all nodes of a job see, as a network file system is: a place at which processes
// that know nothing of each other can meet. A file is there as a whole, or not at all.
//
//     create   of many who try the same name at the same time, one succeeds
//     write    whatever was there before is gone
//     wait     for one file, for so long at most
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace kit {

class Folder {
 public:
  // Made if it is not there. What it holds stays there when its users are gone, however they went.
  explicit Folder(std::string path);

  // False, and nothing happens, when there is a file of this name.
  bool create(const std::string& name, const std::string& text);
  void write(const std::string& name, const std::string& text);
  [[nodiscard]] std::optional<std::string> read(const std::string& name) const;
  [[nodiscard]] std::vector<std::string> list() const;  // all names, sorted
  bool remove(const std::string& name);                 // false when there was none
  // True as soon as there is a file of this name; false when there is none after `longest`.
  [[nodiscard]] bool wait(const std::string& name, std::chrono::milliseconds longest) const;

  // For tests: read, list, remove, and wait in vain return late, as on a busy network; what they
  // saw may be old by then.
  void answers_late_by(std::chrono::milliseconds time) { late_ = time; }

 private:
  [[nodiscard]] std::string path_of(const std::string& name) const;
  [[nodiscard]] std::string draft(const std::string& text) const;
  std::string path_;
  std::chrono::milliseconds late_{0};
};

}  // namespace kit
