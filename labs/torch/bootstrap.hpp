// How the ranks of a PyTorch group find each other: by the store that PyTorch has already opened
// for them (TCPStore, FileStore, ...), so that there is no second rendezvous, port or secret.
//
//     rank r   set PREFIX/round/r = its record     then look until all ranks' records are there
//
// Looking is polling: a wait with a time limit leaves PyTorch 1.13's TCPStore with an answer on its
// way that the next request would take for its own.
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
    std::string prefix;  // of the keys
    int rank = 0, size = 1;
    std::chrono::milliseconds timeout{};  // of each exchange
    std::string scope;                    // for errors: "in the group of ranks 0, 2", or empty
    std::vector<int> names = {};          // for errors: [rank], where they have other numbers
  };
  // Why a rank will never come, if that is known; else empty. For those who wait for it.
  using Lost = std::function<std::string(int rank)>;

  StoreMeeting(c10::intrusive_ptr<c10d::Store> store, Place place, Lost lost = nullptr)
      : store_(std::move(store)), place_(std::move(place)), lost_(std::move(lost)) {}

  [[nodiscard]] int rank() const override { return place_.rank; }
  [[nodiscard]] int size() const override { return place_.size; }
  [[nodiscard]] std::string scope() const override { return place_.scope; }
  // TimeoutError naming the ranks that did not come, PeerLost for one that cannot any more.
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override;

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
