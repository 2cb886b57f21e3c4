#include "runtime/job/launch/nodes.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>
#include <iterator>
#include <numeric>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/base/atomic_file.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith::launch {

namespace {

using std::chrono::milliseconds;

constexpr const char* kVerdict = "job/verdict";
constexpr const char* kDone = "job/done";
constexpr milliseconds kAtOnce{0};
constexpr milliseconds kLongWait{3'600'000};  // one wait, which is repeated
constexpr milliseconds kToAnswer{3'000};    // for a node once the job is over, before it is cut off
constexpr milliseconds kTimeToRead{5'000};  // for the others to read this node's failures
constexpr milliseconds kSomeToRead{500};    // used instead if a node is cut off
constexpr milliseconds kNodePoll{20};

std::string done_key(int node) { return "job/done/" + std::to_string(node); }
std::string heard_key(int node) { return "job/heard/" + std::to_string(node); }
std::string failure_key(int node) { return "job/failure/" + std::to_string(node); }

std::string encode(const Verdict& v) {
  return static_cast<char>(v.kind) + std::to_string(v.node) + " " + v.text;
}

Verdict decode(const std::string& text) {
  const std::size_t blank = text.find(' ');
  if (text.empty() || blank == std::string::npos) throw CommError("the job's verdict is corrupt");
  return {static_cast<Verdict::Kind>(text[0]), std::atoi(text.c_str() + 1), text.substr(blank + 1)};
}

std::uint16_t read_port_file(const std::string& path, Deadline deadline, int hurry) {
  for (;;) {
    if (const std::string kind = odd_kind(path); !kind.empty())
      throw UsageError("--port-file '" + path + "' is " + kind + "; name a file");
    std::ifstream in(path);
    std::string text;
    if (in >> text) return comm::tcp::parse_port("the port in '" + path + "'", text);
    if (deadline.passed())
      throw TimeoutError("--port-file '" + path + "' has not appeared: node 0 never started");
    pollfd entry{hurry, POLLIN, 0};
    if (poll(&entry, 1, static_cast<int>(kNodePoll.count())) > 0)
      throw CommError("waiting for --port-file '" + path + "' was cancelled");
  }
}

}  // namespace

std::string listens_on(const LaunchOptions& o) {
  if (!o.bind.empty()) return o.bind;
  const std::string number = o.nodes > 1 ? comm::tcp::loopback_behind(o.master_address) : "";
  if (number.empty()) return o.master_address;
  return number.find(':') == std::string::npos ? "0.0.0.0" : "::";
}

comm::Secret job_secret(const LaunchOptions& o) {
  if (!o.secret_file.empty()) return comm::Secret::from_file(o.secret_file);
  if (o.no_secret) return comm::Secret::known_to_all();
  if (auto secret = comm::Secret::from_environment(); secret) return std::move(*secret);
  if (o.nodes == 1) return comm::Secret::random();
  try {
    bool made = false;
    comm::Secret secret = comm::Secret::of_user(made);
    if (made)
      fmt::print(stderr,
                 "ringrun: made a secret for your jobs, ~/{}: nodes with another home folder need "
                 "a copy of that file\n",
                 comm::kSecretOfUser);
    return secret;
  } catch (const Error& e) {
    throw UsageError(std::string("the launchers of several nodes share a secret: give "
                                 "--secret-file FILE, the same on all nodes (ringrun --make-secret "
                                 "FILE makes one), or set ") +
                     comm::kSecretVariable + "; " + e.what());
  }
}

Nodes::Nodes(const LaunchOptions& options, comm::Secret secret,
             const std::function<void(std::uint16_t)>& announce, int hurry)
    : options_(options),
      secret_(std::move(secret)),
      verdict_ready_(eventfd(0, EFD_CLOEXEC)),
      stop_watching_(eventfd(0, EFD_CLOEXEC)) {
  if (!verdict_ready_.valid() || !stop_watching_.valid()) throw_errno("eventfd", errno);
  const Deadline deadline = Deadline::in(options.join_timeout);
  store_place_ = {options.master_address, options.master_port, secret_.bytes(), ""};
  if (options.node == 0) {
    open_store();
    if (announce) announce(port());
  } else if (!options.port_file.empty()) {
    store_place_.port = read_port_file(options.port_file, deadline, hurry);
  }

  const comm::tcp::Address address{store_place_.address, store_place_.port};
  try {
    client_ = std::make_shared<comm::StoreClient>(address, secret_, deadline,
                                                  comm::StoreClientOptions{{}, door_.get(), hurry});
    // Connects before all nodes have arrived, so that node 0's death is noticed immediately.
    watching_ = std::make_unique<comm::StoreClient>(
        address, secret_, deadline, comm::StoreClientOptions{{}, door_.get(), hurry});
  } catch (const TimeoutError& e) {
    throw TimeoutError(std::string(e.what()) +
                       "; node 0, whose ringrun holds it, never started, or "
                       "is not at that address");
  }
  try {
    comm::Exchange exchange(client_, {.noun = "node",
                                      .size_name = "--nnodes",
                                      .prefix = "nodes",
                                      .index = options.node,
                                      .size = options.nodes,
                                      .timeout = deadline.left()});
    for (const std::string& record : exchange.all_gather(std::to_string(options.ranks_here)))
      ranks_on_.push_back(std::atoi(record.c_str()));
  } catch (const CommError&) {
    client_.reset();
    watching_.reset();
    if (server_) server_->drain(0, kTimeToRead);
    throw;
  }
  client_->hurry_at(-1);
  watching_->hurry_at(stop_watching_.get());
  // From here on, the death of this launcher ends the job.
  client_->leave_will({kVerdict, failure_key(options.node)},
                      encode({Verdict::Kind::lost, options.node,
                              "the ringrun of node " + std::to_string(options.node) + " (" +
                                  process_place() + ") has ended"}));
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  watcher_ = std::thread([this] {
    watch();
    eventfd_write(verdict_ready_.get(), 1);
    try {
      watching_->set(heard_key(options_.node), "");
    } catch (const CommError&) {  // node 0 is out of reach
    }
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Nodes::~Nodes() {
  if (watcher_.joinable()) {
    say_over("ringrun has stopped");
    eventfd_write(stop_watching_.get(), 1);  // because node 0 may not answer
    watcher_.join();
  }
  watching_.reset();
  client_.reset();
  if (server_) server_->drain(0, cut_off_ ? kSomeToRead : kTimeToRead);
  if (options_.node != 0 || options_.port_file.empty()) return;
  std::error_code error;  // removes the target if the file is a link; the link remains
  const auto file = std::filesystem::canonical(options_.port_file, error);
  if (!error) std::filesystem::remove(file, error);
}

void Nodes::open_store() {
  require(options_.port_file.empty() || access(options_.port_file.c_str(), F_OK) != 0,
          "--port-file '" + options_.port_file +
              "' exists: is another job using it? Remove it, or name another");
  comm::StoreServerOptions server{.bind = listens_on(options_),
                                  .chosen_by = "--bind",
                                  .port = options_.master_port,
                                  .max_pending_strangers = options_.max_pending_strangers};
  if (options_.per_step) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw_errno("pipe", errno);
    silent_ranks_ = Descriptor(ends[0]);
    to_silent_ranks_ = Descriptor(ends[1]);
    server.quorums = {options_.ranks_here, options_.least_ranks, options_.quorum_timeout};
    server.on_silent = [pipe = ends[1]](int rank) {
      // If the pipe is full, the rank is killed only when the round ends.
      if (write(pipe, &rank, sizeof rank) < 0) return;
    };
  }
  comm::store::Door door = comm::store::make_door();
  server_ = std::make_unique<comm::StoreServer>(secret_, server, std::move(door.inside));
  door_ = std::move(door.outside);
  store_place_.port = server_->port();
  store_place_.per_step = options_.per_step;
  store_place_.door = comm::store::describe_door(door_.get());
  if (!options_.port_file.empty())
    write_atomically(options_.port_file, fmt::format("{}\n", store_place_.port));
}

void Nodes::watch() {
  try {
    for (;;) {
      if (!watching_->wait({kVerdict}, kLongWait).empty()) continue;
      verdict_ = decode(watching_->get(kVerdict, kAtOnce));
      return;
    }
  } catch (const std::exception& e) {
    verdict_ = {Verdict::Kind::lost, 0, std::string("node 0 is unreachable: ") + e.what()};
  }
}

RankPlace Nodes::place_of(int local_rank) const {
  const auto here = ranks_on_.begin() + options_.node;
  return {.rank = std::accumulate(ranks_on_.begin(), here, local_rank),
          .world = std::accumulate(ranks_on_.begin(), ranks_on_.end(), 0),
          .local_rank = local_rank,
          .local_world = *here,
          .node = options_.node,
          .nodes = options_.nodes};
}

void Nodes::say_done() {
  try {
    client_->set(done_key(options_.node), "");
    if (client_->add(kDone, 1) == options_.nodes)
      client_->compare_and_swap(kVerdict, "", encode({Verdict::Kind::ok, options_.node, ""}));
  } catch (const CommError&) {  // the watcher reports the cause
  }
}

std::string Nodes::still_running() const {
  std::vector<std::string> keys;
  keys.reserve(static_cast<std::size_t>(options_.nodes));
  for (int n = 0; n < options_.nodes; ++n) keys.push_back(done_key(n));
  std::string out;
  try {
    for (const std::string& key : client_->wait(keys, kAtOnce))
      out += (out.empty() ? "node " : ", node ") + key.substr(key.rfind('/') + 1);
  } catch (const CommError&) {  // the watcher reports the cause
    out = "another node";
  }
  return out;
}

void Nodes::say_over(const std::string& why, Verdict::Kind kind) {
  client_->answer_within(kToAnswer);
  try {
    client_->compare_and_swap(kVerdict, "", encode({kind, options_.node, why}));
  } catch (const CommError&) {  // the loss of the store ends the job as well
  }
}

void Nodes::say_rank_ended(int rank, const std::string& how) {
  try {
    comm::declare_lost(*client_, comm::Membership{}, rank,
                       "rank " + std::to_string(rank) + " ended (" + how +
                           ") before all ranks had found each other");
  } catch (const CommError&) {
  }
}

std::vector<Failure> Nodes::share_failures(const std::vector<Failure>& here, milliseconds timeout) {
  const auto first = root_cause(here);
  std::vector<Failure> all = here;
  if (options_.nodes == 1) return all;
  client_->answer_within(kToAnswer);
  try {
    client_->set(failure_key(options_.node), first ? first->encode() : "");
    std::vector<int> nodes;
    for (int n = 0; n < options_.nodes; ++n)
      if (n != options_.node && !(verdict_.kind == Verdict::Kind::lost && n == verdict_.node))
        nodes.push_back(n);
    const auto keys = [&nodes](std::string (*key)(int)) {
      std::vector<std::string> out;
      std::ranges::transform(nodes, std::back_inserter(out), key);
      return out;
    };
    const auto deaf = client_->wait(keys(heard_key), kToAnswer);
    cut_off_ = !deaf.empty();
    std::erase_if(nodes,
                  [&](int n) { return std::ranges::find(deaf, heard_key(n)) != deaf.end(); });
    const auto others = keys(failure_key);
    const auto missing = client_->wait(others, timeout);
    for (const std::string& key : others) {
      if (std::ranges::find(missing, key) != missing.end()) continue;
      const std::string text = client_->get(key, kAtOnce);
      if (text.empty() || text[0] == static_cast<char>(Verdict::Kind::lost)) continue;
      all.push_back(Failure::decode(text));
    }
  } catch (const CommError&) {  // returns the failures known so far
  }
  return all;
}

}  // namespace ringsmith::launch
