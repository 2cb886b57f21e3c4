// One JSON object a line, flushed line by line: a run that dies leaves every finished step behind,
// and `tail -f` follows a run that lives. NaN and infinities become null, which JSON demands.
#pragma once

#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ringsmith {

class JsonLines {
 public:
  // Creates the file; UsageError naming it if it exists or cannot be written.
  explicit JsonLines(const std::string& path);
  // Error naming the file if the line could not be written, for instance on a full disk.
  void write(const nlohmann::ordered_json& object);

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace ringsmith
