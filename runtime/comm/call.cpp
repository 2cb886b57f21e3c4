#include "runtime/comm/call.hpp"

#include <array>

namespace ringsmith::comm {

namespace {

constexpr std::array<const char*, 12> kNames{
    "no call", "barrier", "all_reduce", "reduce_scatter", "all_gather", "broadcast",
    "reduce",  "gather",  "scatter",    "all_to_all",     "send",       "recv"};

bool reduces(Op op) { return op == Op::all_reduce || op == Op::reduce_scatter || op == Op::reduce; }

}  // namespace

std::uint64_t Call::pack() const {
  return static_cast<std::uint64_t>(op) | static_cast<std::uint64_t>(reduction) << 8 |
         static_cast<std::uint64_t>(dtype) << 16 | static_cast<std::uint64_t>(algorithm) << 24 |
         static_cast<std::uint64_t>(on_device) << 31 | static_cast<std::uint64_t>(root + 1) << 32;
}

Call Call::unpack(std::uint64_t packed, std::uint64_t count) {
  Call call;
  call.op = static_cast<Op>(packed & 0xff);
  call.reduction = static_cast<ReduceOp>(packed >> 8 & 0xff);
  call.dtype = static_cast<DType>(packed >> 16 & 0xff);
  call.algorithm = static_cast<Algorithm>(packed >> 24 & 0x7f);
  call.on_device = (packed >> 31 & 1) != 0;
  call.root = static_cast<int>(packed >> 32) - 1;
  call.count = count;
  return call;
}

const char* Call::name() const {
  const auto index = static_cast<std::size_t>(op);
  return index < kNames.size() ? kNames[index] : "corrupt call";
}

std::string Call::describe() const {
  std::string text = name();
  if (op == Op::none) return text;
  if (op == Op::barrier) return text + "()";
  text += '(';
  if (reduces(op)) text += std::string(name_of(reduction)) + ", ";
  text += std::string(name_of(dtype)) + ", " + std::to_string(count);
  if (op == Op::send) text += ", to rank " + std::to_string(root);
  if (op == Op::recv) text += ", from rank " + std::to_string(root);
  if (op != Op::send && op != Op::recv && root >= 0) text += ", root " + std::to_string(root);
  if (algorithm != Algorithm::automatic) text += ", " + std::string(name_of(algorithm));
  if (on_device) text += ", device memory";
  return text + ')';
}

}  // namespace ringsmith::comm
