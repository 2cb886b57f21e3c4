// The state that a rank publishes about itself, in memory that all ranks of its host map; parts are
// mirrored to remote ranks. Error messages use it to name the ranks that wait for each other and
// the last call of a killed rank. OwnReport writes it.
//
// Each rank writes only its own report. Most fields are stored relaxed; a field "published last" is
// stored with release and publishes the others.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <time.h>
#include <vector>

#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

// Each polled counter is stored on its own two cache lines, because CPUs fetch lines in pairs.
constexpr std::size_t kLine = 128;  // bytes
constexpr std::uint64_t kNotShared = ~std::uint64_t{0};
constexpr std::size_t kFailureText = 1536;  // bytes

// One call of a rank. The rank writes it on its board when it enters the call. The flight recorder,
// the agreement barrier and the first slot of a message copy it from there.
struct CallRecord {
  std::atomic<std::uint64_t> call{0};  // Call::pack()
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> sequence{0};
  std::atomic<std::uint64_t> site{0};  // where the call was made: index of RankReport::sites

  void copy(const CallRecord& from, std::memory_order order) {
    call.store(from.call.load(std::memory_order_relaxed), order);
    count.store(from.count.load(std::memory_order_relaxed), order);
    sequence.store(from.sequence.load(std::memory_order_relaxed), order);
    site.store(from.site.load(std::memory_order_relaxed), order);
  }
  [[nodiscard]] Call unpacked() const { return Call::unpack(call.load(), count.load()); }
};

// An entry of the agreement barrier: the call that the rank is in. Two entries alternate, because a
// rank can be one round ahead of the others, but never two.
struct alignas(64) Answer {
  std::atomic<std::uint64_t> round{0};  // published last
  CallRecord record;
  std::atomic<std::uint64_t> input{0};    // bytes from the start of the segment; on a device:
  std::atomic<std::uint64_t> output{0};   // Location (device_memory.hpp); or kNotShared
  std::atomic<std::uint32_t> several{0};  // 1: the rank's process has several groups on devices
};

// Whether a rank has left its group: not yet, in good order, or because an exception unwound its
// stack.
constexpr std::uint32_t kStays = 0, kInOrder = 1, kThrownOut = 2;

// The rank's activity, for the error messages of other ranks.
struct alignas(kLine) Board {
  CallRecord record;  // of the current call, or of the last one
  std::atomic<std::int64_t> step{-1};
  std::atomic<std::int32_t> waits_for{-1};  // rank, or -1: not waiting
  std::atomic<std::uint32_t> busy{0};       // inside a call
  std::atomic<std::uint32_t> left{kStays};  // kStays, or how it left the group
  std::atomic<std::uint32_t> waited{0};     // how long it has waited, milliseconds
};

// Prefix of a failure's text in later calls.
inline constexpr const char* kBrokenBefore =
    "the group has been broken since an earlier call failed: ";

enum class FailureKind : std::uint32_t { none, mismatch, peer_lost, timeout, other, aborted };

// The rank's first failure, for ranks that would otherwise wait for it.
struct alignas(kLine) FailureReport {
  std::atomic<FailureKind> kind{FailureKind::none};  // published last
  std::atomic<std::int32_t> culprit{-1};
  std::atomic<char> text[kFailureText]{};
};

// A place in the program as text ("train.cpp:120"), because peers cannot follow this process's
// pointers. Index 0 means "unknown".
constexpr int kSites = 128;
constexpr std::size_t kSiteText = 64;  // bytes
struct SiteText {
  std::atomic<char> text[kSiteText]{};
};

// The call of another group in which the rank waits while it is not in a call of this group. Only
// ranks of the same host see it.
constexpr std::size_t kElsewhereText = 256;  // bytes
struct Elsewhere {
  std::atomic<char> text[kElsewhereText]{};  // "": nowhere
};

// The start of every rank's segment.
struct RankReport {
  Board board;
  FailureReport failure;
  SiteText sites[kSites];
  Elsewhere elsewhere;
};

inline void put_text(std::atomic<char>* to, std::size_t room, std::string_view text) {
  for (std::size_t i = 0; i < room; ++i)
    to[i].store(i < text.size() && i + 1 < room ? text[i] : '\0', std::memory_order_relaxed);
}
[[nodiscard]] inline std::string take_text(const std::atomic<char>* from, std::size_t room) {
  std::string text;
  for (std::size_t i = 0; i < room; ++i) {
    const char letter = from[i].load(std::memory_order_relaxed);
    if (letter == '\0') break;
    text += letter;
  }
  return text;
}

// Returns e.g. "train.cpp:120".
[[nodiscard]] inline std::string text_of(Site site) {
  if (site.file == nullptr) return {};
  const std::string_view path = site.file;
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1)) + ":" +
         std::to_string(site.line);
}
// Returns the text that a rank has written, or "". `number` may have any value.
[[nodiscard]] inline std::string text_of(const SiteText* sites, std::uint64_t number) {
  if (number == 0 || number >= kSites) return {};
  return take_text(sites[number].text, kSiteText);
}

// The flight recorder: the last operations of a rank.
//
//   number  sequence  call                          site          started      ended
//     41       40     all_reduce(sum, f32, 1024)    train.cpp:88  1203.120 s   1203.124 s
//     42       41     all_reduce(sum, f32, 1024)    train.cpp:88  1203.128 s   -
//
// The thread that runs the group's current call overwrites the oldest entry, without a lock. A
// reader must expect any state; an entry that is being written has number 0. Because the segment is
// shared, survivors on the host can read the recorder of a killed rank. The clock takes a few
// nanoseconds to read and has the resolution of the kernel's tick (1 to 10 ms).
struct alignas(64) FlightEntry {
  std::atomic<std::uint64_t> number{0};  // of the operation in this group, from 1; published last
  CallRecord record;
  std::atomic<std::uint64_t> started{0};  // nanoseconds of CLOCK_MONOTONIC
  std::atomic<std::uint64_t> ended{0};    // 0: it has not ended
};

constexpr std::uint64_t kFlightEntries = 1024;

struct Flight {
  FlightEntry entries[kFlightEntries];
};

// Numbers the places in the program from which this rank has made calls, and stores their texts in
// its segment. A call carries only the number.
class Sites {
 public:
  // mine: the texts that other ranks read; must be zero-filled.
  explicit Sites(SiteText* mine) : texts_(mine), known_(1) {}

  struct Number {
    std::uint32_t value = 0;          // 0: unknown, or the table is full
    const SiteText* fresh = nullptr;  // its text, if just written
  };
  Number number_of(Site site) {
    if (site.file == nullptr) return {};
    Known& recent = recent_[static_cast<std::size_t>(site.line) % kRecent];
    if (recent.site.file == site.file && recent.site.line == site.line) return {recent.number};
    const Number found = look_up(site);
    recent = {site, found.value};
    return found;
  }

 private:
  struct Known {
    Site site;
    std::uint32_t number = 0;
  };
  static constexpr std::size_t kRecent = 32;
  Number look_up(Site site) {
    for (const Known& k : known_)
      if (k.site.file == site.file && k.site.line == site.line) return {k.number};
    if (known_.size() == kSites) return {};
    const auto number = static_cast<std::uint32_t>(known_.size());
    known_.push_back({site, number});
    const std::string text = text_of(site);
    put_text(texts_[number].text, kSiteText, text);
    return {number, &texts_[number]};
  }

  SiteText* texts_;
  std::vector<Known> known_;  // by number
  std::array<Known, kRecent> recent_{};
};

// Writes a rank's report: begin() and end() around every call. Not thread-safe: called by one
// thread at a time.
class OwnReport {
 public:
  OwnReport(RankReport& mine, Flight* flight)
      : board_(mine.board), sites_(mine.sites), flight_(flight) {}

  // Must be called when this rank enters a call. Returns the text of the call's site if it is new
  // and must be sent to ranks that do not share this memory; otherwise nullptr.
  const SiteText* begin(const Call& call, std::uint64_t sequence, Site site) {
    const Sites::Number at = sites_.number_of(site);
    CallRecord& record = board_.record;
    record.site.store(at.value, std::memory_order_release);  // publishes the text
    record.call.store(call.pack(), std::memory_order_relaxed);
    record.count.store(call.count, std::memory_order_relaxed);
    record.sequence.store(sequence, std::memory_order_relaxed);
    begin_entry();
    board_.step.store(-1, std::memory_order_relaxed);
    board_.busy.store(1, std::memory_order_relaxed);
    return at.fresh;
  }
  void at_step(std::int64_t step) { board_.step.store(step, std::memory_order_relaxed); }
  void end() {
    board_.busy.store(0, std::memory_order_relaxed);
    entry().ended.store(now(), std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] FlightEntry& entry() { return flight_->entries[number_ % kFlightEntries]; }
  void begin_entry() {
    ++number_;
    FlightEntry& e = entry();
    e.number.store(0, std::memory_order_relaxed);
    // Stored with release, so that a reader that sees one of these values no longer sees the old
    // number.
    e.record.copy(board_.record, std::memory_order_release);
    e.started.store(now(), std::memory_order_release);
    e.ended.store(0, std::memory_order_release);
    e.number.store(number_, std::memory_order_release);
  }
  [[nodiscard]] static std::uint64_t now() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(t.tv_nsec);
  }

  Board& board_;
  Sites sites_;
  Flight* flight_;
  std::uint64_t number_ = 0;  // of the last operation
};

}  // namespace ringsmith::comm
