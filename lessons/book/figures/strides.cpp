// book_strides: a tensor of consecutive numbers and views of it, one operation after the other:
// sizes, strides, offset, and which place of the memory each element is.
//
//     book_strides --sizes 2,3 transpose:0,1 select:1,0
//
// A live figure of the book: runtime/tensor, compiled for the page, draws what this prints.
#include <cstdlib>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "runtime/tensor/tensor.hpp"

using namespace ringsmith;

namespace {

constexpr std::int64_t kMostElements = 256;  // of the memory, and of a view

constexpr const char* kOperations =
    "\nOperations, applied from left to right:\n"
    "  transpose:A,B        swaps two dimensions\n"
    "  permute:A,B,...      puts the dimensions in this order\n"
    "  slice:D,BEGIN,END,STEP   of dimension D\n"
    "  select:D,I           place I of dimension D, which then is gone\n"
    "  view:N,...           other sizes, without a copy or not at all\n"
    "  reshape:N,...        other sizes, by a copy if it must be\n"
    "  expand:N,...         repeats dimensions of size 1, by stride 0\n"
    "  squeeze:D            removes a dimension of size 1\n"
    "  unsqueeze:D          adds one\n"
    "  contiguous           copies, unless the elements lie in order\n";

struct Operation {
  std::string text, name;
  Shape numbers;
};

Shape numbers_of(const std::string& whole, const std::string& list) {
  Shape out;
  std::size_t at = 0;
  while (at <= list.size() && !list.empty()) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    const std::string one = list.substr(at, comma - at);
    char* end = nullptr;
    const long long value = std::strtoll(one.c_str(), &end, 10);
    require(!one.empty() && *end == '\0' && std::llabs(value) <= 1'000'000,
            fmt::format("{}: '{}' is no whole number of at most a million", whole, one));
    out.push_back(value);
    at = comma + 1;
  }
  return out;
}

Operation parse(const std::string& text) {
  const std::size_t colon = text.find(':');
  Operation op{text, text.substr(0, colon), {}};
  if (colon != std::string::npos) op.numbers = numbers_of(text, text.substr(colon + 1));
  return op;
}

Tensor apply(const Tensor& t, const Operation& op) {
  const auto needs = [&](std::size_t n) {
    require(op.numbers.size() == n,
            fmt::format("{}: {} takes {} number{}", op.text, op.name, n, n == 1 ? "" : "s"));
  };
  const auto number = [&](std::size_t i) { return op.numbers[i]; };
  const auto dim = [&](std::size_t i) { return static_cast<int>(op.numbers[i]); };
  if (op.name == "transpose") return needs(2), t.transpose(dim(0), dim(1));
  if (op.name == "slice") return needs(4), t.slice(dim(0), number(1), number(2), number(3));
  if (op.name == "select") return needs(2), t.select(dim(0), number(1));
  if (op.name == "squeeze") return needs(1), t.squeeze(dim(0));
  if (op.name == "unsqueeze") return needs(1), t.unsqueeze(dim(0));
  if (op.name == "permute") return t.permute({op.numbers.begin(), op.numbers.end()});
  if (op.name == "view") return t.view(op.numbers);
  if (op.name == "reshape") return t.reshape(op.numbers);
  if (op.name == "expand") return t.expand(op.numbers);
  if (op.name == "contiguous") return needs(0), t.contiguous();
  throw UsageError(fmt::format("{}: there is no such operation; --help lists them", op.text));
}

// Returns the place in the storage of each element, in the order of their indices.
std::vector<std::int64_t> places(const Tensor& t) {
  std::vector<std::int64_t> out{t.storage_offset()};
  for (int d = 0; d < t.dim(); ++d) {
    std::vector<std::int64_t> wider;
    for (const std::int64_t place : out)
      for (std::int64_t i = 0; i < t.size(d); ++i)
        wider.push_back(place + i * t.strides()[static_cast<std::size_t>(d)]);
    out = std::move(wider);
  }
  return out;
}

nlohmann::json as_json(const std::string& name, const Tensor& t, const Tensor& base) {
  return {{"name", name},
          {"sizes", t.sizes()},
          {"strides", t.strides()},
          {"offset", t.storage_offset()},
          {"view", t.storage() == base.storage()},
          {"contiguous", t.is_contiguous()},
          {"storage", t.storage()->size().value / sizeof(float)},
          {"places", places(t)},
          {"values", t.to_vector<float>()}};
}

std::string as_line(const std::string& name, const Tensor& t, const Tensor& base) {
  return fmt::format("{:<22} sizes {:<10} strides {:<10} offset {:<3} {}, {}", name,
                     to_string(t.sizes()), to_string(t.strides()), t.storage_offset(),
                     t.storage() == base.storage() ? "view" : "copy",
                     t.is_contiguous() ? "contiguous" : "strided");
}

int run(int argc, char** argv) {
  std::string sizes = "2,3";
  std::vector<std::string> operations;
  bool json = false;
  apps::CommandLine app("Shows a tensor and views of it: sizes, strides, offset, places in memory.",
                        "book_strides");
  app.add_option("--sizes", sizes, "of the tensor, which holds 0, 1, 2, ...");
  app.add_flag("--json", json, "print JSON, with the place of every element");
  app.add_option("operations", operations, "what is done to it, as below");
  app.footer(kOperations);
  if (!app.parse(argc, argv)) return 0;

  const Shape shape = numbers_of("--sizes", sizes);
  std::int64_t count = 1;
  for (const std::int64_t n : shape) {
    require(n >= 1 && n <= kMostElements, fmt::format("--sizes {}: 1 to {}", sizes, kMostElements));
    count *= n;
    require(count <= kMostElements,
            fmt::format("--sizes {}: more than {} elements", sizes, kMostElements));
  }
  const Tensor base = arange(0, static_cast<double>(count), 1, {DType::f32}).view(shape);
  Tensor t = base;
  nlohmann::json all = nlohmann::json::array();  // = {one} is a list to g++ and one to clang
  all.push_back(as_json("tensor", t, base));
  std::string text = as_line("tensor", t, base) + "\n";
  std::string trouble;
  for (const std::string& operation : operations) {
    try {
      t = apply(t, parse(operation));
      require(t.numel() <= kMostElements,
              fmt::format("{}: more than {} elements", operation, kMostElements));
    } catch (const UsageError& error) {  // the operations before it are still shown
      trouble = error.what();
      break;
    }
    all.push_back(as_json(operation, t, base));
    text += as_line(operation, t, base) + "\n";
  }
  if (json)
    fmt::print("{}\n", nlohmann::json{{"tensors", all}, {"error", trouble}}.dump());
  else
    fmt::print("{}{}\n", text, t.str());
  require(trouble.empty(), trouble);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program("book_strides", [&] { return run(argc, argv); });
}
