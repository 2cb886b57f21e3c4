// doctor's examination of a launched job.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <unistd.h>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/processor.hpp"
#include "labs/apps/common/text.hpp"
#include "labs/apps/doctor/findings.hpp"
#include "runtime/base/process.hpp"
#include "runtime/base/table.hpp"

namespace ringsmith::apps {

using comm::ProcessGroup;

namespace {

using Verdict = Finding::Verdict;
constexpr std::size_t kText = 64;

// One rank's report. The ranks gather these reports as raw bytes.
struct Place {
  char host[kText] = {}, machine[kText] = {}, network[kText] = {};
  std::int32_t pid = 0, cores = 0, rdma = 0;
};

void put(char* out, const std::string& text) { text.copy(out, kText - 1); }

Place own_place() {
  namespace fs = std::filesystem;
  Place place;
  put(place.host, host_name());
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  put(place.machine, boot);
  std::error_code none;
  put(place.network, fs::read_symlink("/proc/self/ns/net", none).string());
  place.pid = getpid();
  place.cores = allowed_cores();
  place.rdma = has_rdma();
  return place;
}

template <class T>
std::vector<T> gather_all(ProcessGroup& group, const T& mine) {
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  group.all_gather(
      comm::ConstBuffer(reinterpret_cast<const std::byte*>(&mine), Elements(sizeof(T)), DType::u8),
      comm::Buffer(reinterpret_cast<std::byte*>(all.data()), Elements(sizeof(T) * all.size()),
                   DType::u8));
  return all;
}

struct Link {
  double alpha = 0;      // seconds per message, one way
  double bandwidth = 0;  // bytes per second
};

double round_trip(ProcessGroup& group, int peer, std::vector<std::uint8_t>& data, bool first) {
  const auto begin = std::chrono::steady_clock::now();
  const std::span<std::uint8_t> all(data);
  if (first) {
    group.send(all, peer);
    group.recv(all, peer);
  } else {
    group.recv(all, peer);
    group.send(all, peer);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Returns half of the median round-trip time.
double one_way(ProcessGroup& group, int peer, bool first, std::size_t bytes, int times) {
  std::vector<std::uint8_t> data(bytes);
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) seconds.push_back(round_trip(group, peer, data, first));
  return median(seconds) / 2;
}

Link measure(ProcessGroup& group, int peer, bool first) {
  constexpr std::size_t kSmall = 8, kLarge = std::size_t{4} << 20;  // bytes
  Link link;
  link.alpha = one_way(group, peer, first, kSmall, 101);
  const double large = one_way(group, peer, first, kLarge, 9);
  link.bandwidth = static_cast<double>(kLarge) / std::max(large - link.alpha, 1e-9);
  return link;
}

std::string transport_of(const std::vector<std::string>& lines, int peer) {
  const std::string head = "rank " + std::to_string(peer) + ": ";
  for (const std::string& line : lines)
    if (line.rfind(head, 0) == 0) return line.substr(head.size(), line.find(',') - head.size());
  return "shm";
}

// Lists the transports that are faster than `used`, best first, each with the reason why it is not
// used.
std::string refused(const Place& a, const Place& b, const std::string& used, bool forced) {
  const bool machine = std::strcmp(a.machine, b.machine) == 0;
  const bool network = machine && std::strcmp(a.network, b.network) == 0;
  const std::string reach = !machine ? "two hosts" : !network ? "two network namespaces" : "";
  std::string text = "cuda_ipc: " + (reach.empty() ? std::string("data is in host memory") : reach);
  if (used == "shm") return text;
  text += "; shm: " + (reach.empty() ? "--transport " + used : reach);
  if (used == "rdma") return text;
  const char* const lacking = a.rdma == 0 ? a.host : b.rdma == 0 ? b.host : nullptr;
  text += "; rdma: ";
  if (lacking != nullptr) return text + "no device on " + lacking;
  return text + (forced ? "--transport tcp" : "not requested (--transport rdma)");
}

void judge_places(const std::vector<Place>& places, Findings& out) {
  std::map<std::string, std::pair<int, int>> machines;  // ranks; largest Place::cores
  for (const Place& p : places) {
    auto& [ranks, cores] = machines[std::string(p.machine) + " " + p.host];
    ++ranks;
    cores = std::max(cores, p.cores);
  }
  for (const auto& [name, counts] : machines) {
    const std::string host = name.substr(name.find(' ') + 1);
    const auto [ranks, cores] = counts;
    if (ranks <= cores)
      out.push_back({Verdict::ok, "cores", fmt::format("{}: {} for {} ranks", host, cores, ranks)});
    else
      out.push_back(
          {Verdict::warn, "cores",
           fmt::format(
               "{}: {} for {} ranks: ranks share cores, and each hand-off costs a context switch",
               host, cores, ranks),
           fmt::format("start {} ranks here, or use --bind-to none if mpirun bound them", cores)});
  }
}

struct Row {
  int a, b;
  std::string transport, why;
  Link link;
};

// A link much slower than others of its kind indicates a bad cable or port, or a noisy neighbour.
void judge_links(const std::vector<Row>& rows, Findings& out) {
  constexpr double kSlow = 3;  // times
  std::map<std::string, std::vector<double>> like;
  for (const Row& r : rows) like[r.transport].push_back(r.link.bandwidth);
  bool all_well = true;
  for (const Row& r : rows) {
    auto& all = like[r.transport];
    std::ranges::sort(all);
    const double median = all[all.size() / 2];
    if (r.link.bandwidth * kSlow > median) continue;
    all_well = false;
    out.push_back({Verdict::warn, "links",
                   fmt::format("{}-{} ({}) has {:.2f} GB/s; the median of its kind is {:.2f}", r.a,
                               r.b, r.transport, r.link.bandwidth / 1e9, median / 1e9),
                   "measure this link alone: all_reduce_perf on these two hosts, ethtool -S"});
  }
  if (all_well && !rows.empty())
    out.push_back(
        {Verdict::ok, "links",
         fmt::format("{} measured, none more than {} times slower than the median of its kind",
                     rows.size(), kSlow)});
}

// One line per pair, then the distinct reasons for not using a faster transport.
std::string table_of(const std::vector<Row>& rows, std::size_t width) {
  Table table({{"pair"}, {"transport", Table::Align::left}, {"alpha us"}, {"GB/s"}, {"why"}});
  Findings reasons;
  for (const Row& r : rows) {
    auto reason = std::ranges::find_if(reasons, [&](const Finding& f) { return f.fact == r.why; });
    if (reason == reasons.end())
      reason = reasons.insert(reasons.end(),
                              {Verdict::ok, fmt::format("({})", reasons.size() + 1), r.why});
    table.row({fmt::format("{}-{}", r.a, r.b), r.transport,
               fmt::format("{:.1f}", r.link.alpha * 1e6),
               fmt::format("{:.2f}", r.link.bandwidth / 1e9), reason->subject});
  }
  std::string out = table.str() + "\nrefused:\n";
  for (const Finding& f : reasons)
    out += wrapped(f.fact, 10, width, "      " + f.subject + " ") + "\n";
  return out;
}

}  // namespace

JobReport examine_job(ProcessGroup& group, std::size_t width) {
  const int rank = group.rank(), world = group.size();
  const std::vector<Place> places = gather_all(group, own_place());
  const std::vector<std::string> lines = group.describe_transport();
  const bool forced = group.options().transport == comm::Transport::tcp;
  struct Told {
    Link link;
    char transport[kText] = {}, why[256] = {};
  };
  std::vector<Row> all;
  int pairs = 0;
  for (int a = 0; a < world; ++a)
    for (int b = a + 1; b < world && pairs < kMostPairs; ++b, ++pairs) {
      group.barrier();
      Told told;
      if (rank == a || rank == b) {
        const int peer = rank == a ? b : a;
        const std::string used = transport_of(lines, peer);
        put(told.transport, used);
        refused(places[static_cast<std::size_t>(a)], places[static_cast<std::size_t>(b)], used,
                forced)
            .copy(told.why, sizeof told.why - 1);
        told.link = measure(group, peer, rank == a);
      }
      group.broadcast(
          comm::Buffer(reinterpret_cast<std::byte*>(&told), Elements(sizeof told), DType::u8), a);
      all.push_back({a, b, told.transport, told.why, told.link});
    }
  JobReport report;
  report.table = table_of(all, width);
  judge_places(places, report.findings);
  judge_links(all, report.findings);
  if (pairs < world * (world - 1) / 2)
    report.findings.push_back(
        {Verdict::note, "links",
         fmt::format("{} of {} pairs were measured", pairs, world * (world - 1) / 2),
         "start doctor on fewer ranks to see the others"});
  return report;
}

}  // namespace ringsmith::apps
