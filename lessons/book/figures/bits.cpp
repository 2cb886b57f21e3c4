// book_bits: a number in f32, bf16 and f16, bit by bit, and the error of each format.
//
//     book_bits --number 0.1 --scale 1024
//
// A live figure of the book. The 16-bit formats are the runtime's (kernels/half.hpp). --scale
// multiplies before rounding and divides afterwards, as a loss scale does.
#include <array>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <string>

#include "kernels/half.hpp"
#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"

using namespace ringsmith;
using nlohmann::json;

namespace {

struct Format {
  const char* name;
  int exponent, fraction;  // bits
};
constexpr std::array kFormats = {Format{"f32", 8, 23}, Format{"bf16", 8, 7}, Format{"f16", 5, 10}};

struct Stored {
  Format format;
  std::string bits;
  float held = 0;   // value of the stored number
  float value = 0;  // divided by the scale again
};

std::string binary(std::uint32_t bits, int count) {
  std::string out;
  for (int b = count - 1; b >= 0; --b) out += (bits >> b & 1U) != 0 ? '1' : '0';
  return out;
}

std::array<Stored, kFormats.size()> store(float number, float scale) {
  const float scaled = number * scale;
  const bf16 brain(scaled);
  const f16 half(scaled);
  const auto one = [&](Format format, std::uint32_t bits, float held) {
    return Stored{format, binary(bits, 1 + format.exponent + format.fraction), held, held / scale};
  };
  return {one(kFormats[0], std::bit_cast<std::uint32_t>(scaled), scaled),
          one(kFormats[1], brain.bits, float(brain)), one(kFormats[2], half.bits, float(half))};
}

// Shortest text that reads back as the same float: equal on all machines.
std::string shown(float x) { return fmt::format("{}", x); }

std::string error_of(float value, float number) {
  if (!std::isfinite(value)) return "-";
  if (value == number) return "0";
  return fmt::format("{:.2e}", std::fabs(double(value) - double(number)) / std::fabs(number));
}

std::string as_text(float number, float scale, const std::array<Stored, kFormats.size()>& all) {
  std::string out = fmt::format("{} times {}\n", shown(number), shown(scale));
  for (const Stored& s : all) {
    const auto at = std::size_t(1 + s.format.exponent);
    out += fmt::format("{:<5} {} {} {:<23}  {} divided: {}, relative error {}\n", s.format.name,
                       s.bits.substr(0, 1), s.bits.substr(1, at - 1), s.bits.substr(at),
                       shown(s.held), shown(s.value), error_of(s.value, number));
  }
  return out;
}

std::string as_json(float number, float scale, const std::array<Stored, kFormats.size()>& all) {
  json formats = json::array();
  for (const Stored& s : all)
    formats.push_back({{"name", s.format.name},
                       {"exponent", s.format.exponent},
                       {"bits", s.bits},
                       {"held", shown(s.held)},
                       {"value", shown(s.value)},
                       {"error", error_of(s.value, number)}});
  return json{{"number", shown(number)}, {"scale", shown(scale)}, {"formats", formats}}.dump();
}

int run(int argc, char** argv) {
  std::string text;
  double scale = 1;
  bool as_data = false;
  apps::CommandLine app("A number in f32, bf16 and f16, bit by bit.", "book_bits");
  app.add_option("--number", text, "decimal")->required();
  app.add_option("--scale", scale, "a loss scale")->check(apps::above_zero(1e30));
  app.add_flag("--json", as_data, "print JSON");
  if (!app.parse(argc, argv)) return 0;
  const auto number = apps::read_real(text);
  require(number.has_value(), "'" + text + "' is not a decimal number, such as 0.1 or 1e-8");
  const auto all = store(float(*number), float(scale));
  fmt::print("{}", as_data ? as_json(float(*number), float(scale), all) + "\n"
                           : as_text(float(*number), float(scale), all));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program("book_bits", [&] { return run(argc, argv); });
}
