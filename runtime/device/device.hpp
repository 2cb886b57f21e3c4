// Where a tensor lives: "cpu" or "cuda:0".
#pragma once

#include <cstdint>
#include <string>

namespace ringsmith {

struct Device {
  enum class Kind : std::uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;

  static Device cpu() { return {}; }
  static Device cuda(int i) { return {Kind::cuda, i}; }
  [[nodiscard]] bool is_cpu() const { return kind == Kind::cpu; }
  [[nodiscard]] std::string str() const {
    return is_cpu() ? "cpu" : "cuda:" + std::to_string(index);
  }
  bool operator==(const Device&) const = default;
};

}  // namespace ringsmith
