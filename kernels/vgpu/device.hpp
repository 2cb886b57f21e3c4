// The virtual GPUs of this process, with memory, streams and peers. They are never destroyed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "kernels/vgpu/api/runtime.hpp"
#include "kernels/vgpu/arena.hpp"

namespace vgpu {

class Queue;

// Waits that a real driver may impose, emulated if VGPU_DRIVER_WAITS is set. Calls that allocate or
// free wait for the device's running kernels, and so does the first launch of a kernel unless
// CUDA_MODULE_LOADING is EAGER. All launches and event queries wait for these calls.
class Driver {
 public:
  enum class Call { allocates, launches, asks };
  // Held by a thread for the duration of its call.
  class Turn {
   public:
    // kernel: the kernel to launch, if any.
    Turn(Driver& driver, Call call, const void* kernel = nullptr);
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    std::unique_lock<std::mutex> lock_;
  };
  void kernel_begins();
  void kernel_ends();

 private:
  std::mutex calls_;  // held by a Turn
  std::mutex mutex_;  // protects the members below
  std::condition_variable idle_;
  int running_ = 0;  // kernels
  std::set<const void*> loaded_;
};

// Every virtual device's, as its properties say.
inline constexpr int kMultiprocessors = 4, kMostBlockThreads = 1024, kMostResidentThreads = 2048;

// The blocks that run on a device. With VGPU_RESIDENT, a multiprocessor holds only that many; more
// blocks begin when others have ended.
class Residency {
 public:
  // Held by a running block.
  class Place {
   public:
    explicit Place(Residency& residency);
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

   private:
    Residency& residency_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable left_;
  int blocks_ = 0;
};

class Device {
 public:
  static int count();
  static bool exists(int index) { return index >= 0 && index < count(); }
  static Device& get(int index);
  static Device& current();
  static void set_current(int index);
  // Returns the device whose address range contains the address, or null.
  static Device* owner(const void* address);

  Device(int index, std::byte* base, std::size_t span);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] int index() const { return index_; }  // in this process
  [[nodiscard]] int number() const;                   // in the machine
  [[nodiscard]] int key() const { return key_; }      // rights.hpp
  Arena& memory() { return memory_; }
  [[nodiscard]] const Arena& memory() const { return memory_; }
  [[nodiscard]] cudaUUID_t uuid() const;

  // The protection keys of the memory that this device's kernels may access (its own, its peers').
  [[nodiscard]] std::uint32_t keys() const { return keys_; }
  // Enables or disables access to the peer's memory. Returns false if nothing changed.
  bool set_peer(const Device& peer, bool accessible);
  [[nodiscard]] bool has_peer(const Device& peer) const {
    return (peers_ >> peer.index_ & 1U) != 0;
  }

  Driver& driver() { return driver_; }
  Residency& residency() { return residency_; }

  void add(const std::shared_ptr<Queue>& stream);
  void remove(const std::shared_ptr<Queue>& stream);
  void synchronize();
  // The legacy default stream, created on first use. Before the first use, legacy_if_used() returns
  // null.
  Queue& legacy();
  [[nodiscard]] std::shared_ptr<Queue> legacy_if_used();
  // Returns the device's streams that synchronise with the legacy stream.
  [[nodiscard]] std::vector<std::shared_ptr<Queue>> blocking_streams();

 private:
  const int index_;
  const int key_;
  Arena memory_;
  Driver driver_;
  Residency residency_;
  std::atomic<std::uint32_t> keys_;
  std::atomic<std::uint64_t> peers_{0};
  std::mutex mutex_;
  std::set<std::shared_ptr<Queue>> streams_;
  std::shared_ptr<Queue> legacy_;
};

}  // namespace vgpu
