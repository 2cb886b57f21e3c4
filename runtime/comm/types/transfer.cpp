#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

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

}  // namespace ringsmith::comm
