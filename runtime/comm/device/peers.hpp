// The device memory and the events of all ranks, as one of them can use them.
//
//     Location of rank r  ->  r == me                 my region + offset
//                             r in my process         its pointer + offset, and peer access
//                             r in another process    cudaIpcOpenMemHandle, once a region, + offset
//
// Handles are opened when they are first needed and stay open until close(). What is another's must
// be let go of before its owner frees it: close, tell, wait for the others to have told, free.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "runtime/comm/device/catalogue.hpp"
#include "runtime/comm/device/whereabouts.hpp"
#include "runtime/comm/transport/host.hpp"

struct CUevent_st;

namespace ringsmith::comm::cuda_ipc {

class Peers {
 public:
  // Collective. Makes this rank's events; everything else in its catalogue is for others to fill,
  // before they call ready().
  Peers(Bootstrap& bootstrap, Host& host, Device device, const std::vector<Whereabouts>& ranks);
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  ~Peers();  // closes; destroys this rank's events

  // Collective: afterwards every rank may read every catalogue.
  void meet(Bootstrap& bootstrap);

  [[nodiscard]] const std::shared_ptr<CommMemory>& catalogue_memory() const { return memory_; }
  [[nodiscard]] Catalogue& mine() const { return *catalogues_[at(host_.rank())]; }
  [[nodiscard]] const Catalogue& of(int rank) const { return *catalogues_[at(rank)]; }

  // For the thread that runs the group's operations.
  [[nodiscard]] std::byte* address(int rank, Location location);
  [[nodiscard]] CUevent_st* event(int rank, std::uint32_t index);

  // From any thread, in a group that has failed: releases the streams that wait for an event of
  // another process, which may never come, by recording all these events anew. (The emulator's
  // streams go on then; what a driver does with the event of a dead process is not documented.)
  void release_waiters() noexcept;
  // From any thread: a rank whose stream has yet to come to the last collective that it has called,
  // or -1.
  [[nodiscard]] int find_laggard() noexcept;

  // Lets go of everything that belongs to others, and tells them. The device must be idle.
  void close() noexcept;
  // Waits until all peers have closed or are gone; false if one has not when the time is over.
  [[nodiscard]] bool wait_for_others_to_close(std::chrono::milliseconds most) const;
  // Instead, when the group ends badly and the device may never become idle: everything is left to
  // the end of the process.
  void abandon() noexcept;

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] bool in_my_process(int rank) const;
  void enable_peer_access() const;

  Host& host_;
  Device device_;
  std::vector<Whereabouts> ranks_;
  std::shared_ptr<CommMemory> memory_;  // of this rank's catalogue
  std::vector<Catalogue*> catalogues_;
  std::vector<CUevent_st*> own_events_;
  std::map<std::pair<int, std::uint32_t>, void*> opened_regions_;  // by (rank, region): block bases
  std::mutex mutex_;  // of opened_events_, which the monitor's thread releases
  std::map<std::pair<int, std::uint32_t>, CUevent_st*> opened_events_;
  bool closed_ = false;
};

}  // namespace ringsmith::comm::cuda_ipc
