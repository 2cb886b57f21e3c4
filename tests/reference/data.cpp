#include "tests/reference/data.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/reference/npy.hpp"

namespace ringsmith::reference {

namespace fs = std::filesystem;

namespace {

const char* chosen() {
  const char* dir = std::getenv("RINGSMITH_REFERENCE_DIR");
  return dir != nullptr && *dir != '\0' ? dir : nullptr;
}

template <class T>
Tensor filled(const std::vector<T>& values, const Shape& shape, const std::string& what) {
  require(static_cast<std::int64_t>(values.size()) == numel_of(shape),
          "reference tensor" + what + ": " + std::to_string(values.size()) + " values for shape " +
              to_string(shape));
  const Tensor t = Tensor::empty(shape, {dtype_of<T>()});
  std::copy(values.begin(), values.end(), t.span<T>().begin());
  return t;
}

template <class T>
Tensor read(const nlohmann::json& entry, const Shape& shape) {
  if (entry.contains("data")) return filled(entry.at("data").get<std::vector<T>>(), shape, "");
  const fs::path file = directory() / entry.at("npy").get<std::string>();
  const NpyArray<T> array = read_npy<T>(file);
  require(array.shape == shape,
          file.string() + ": shape " + to_string(array.shape) + ", expected " + to_string(shape));
  return filled(array.values, shape, " " + file.string());
}

}  // namespace

bool is_shipped_set() { return chosen() == nullptr; }

fs::path directory() {
  if (is_shipped_set()) return fs::path(RINGSMITH_SOURCE_DIR) / "tests/reference/data";
  require(fs::is_directory(chosen()),
          std::string("RINGSMITH_REFERENCE_DIR=") + chosen() + " is no directory");
  return chosen();
}

nlohmann::json load(const std::string& name) {
  const fs::path file = directory() / name;
  std::ifstream in(file);
  require(in.good(), "cannot read reference file " + file.string());
  try {
    return nlohmann::json::parse(in);
  } catch (const nlohmann::json::exception& e) {
    throw UsageError("reference file " + file.string() + ": " + e.what());
  }
}

bool has_part(const std::string& name) {
  if (fs::exists(directory() / name)) return true;
  require(!is_shipped_set(), "tests/reference/data lacks " + name);
  fmt::print("skipped: this set has no {}\n", name);
  std::fflush(stdout);
  return false;
}

std::vector<std::string> list(const std::string& subdirectory) {
  std::vector<std::string> names;
  if (!fs::is_directory(directory() / subdirectory)) return names;
  for (const auto& entry : fs::directory_iterator(directory() / subdirectory))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

Tensor tensor(const nlohmann::json& entry) {
  const auto shape = entry.at("shape").get<Shape>();
  const auto dtype = entry.at("dtype").get<std::string>();
  if (dtype == "f32") return read<float>(entry, shape);
  if (dtype == "i64") return read<std::int64_t>(entry, shape);
  throw UsageError("reference tensor of dtype '" + dtype + "': expected f32 or i64");
}

Tensor tensor_f32(const std::vector<float>& values, const Shape& shape) {
  return filled(values, shape, "");
}

}  // namespace ringsmith::reference
