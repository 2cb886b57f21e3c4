#include "labs/apps/launch/flight_log.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith::comm {

namespace {

// The file after the header.
struct Body {
  SiteText sites[kSites];
  Flight flight;
};

std::string read_file(const std::string& path, std::size_t most) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  require(file.valid(), "cannot read '" + path + "': " + std::strerror(errno));
  struct stat status {};
  require(fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode),
          "'" + path + "' is not a regular file");
  std::string bytes(most, '\0');
  std::size_t got = 0;
  for (ssize_t n = 1; n > 0 && got < most; got += static_cast<std::size_t>(n)) {
    n = read(file.get(), bytes.data() + got, most - got);
    require(n >= 0, "cannot read '" + path + "': " + std::strerror(errno));
  }
  bytes.resize(got);
  return bytes;
}

// True if every call can be described, no sequence exceeds its number, and all numbers fit into one
// ring. The last condition also bounds the reader's work.
bool are_plausible(const std::vector<FlightRecord>& records) {
  if (records.empty()) return true;
  if (records.back().number - records.front().number >= kFlightEntries) return false;
  try {
    for (const FlightRecord& r : records)
      if (r.describe().empty() || r.sequence > r.number) return false;
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

}  // namespace

std::string FlightRecord::describe() const {
  return call.describe() + (site.empty() ? "" : " at " + site);
}

FlightLog read_flight(const std::string& path) {
  constexpr std::size_t kWhole = sizeof(FlightHeader) + sizeof(Body::sites) + sizeof(Flight);
  const std::string bytes = read_file(path, kWhole + 1);
  FlightLog log;
  const bool starts = bytes.size() >= sizeof log.header;
  if (starts) std::memcpy(static_cast<void*>(&log.header), bytes.data(), sizeof log.header);
  require(starts && log.header.magic == FlightHeader::kMagic,
          "'" + path + "' is not a flight recorder: give the folder that a failed job has written");
  require(bytes.size() == kWhole && log.header.bytes == kWhole,
          "'" + path + "' has the wrong size or is of another version: " +
              (bytes.size() > kWhole ? "more than "
                                     : std::to_string(bytes.size()) + " bytes instead of ") +
              std::to_string(kWhole));
  require(log.header.rank >= 0 && log.header.rank < log.header.world,
          "'" + path + "' is corrupt: rank " + std::to_string(log.header.rank) + " of " +
              std::to_string(log.header.world));
  for (char* text : {log.header.host, log.header.group}) text[sizeof log.header.host - 1] = '\0';
  log.header.text[kFailureText - 1] = '\0';

  const auto body = std::make_unique<Body>();
  const char* const sites = bytes.data() + sizeof log.header;
  std::memcpy(static_cast<void*>(body->sites), sites, sizeof body->sites);
  std::memcpy(static_cast<void*>(&body->flight), sites + sizeof body->sites, sizeof body->flight);
  const auto date = [&](std::uint64_t monotonic) {
    return monotonic == 0 ? 0 : log.header.wall - (log.header.monotonic - monotonic);
  };
  for (const FlightEntry& e : body->flight.entries) {
    if (e.number.load() == 0) continue;
    log.records.push_back({e.number.load(), e.record.sequence.load(), e.record.unpacked(),
                           text_of(body->sites, e.record.site.load()), date(e.started.load()),
                           date(e.ended.load())});
  }
  std::ranges::sort(log.records, {}, &FlightRecord::number);
  require(are_plausible(log.records),
          "'" + path + "' is corrupt: a call is invalid, or the calls are not from one recorder");
  return log;
}

const FlightRecord* find_collective(const FlightLog& log, std::uint64_t sequence) {
  for (const FlightRecord& r : log.records)
    if (!r.is_message() && r.sequence == sequence) return &r;
  return nullptr;
}

std::optional<Divergence> first_divergence(const std::vector<FlightLog>& logs) {
  std::uint64_t from = 0, to = 0;  // sequences [from, to)
  for (const FlightLog& log : logs) {
    const auto first =
        std::ranges::find_if(log.records, [](const auto& r) { return !r.is_message(); });
    // A ring that has not wrapped around holds every call since the start.
    const bool full = !log.records.empty() && log.records.front().number > 1;
    if (full && first != log.records.end()) from = std::max(from, first->sequence);
    for (const FlightRecord& r : log.records)
      if (!r.is_message()) to = std::max(to, r.sequence + 1);
  }
  for (std::uint64_t sequence = from; sequence < to; ++sequence) {
    Divergence found;
    found.sequence = sequence;
    bool missing = false, unfinished = false;
    for (const FlightLog& log : logs) {
      const FlightRecord* const record = find_collective(log, sequence);
      missing = missing || record == nullptr;
      unfinished = unfinished || (record != nullptr && record->ended == 0);
      const auto call = record != nullptr ? std::optional(record->call) : std::nullopt;
      const auto party =
          std::ranges::find_if(found.parties, [&](const auto& p) { return p.call == call; });
      if (party == found.parties.end())
        found.parties.push_back({call, {&log}});
      else
        party->ranks.push_back(&log);
    }
    std::ranges::stable_sort(found.parties, std::greater(),
                             [](const auto& party) { return party.ranks.size(); });
    const std::size_t calls = found.parties.size() - (missing ? 1 : 0);
    found.kind = calls > 1 ? Divergence::Kind::different
                 : missing ? Divergence::Kind::missing
                           : Divergence::Kind::unfinished;
    if (calls > 1 || missing || unfinished) return found;
  }
  return std::nullopt;
}

}  // namespace ringsmith::comm
