// flight_reader: shows each rank's last operations before a job failed, and where the ranks
// diverged.
#include <algorithm>
#include <filesystem>
#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <map>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"
#include "labs/apps/common/text.hpp"
#include "labs/apps/launch/flight_log.hpp"
#include "runtime/base/table.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;

namespace {

using Logs = std::vector<FlightLog>;

constexpr const char* kFooter = R"(
A job that fails leaves one file per rank: in the run's folder, or in the folder
of the program's --flight-dir (or RINGSMITH_FLIGHT_DIR). Each file holds the
rank's last 1,024 operations; if a rank is killed, a surviving rank on its host
writes its file. Times have the resolution of the kernel's tick, 1 to 10 ms.

Exit codes: 0 the ranks that left a file did the same, 1 they differ, 6 no file
could be read, or some could not and the other ranks did the same.)";

std::string clock_time(std::uint64_t ns) {
  if (ns == 0) return "-";
  const auto seconds = static_cast<std::time_t>(ns / 1'000'000'000);
  return fmt::format("{:%H:%M:%S}.{:03}", fmt::localtime(seconds), ns / 1'000'000 % 1000);
}

std::string shown(const FlightRecord& record) { return printable(record.describe()); }

std::string name_ranks(const std::vector<const FlightLog*>& logs) {
  std::vector<int> ranks;
  for (const FlightLog* log : logs) ranks.push_back(log->header.rank);
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

// Reads all recorders in the folder. Reports unreadable recorders, and counts them in left_out.
std::map<std::string, Logs> read_folder(const std::string& folder, int& left_out) {
  std::map<std::string, Logs> groups;
  require(std::filesystem::is_directory(folder), "'" + folder + "' is not a folder");
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().rfind("flight-", 0) == 0) try {
        FlightLog log = read_flight(entry.path());
        groups[log.header.group].push_back(std::move(log));
      } catch (const UsageError& e) {
        ++left_out;
        fmt::print(stderr, "flight_reader: left out: {}\n", printable(e.what()));
      }
  require(!groups.empty(), "no flight recorder in '" + folder +
                               (left_out > 0 ? "' that can be read" : "'") +
                               ": they are written when a job fails (--flight-dir of the program)");
  for (auto& [name, logs] : groups)
    std::ranges::sort(logs, {}, [](const FlightLog& log) { return log.header.rank; });
  return groups;
}

void print_ranks(const std::string& group, const Logs& logs) {
  const FlightHeader& any = logs.front().header;
  fmt::print("group '{}': {} of {} ranks left a recorder\n\n", printable(group), logs.size(),
             any.world);
  constexpr auto kLeft = Table::Align::left;
  Table table({{"rank"}, {"pid"}, {"host", kLeft}, {"calls"}, {"was in", kLeft}, {"since", kLeft}});
  for (const FlightLog& log : logs) {
    const FlightHeader& h = log.header;
    const bool none = log.records.empty();
    const bool inside = !none && log.records.back().ended == 0;
    std::string where =
        none ? "nothing yet" : (inside ? "" : "nothing, after ") + shown(log.records.back());
    if (inside && h.step >= 0) where += fmt::format(", step {}", h.step);
    if (inside && h.waits_for >= 0) where += fmt::format(", waiting for rank {}", h.waits_for);
    table.row({std::to_string(h.rank), std::to_string(h.pid), printable(h.host),
               std::to_string(none ? 0 : log.records.back().number), where,
               none     ? "-"
               : inside ? clock_time(log.records.back().started)
                        : clock_time(log.records.back().ended)});
  }
  fmt::print("{}", table.str());
  for (const FlightLog& log : logs)
    if (log.header.written_by != log.header.rank)
      fmt::print("rank {} was killed: its recorder was written by rank {}\n", log.header.rank,
                 log.header.written_by);
}

// Prints the failure report of the lowest rank that has one.
void print_error(const Logs& logs) {
  for (const FlightLog& log : logs)
    if (log.header.kind != FailureKind::none) {
      fmt::print("\nerror  {} [rank {}]\n", printable(log.header.text), log.header.rank);
      return;
    }
}

std::string_view ranks_of(const Logs& logs) {
  return std::ssize(logs) == logs.front().header.world ? "all ranks" : "the ranks above";
}

void print_calls_before(const Logs& logs, std::uint64_t sequence, int last) {
  const auto begin = sequence - std::min(sequence, static_cast<std::uint64_t>(last));
  for (std::uint64_t s = begin; s < sequence; ++s)
    if (const FlightRecord* const r = find_collective(logs.front(), s); r != nullptr)
      fmt::print("  #{:<6} {}  {}: {}\n", s, clock_time(r->started), ranks_of(logs), shown(*r));
}

bool print_divergence(const Logs& logs, int last) {
  const auto found = first_divergence(logs);
  if (!found) {
    fmt::print("\nall collectives recorded on {} are the same, and completed\n", ranks_of(logs));
    return false;
  }
  const char* const what = found->kind == Divergence::Kind::different ? "the ranks differ"
                           : found->kind == Divergence::Kind::missing ? "not all ranks called it"
                                                                      : "not all ranks returned";
  fmt::print("\nfirst divergence: collective #{}: {}\n", found->sequence, what);
  print_calls_before(logs, found->sequence, last);
  for (const auto& party : found->parties)
    if (!party.call)
      fmt::print("  #{:<6} {:<12}  {}: did not reach it\n", found->sequence, "",
                 name_ranks(party.ranks));
    else
      for (const FlightLog* log : party.ranks) {
        const FlightRecord& r = *find_collective(*log, found->sequence);
        fmt::print("  #{:<6} {}  rank {}: {}{}\n", found->sequence, clock_time(r.started),
                   log->header.rank, shown(r), r.ended == 0 ? "" : " (completed)");
      }
  return true;
}

void print_history(const Logs& logs, int last) {
  for (const FlightLog& log : logs) {
    fmt::print("\nrank {}\n", log.header.rank);
    const auto skip = log.records.size() - std::min(log.records.size(), std::size_t(last));
    for (std::size_t i = skip; i < log.records.size(); ++i) {
      const FlightRecord& r = log.records[i];
      fmt::print("  {:>7}  {}  {:<12}  {} #{}\n", r.number, clock_time(r.started),
                 r.ended == 0 ? "not ended" : clock_time(r.ended), shown(r), r.sequence);
    }
  }
}

int run(int argc, char** argv) {
  std::string folder;
  int last = 3;
  bool all = false;
  apps::CommandLine app("Shows what the ranks of a failed job did last, and where they differ.",
                        "flight_reader");
  app.add_option("folder", folder, "folder with the files of the failed job")
      ->required()
      ->default_text("");
  app.add_option("-n,--last", last, "calls to show before the divergence, or of each rank")
      ->check(apps::whole(0, 1024));
  app.add_flag("--all", all, "also show the last calls of every rank");
  app.footer(kFooter);
  if (!app.parse(argc, argv)) return 0;
  bool parted = false;
  int left_out = 0;
  for (const auto& [name, logs] : read_folder(folder, left_out)) {
    print_ranks(name, logs);
    print_error(logs);
    parted = print_divergence(logs, last) || parted;
    if (all) print_history(logs, last);
  }
  if (parted) return 1;
  return left_out > 0 ? static_cast<int>(ExitCode::usage) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program("flight_reader", [&] { return run(argc, argv); });
}
