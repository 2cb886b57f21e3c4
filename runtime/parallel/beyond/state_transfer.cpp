#include "runtime/parallel/beyond/state_transfer.hpp"

#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

#include "runtime/base/error.hpp"

namespace ringsmith {

namespace {

using Json = nlohmann::json;

comm::Buffer as_buffer(std::vector<std::byte>& bytes) {
  return std::span<std::uint8_t>(reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size());
}
comm::ConstBuffer as_buffer(const std::vector<std::byte>& bytes) {
  return std::span<const std::uint8_t>(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                       bytes.size());
}

std::span<const std::byte> bytes_of_tensor(const Tensor& t) {
  return {data_of(t), size_in_bytes(t).value};
}

}  // namespace

std::vector<std::byte> pack(const Snapshot& snapshot) {
  Json form = {{"step", snapshot.step}, {"values", snapshot.values}, {"tensors", Json::array()}};
  std::vector<Tensor> all;
  for (const auto& [part, tensors] : snapshot.tensors)
    for (const auto& [name, tensor] : tensors) {
      all.push_back(tensor.cpu().contiguous());
      form["tensors"].push_back({part, name, static_cast<int>(tensor.dtype()), all.back().sizes()});
    }
  const std::string text = form.dump();
  const std::uint64_t length = text.size();
  std::vector<std::byte> out;
  std::size_t size = sizeof length + text.size();
  for (const Tensor& tensor : all) size += size_in_bytes(tensor).value;
  out.reserve(size);
  const auto append = [&out](std::span<const std::byte> bytes) {
    out.insert(out.end(), bytes.begin(), bytes.end());
  };
  append(std::as_bytes(std::span(&length, 1)));
  append(std::as_bytes(std::span(text)));
  for (const Tensor& tensor : all) append(bytes_of_tensor(tensor));
  return out;
}

Snapshot unpack(std::span<const std::byte> bytes) {
  const auto take = [&bytes](std::uint64_t n) {
    if (n > bytes.size()) throw CommError("the training state arrived in an unexpected format");
    const auto taken = bytes.first(n);
    bytes = bytes.subspan(n);
    return taken;
  };
  std::uint64_t length = 0;
  std::memcpy(&length, take(sizeof length).data(), sizeof length);
  const auto text = take(length);
  Snapshot out;
  try {
    const auto* const begin = reinterpret_cast<const char*>(text.data());
    const Json form = Json::parse(begin, begin + text.size());
    out.step = form.at("step");
    out.values = form.at("values").get<Metadata>();
    for (const Json& t : form.at("tensors")) {
      const Tensor tensor =
          Tensor::empty(t.at(3).get<Shape>(), {static_cast<DType>(t.at(2).get<int>())});
      const auto from = take(size_in_bytes(tensor).value);
      if (!from.empty()) std::memcpy(data_of(tensor), from.data(), from.size());
      out.tensors[t.at(0)][t.at(1)] = tensor;
    }
  } catch (const Json::exception& e) {
    throw CommError(std::string("the training state arrived in an unexpected format: ") + e.what());
  }
  (void)take(bytes.empty() ? 0 : bytes.size() + 1);
  return out;
}

void StateTransfers::send(std::shared_ptr<comm::ProcessGroup> pair,
                          std::shared_ptr<const std::vector<std::byte>> bytes) {
  auto work = [pair, bytes] {
    try {
      std::int64_t size = std::ssize(*bytes);
      pair->send(std::span<const std::int64_t>(&size, 1), 1);
      pair->send(as_buffer(*bytes), 1);
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the receiver votes no
    }
  };
  transfers_.push_back({pair, std::thread(std::move(work))});
}

void StateTransfers::receive(std::shared_ptr<comm::ProcessGroup> pair) {
  error_ = nullptr;
  transfers_.push_back({pair, std::thread([this, pair] {
                          try {
                            std::int64_t size = 0;
                            pair->recv(std::span<std::int64_t>(&size, 1), 0);
                            received_.resize(static_cast<std::size_t>(size));
                            pair->recv(as_buffer(received_), 0);
                          } catch (...) {
                            error_ = std::current_exception();
                          }
                        })});
}

Snapshot StateTransfers::take() {
  wait_all();
  if (error_) std::rethrow_exception(error_);
  return unpack(std::exchange(received_, {}));
}

void StateTransfers::abort() {
  for (const RunningTransfer& transfer : transfers_) try {
      transfer.pair->abort();
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the group has already failed
    }
  wait_all();
}

void StateTransfers::wait_all() {
  for (RunningTransfer& transfer : transfers_) transfer.thread.join();
  transfers_.clear();
}

}  // namespace ringsmith
