// The writing side of a rank's report (rank_report.hpp): begin() and end() around every call.
#pragma once

#include <array>
#include <time.h>
#include <vector>

#include "runtime/comm/failure/rank_report.hpp"
#include "runtime/comm/types/transfer.hpp"

namespace ringsmith::comm {

// Numbers the places in the program from which this rank has made calls, and stores their texts in
// its segment. A call carries only the small number; code that must name the place reads the text.
class Sites {
 public:
  // mine: the texts that other ranks read; zero-filled.
  explicit Sites(SiteText* mine) : texts_(mine), known_(1) {}

  struct Number {
    std::uint32_t value = 0;          // 0: unknown, or the table is full
    const SiteText* fresh = nullptr;  // its text, if just written
  };
  // Not thread-safe: called by one thread at a time.
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

// The writing side of the flight recorder.
class FlightRecorder {
 public:
  explicit FlightRecorder(Flight* flight) : flight_(flight) {}

  void begin(std::uint64_t call, std::uint64_t count, std::uint64_t sequence, std::uint64_t site) {
    FlightEntry& e = flight_->entries[++number_ % kFlightEntries];
    e.number.store(0, std::memory_order_relaxed);
    // Stored with release, so that a reader that sees one of them also sees the number 0.
    e.call.store(call, std::memory_order_release);
    e.count.store(count, std::memory_order_release);
    e.sequence.store(sequence, std::memory_order_release);
    e.site.store(site, std::memory_order_release);
    e.started.store(now(), std::memory_order_release);
    e.ended.store(0, std::memory_order_release);
    e.number.store(number_, std::memory_order_release);
  }
  void end() {
    flight_->entries[number_ % kFlightEntries].ended.store(now(), std::memory_order_relaxed);
  }
  [[nodiscard]] static std::uint64_t now() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(t.tv_nsec);
  }

 private:
  Flight* flight_;
  std::uint64_t number_ = 0;
};

// Not thread-safe: called by one thread at a time.
class OwnReport {
 public:
  OwnReport(RankReport& mine, Flight* flight)
      : board_(mine.board), sites_(mine.sites), flight_(flight) {}

  // Call when this rank enters a call. Returns the place's text if it has just been written, and so
  // must be sent to ranks that do not share this memory; otherwise nullptr.
  const SiteText* begin(const Call& call, std::uint64_t sequence, Site site) {
    const Sites::Number at = sites_.number_of(site);
    flight_.begin(call.pack(), call.count, sequence, at.value);
    board_.site.store(at.value, std::memory_order_release);  // publishes the text
    board_.call.store(call.pack(), std::memory_order_relaxed);
    board_.count.store(call.count, std::memory_order_relaxed);
    board_.sequence.store(sequence, std::memory_order_relaxed);
    board_.step.store(-1, std::memory_order_relaxed);
    board_.busy.store(1, std::memory_order_relaxed);
    return at.fresh;
  }
  void at_step(std::int64_t step) { board_.step.store(step, std::memory_order_relaxed); }
  void end() {
    board_.busy.store(0, std::memory_order_relaxed);
    flight_.end();
  }

 private:
  Board& board_;
  Sites sites_;
  FlightRecorder flight_;
};

}  // namespace ringsmith::comm
