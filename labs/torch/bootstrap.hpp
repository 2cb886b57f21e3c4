// How the ranks of a PyTorch group find each other: through PyTorch's store (TCPStore, FileStore,
// ...), without a second rendezvous, port or secret.
//
//     rank r   set PREFIX/round/r = its record     then poll until all ranks' records are there
//
// StoreMeeting polls, because a wait with a time limit would leave a reply in flight in PyTorch
// 1.13's TCPStore, and the next request would receive that reply.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "runtime/comm/types/bootstrap.hpp"

namespace ringsmith::pytorch {

class StoreMeeting : public comm::Bootstrap {
 public:
  struct Place {
    std::string prefix;  // prefix of the keys
    int rank = 0, size = 1;
    std::chrono::milliseconds timeout{};  // of each exchange
    std::string scope;                    // for errors: "in the group of ranks 0, 2", or empty
    // For errors: the number to print for each rank, if it is not the rank itself.
    std::vector<int> names = {};
    std::string purpose = "to connect";  // for errors: why the ranks meet
  };
  // Returns the reason why a rank will never arrive, or "". Called while waiting for the rank.
  using Lost = std::function<std::string(int rank)>;

  StoreMeeting(c10::intrusive_ptr<c10d::Store> store, Place place, Lost lost = nullptr)
      : store_(std::move(store)), place_(std::move(place)), lost_(std::move(lost)) {}

  [[nodiscard]] int rank() const override { return place_.rank; }
  [[nodiscard]] int size() const override { return place_.size; }
  [[nodiscard]] std::string scope() const override { return place_.scope; }
  // Throws TimeoutError naming the ranks that did not arrive, or PeerLost for a rank that cannot
  // arrive any more.
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override;
  // True if the rank has begun the current exchange. Throws PeerLost if it never will.
  [[nodiscard]] bool has_arrived(int rank) const;

 private:
  [[nodiscard]] std::string key(int rank) const;
  void await(int rank, std::chrono::steady_clock::time_point until) const;
  [[noreturn]] void report_missing() const;
  [[nodiscard]] std::string name(int rank) const;

  c10::intrusive_ptr<c10d::Store> store_;
  Place place_;
  Lost lost_;
  int round_ = 0;
};

}  // namespace ringsmith::pytorch
