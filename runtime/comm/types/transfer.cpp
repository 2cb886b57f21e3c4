#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

std::uint64_t Call::pack() const {
  return static_cast<std::uint64_t>(collective) | static_cast<std::uint64_t>(op) << 8 |
         static_cast<std::uint64_t>(dtype) << 16 | static_cast<std::uint64_t>(algorithm) << 24 |
         static_cast<std::uint64_t>(on_device) << 31 | static_cast<std::uint64_t>(root + 1) << 32;
}

Call Call::unpack(std::uint64_t packed, std::uint64_t count) {
  Call call;
  call.collective = static_cast<Collective>(packed & 0xff);
  call.op = static_cast<ReduceOp>(packed >> 8 & 0xff);
  call.dtype = static_cast<DType>(packed >> 16 & 0xff);
  call.algorithm = static_cast<Algorithm>(packed >> 24 & 0x7f);
  call.on_device = (packed >> 31 & 1) != 0;
  call.root = static_cast<int>(packed >> 32) - 1;
  call.count = count;
  return call;
}

std::string Call::describe() const {
  std::string text = name();
  if (collective == Collective::none) return text;
  if (collective == Collective::barrier) return text + "()";
  text += '(';
  if (contract_of(collective).reduces) text += std::string(name_of(op)) + ", ";
  text += std::string(name_of(dtype)) + ", " + std::to_string(count);
  if (collective == Collective::send) text += ", to rank " + std::to_string(root);
  if (collective == Collective::recv) text += ", from rank " + std::to_string(root);
  if (!is_message() && root >= 0) text += ", root " + std::to_string(root);
  if (algorithm != Algorithm::automatic) text += ", " + std::string(name_of(algorithm));
  if (on_device) text += ", device memory";
  return text + ')';
}

Arithmetic arithmetic_of(ReduceOp op, int world) {
  using kernels::Reduction;
  switch (op) {
    case ReduceOp::avg:
      return {Reduction::sum, true, 1.0 / world};
    case ReduceOp::prod:
      return {Reduction::prod};
    case ReduceOp::min:
      return {Reduction::min};
    case ReduceOp::max:
      return {Reduction::max};
    default:
      return {};
  }
}

}  // namespace ringsmith::comm
