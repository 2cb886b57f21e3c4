#include "runtime/base/json_lines.hpp"

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/base/error.hpp"

namespace ringsmith {

JsonLines::JsonLines(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "wx")) {
  require(file_ != nullptr, "cannot create '" + path + "': " + std::strerror(errno) +
                                "; choose another run directory with --run-dir");
}

void JsonLines::write(const nlohmann::ordered_json& object) {
  const std::string line = object.dump() + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() ||
      std::fflush(file_.get()) != 0)
    throw Error("cannot write '" + path_ + "': " + std::strerror(errno));
}

}  // namespace ringsmith
