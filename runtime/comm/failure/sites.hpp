// The places in the program from which this rank has made calls, numbered, with their texts in its
// segment: a call carries a small number, and whoever has to name the call reads the text.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/comm/site.hpp"
#include "runtime/comm/transport/control.hpp"

namespace ringsmith::comm {

class Sites {
 public:
  // mine: the texts that others read; zero-filled.
  explicit Sites(SiteText* mine) : texts_(mine), known_(1) {}

  struct Number {
    std::uint32_t value = 0;  // 0: no place, or more than the table holds
    bool fresh = false;       // its text was written just now
  };
  // Of one thread at a time.
  Number number_of(Site site) {
    if (site.file == nullptr) return {};
    Known& recent = recent_[static_cast<std::size_t>(site.line) % kRecent];
    if (recent.site.file == site.file && recent.site.line == site.line)
      return {recent.number, false};
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
  Number look_up(Site site);

  SiteText* texts_;
  std::vector<Known> known_;  // by number
  std::array<Known, kRecent> recent_{};
};

// "train.cpp:120": the file without its folders.
[[nodiscard]] std::string text_of(Site site);
// What a rank has written, or nothing. Any number will do.
[[nodiscard]] std::string text_of(const SiteText* sites, std::uint64_t number);

}  // namespace ringsmith::comm
