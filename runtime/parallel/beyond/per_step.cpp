#include "runtime/parallel/beyond/per_step.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fmt/format.h>
#include <regex>
#include <sstream>

#include "runtime/autograd/engine.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/base/process.hpp"
#include "runtime/job/bootstrap.hpp"
#include "runtime/job/exchange.hpp"
#include "runtime/job/place.hpp"
#include "runtime/job/store/door.hpp"
#include "runtime/parallel/agreement.hpp"

namespace ringsmith {

namespace {

using comm::store::QuorumAnswer;
using comm::store::Vote;
using std::chrono::milliseconds;

constexpr int kMostFailures = 3;  // consecutive failures without a lost rank
constexpr milliseconds kAnswer{
    3'600'000};  // the coordinator has its own deadlines, and a step may be long
constexpr const char* kSettings = "per_step/settings";  // written by the first rank to arrive
constexpr const char* kBegin = "per_step/begin";        // likewise, for the initial state
constexpr milliseconds kAtOnce{0};
constexpr const char* kModel = "model";
constexpr const char* kOptimizer = "optimizer";
constexpr const char* kScaler = "scaler";    // if losses are scaled
constexpr const char* kSkipped = "skipped";  // number of skipped steps, among the values

// In an error text of the quorum's group, replaces positions in the quorum with the job's rank
// numbers. If the text names a smaller group, its numbers are positions within that group.
std::string in_job_numbers(std::string text, std::vector<int> ranks) {
  static const std::regex part(R"(in the group of ranks (\d+(?:, \d+)*))");
  static const std::regex one(R"(\b(rank|peer) (\d{1,6})\b)");
  if (std::smatch found; std::regex_search(text, found, part)) {
    std::vector<int> members;
    std::istringstream in(found.str(1));
    for (std::string number; std::getline(in, number, ',');)
      if (const auto place = static_cast<std::size_t>(std::stoi(number)); place < ranks.size())
        members.push_back(ranks[place]);
    text = found.prefix().str() + "in the group of " + comm::list_ranks(members) +
           found.suffix().str();
    ranks = members;
  }
  std::string out;
  auto rest = text.cbegin();
  for (std::sregex_iterator at(text.begin(), text.end(), one), end; at != end; ++at) {
    const auto place = static_cast<std::size_t>(std::stoi(at->str(2)));
    out.append(rest, (*at)[2].first)
        .append(place < ranks.size() ? std::to_string(ranks[place]) : at->str(2));
    rest = (*at)[2].second;
  }
  return out.append(rest, text.cend());
}

class QuorumBootstrap : public comm::Bootstrap {
 public:
  QuorumBootstrap(const std::shared_ptr<comm::Store>& store, const QuorumAnswer& quorum, int place,
                  milliseconds timeout)
      : size_(static_cast<int>(quorum.ranks.size())),
        place_(place),
        scope_("in quorum " + std::to_string(quorum.id) + " of " + comm::list_ranks(quorum.ranks)),
        exchange_(store, {.size_name = "the quorum",
                          .prefix = comm::store::kQuorumKeys + std::to_string(quorum.id),
                          .index = place,
                          .size = size_,
                          .timeout = checked_timeout("GroupOptions::timeout", timeout)}) {}
  [[nodiscard]] int rank() const override { return place_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override {
    return exchange_.all_gather(record);
  }
  [[nodiscard]] std::optional<comm::LostMember> lost_rank() override {
    return exchange_.lost_member();
  }
  [[nodiscard]] std::string scope() const override { return scope_; }

 private:
  int size_, place_;
  std::string scope_;
  comm::Exchange exchange_;
};

}  // namespace

std::shared_ptr<comm::StoreClient> connect_to_coordinator(milliseconds timeout) {
  static const bool crypto = comm::store::start_crypto();
  require(crypto, "libcrypto cannot be initialised");
  require(std::getenv(comm::store::kPerStepVariable) != nullptr,
          "--per-step: the ranks have no coordinator; start them with 'ringrun --per-step ...'");
  const comm::JobPlace place =
      comm::find_place(comm::BootstrapKind::env, comm::process_environment());
  const auto secret = comm::Secret::from_environment();
  require(secret.has_value(), std::string("--per-step: ") + comm::kSecretVariable + " is missing");
  return std::make_shared<comm::StoreClient>(
      place.store, *secret, Deadline::in(checked_timeout("the coordinator's timeout", timeout)),
      comm::StoreClientOptions{.door = comm::store::find_door(place.door.c_str())});
}

PerStepTraining::PerStepTraining(Module& model, Optimizer& optimizer,
                                 std::shared_ptr<comm::StoreClient> store, int rank,
                                 PerStepOptions options)
    : model_(model),
      optimizer_(optimizer),
      options_(std::move(options)),
      store_(std::move(store)),
      rank_(rank),
      scaler_(options_.scaler != nullptr ? *options_.scaler : unscaled_) {
  require(
      !options_.ddp.static_graph && options_.ddp.ignored.empty(),
      "PerStepOptions::ddp: static_graph and ignored do not work with ranks that join and leave; "
      "leave them out");
  comm::Settings settings = options_.group.settings;
  const comm::Settings model_settings = settings_of(model_);
  settings.insert(settings.end(), model_settings.begin(), model_settings.end());
  compare(kSettings, settings);
  ask(Vote::none, false);
  if (!quorum_.over) begin();
}

PerStepTraining::~PerStepTraining() { leave(true); }

std::optional<Turn> PerStepTraining::try_gradients(const Gradients& gradients) {
  const bool joined = joins();
  const Turn turn{step(), joined ? -1 : place_, contributors()};
  std::vector<Tensor> buffers;
  for (const Tensor& buffer : model_.buffers()) buffers.push_back(buffer.clone());
  Snapshot state;
  const auto body = [&] {
    start_transfers();
    optimizer_.zero_grad();
    double loss = 0;
    if (joined)
      add_zeros();
    else
      loss = gradients(*ddp_, turn);
    correct_averages();
    if (ddp_->group().device().is_cuda()) synchronize(ddp_->group().device());
    exchange_losses(loss);
    if (joined) state = transfers_.take();
  };
  if (!attempt(body, false)) {
    // Restores the running statistics, which the failed step's forward may have updated.
    const std::vector<Tensor> now = model_.buffers();
    for (std::size_t b = 0; b < now.size(); ++b) now[b].copy_(buffers[b]);
    return std::nullopt;
  }
  if (joined) load(state);
  loss_ = new_loss_;
  stop_asked_ = new_stop_asked_;
  return turn;
}

void PerStepTraining::update_done(bool made) {
  updates_ += made ? 1 : 0;
  order_ = ddp_->ready_order();
  at(PerStepMoment::counted);
}

void PerStepTraining::finish(const std::function<void(comm::ProcessGroup&)>& body) {
  const auto with_state = [&] {
    start_transfers();
    if (joins()) load(transfers_.take());
    ddp_->synchronise_buffers();
    body(*group_);
  };
  while (!attempt(with_state, true)) {
  }
  leave(false);
}

// Runs a collective body once. Returns true if the coordinator counts the step.
bool PerStepTraining::attempt(const std::function<void()>& body, bool last) {
  const std::vector<int> ranks = quorum_.ranks;
  Vote vote = Vote::yes;
  failure_.clear();
  try {
    meet();
    if (stop_asked_ && !last) return false;  // the other ranks were finishing when this one arrived
    body();
    at(PerStepMoment::voting);
  } catch (const CommError& e) {
    vote = Vote::no;
    failure_ = in_job_numbers(e.what(), ranks);
    leave(true);
  }
  ask(vote, last);
  if (quorum_.counts) {
    transfers_.wait_all();
    failures_in_a_row_ = 0;
    return true;
  }
  if (failure_.empty()) failure_ = "another rank failed";
  leave(true);
  failures_in_a_row_ = ranks == quorum_.ranks ? failures_in_a_row_ + 1 : 0;
  if (failures_in_a_row_ == kMostFailures)
    throw Error(
        fmt::format("step {} has failed {} times though no rank was lost; the last time: {}",
                    step(), kMostFailures, failure_));
  return false;
}

// Compares `mine` with the first rank's text through the store. Runs before this rank is in a
// group, so that a rejected rank does not disturb the other ranks.
void PerStepTraining::compare(const char* key, const comm::Settings& mine) const {
  const std::string text = comm::join_records({std::to_string(rank_), comm::to_text(mine)});
  const auto first = comm::split_records(store_->compare_and_swap(key, "", text));
  int other = std::stoi(first.at(0));
  // In this case an earlier process of this rank wrote the text. The message names another rank,
  // because every rank that was accepted since then has the same text.
  if (other == rank_) other = rank_ == 0 ? 1 : 0;
  comm::require_equal({{other, comm::parse_settings(first.at(1))}, {rank_, mine}});
}

void PerStepTraining::begin() {
  if (quorum_.step > 0) {  // the first members have published their step
    const auto records = comm::split_records(store_->get(kBegin, kAtOnce));
    first_ = std::stoll(comm::parse_settings(records.at(1)).at(1).second);
    return;
  }
  PerStepOptions::Begin begin;
  if (options_.begin) begin = options_.begin(is_first());
  compare(kBegin, {{"the checkpoint to continue from", begin.from.empty() ? "none" : begin.from},
                   {"the number of steps done", std::to_string(begin.step)}});
  first_ = begin.step;
  updates_ = begin.updates;
  order_ = std::move(begin.ready_order);
}

void PerStepTraining::ask(Vote vote, bool last) {
  try {
    quorum_ = store_->ask_quorum({rank_, process_place(), vote, last}, kAnswer);
  } catch (const TimeoutError&) {
    throw;  // keeps the coordinator's message
  } catch (const CommError& e) {
    throw CommError(std::string(e.what()) +
                    ". Or this rank was silent for longer than ringrun's "
                    "--quorum-timeout, and the others continue without it");
  }
  const auto mine = std::ranges::find(quorum_.ranks, rank_);
  place_ = static_cast<int>(mine - quorum_.ranks.begin());
}

void PerStepTraining::meet() {
  if (group_ && met_ == quorum_.id) return;
  leave(false);
  optimizer_.zero_grad();  // gradients are stored in the last group's memory
  met_ = quorum_.id;
  at(PerStepMoment::meeting);
  group_ = comm::init_process_group(
      std::make_shared<QuorumBootstrap>(store_, quorum_, place_, options_.group.timeout),
      options_.group);
  DdpOptions ddp = options_.ddp;
  ddp.init_sync = quorum_.step == 0;  // after step 0, ranks have equal state or receive it
  ddp_ = std::make_unique<DistributedDataParallel>(model_, group_, ddp);
  // The group's rank 0 sends the order and the stop flag, which a new rank does not know.
  constexpr std::int32_t kNotKnown = -1;  // before the first update
  std::vector<std::int32_t> known(order_.begin(), order_.end());
  known.resize(trained_parameters().size(), kNotKnown);
  known.push_back(stop_asked_ ? 1 : 0);
  group_->broadcast(std::span<std::int32_t>(known), 0);
  stop_asked_ = known.back() != 0;
  known.pop_back();
  if (!ddp.find_unused_parameters && std::ranges::count(known, kNotKnown) == 0)
    ddp_->rebuild_in({known.begin(), known.end()});
}

std::vector<Tensor> PerStepTraining::trained_parameters() const {
  std::vector<Tensor> out;
  for (const Tensor& p : model_.parameters())
    if (p.requires_grad()) out.push_back(p);
  return out;
}

void PerStepTraining::start_transfers() {
  std::shared_ptr<const std::vector<std::byte>> bytes;
  for (int j = 0; j < quorum_.joining; ++j) {
    const int from = j % contributors(), to = contributors() + j;
    auto pair = group_->new_group({from, to});
    if (place_ == from) {
      if (!bytes) bytes = std::make_shared<std::vector<std::byte>>(pack(state()));
      transfers_.send(std::move(pair), bytes);
      at(PerStepMoment::sending);
    } else if (place_ == to) {
      transfers_.receive(std::move(pair));
      at(PerStepMoment::receiving);
    }
  }
}

Snapshot PerStepTraining::state() const {
  Snapshot out{step(),
               {{kModel, model_.state_dict()}, {kOptimizer, optimizer_.state_dict()}},
               options_.save ? options_.save() : Metadata{}};
  if (StateDict scaler = scaler_.state_dict(); !scaler.empty())
    out.tensors[kScaler] = std::move(scaler);
  out.values[kSkipped] = std::to_string(step() - updates_);
  return out;
}

void PerStepTraining::load(const Snapshot& state) {
  model_.load_state_dict(state.tensors.at(kModel));
  optimizer_.load_state_dict(state.tensors.at(kOptimizer));
  if (const auto scaler = state.tensors.find(kScaler); scaler != state.tensors.end())
    scaler_.load_state_dict(scaler->second);
  updates_ = state.step - std::stoll(state.values.at(kSkipped));
  if (options_.load) options_.load(state.values);
}

void PerStepTraining::add_zeros() {
  const std::vector<Tensor> parameters = ddp_->forward([&] { return trained_parameters(); });
  std::vector<Tensor> zeros;
  for (const Tensor& p : parameters) zeros.push_back(zeros_like(p));
  // The scaler unscales only after scale(), so a zero is scaled in place of a loss.
  (void)scaler_.scale(scalar(0));
  backward(parameters, zeros);
}

// DDP has divided the sums by the number of members. Ranks that join have contributed only zeros.
void PerStepTraining::correct_averages() const {
  if (quorum_.joining == 0 || options_.ddp.op != comm::ReduceOp::avg) return;
  const NoGradGuard no_grad;
  const double factor = static_cast<double>(members()) / contributors();
  for (const Tensor& p : trained_parameters())
    if (p.grad().defined()) p.grad().copy_(p.grad() * factor);
}

// Exchanges the losses, and whether a rank was asked to stop.
void PerStepTraining::exchange_losses(double loss) {
  const bool asked = options_.stop != nullptr && options_.stop->here();
  const std::array<double, 2> mine{loss, asked ? 1.0 : 0.0};
  std::vector<double> all(mine.size() * static_cast<std::size_t>(members()));
  group_->all_gather(std::span<const double>(mine), std::span<double>(all));
  new_loss_ = 0;
  new_stop_asked_ = false;
  for (std::size_t r = 0; r < static_cast<std::size_t>(members()); ++r) {
    if (r < static_cast<std::size_t>(contributors())) new_loss_ += all[2 * r];
    new_stop_asked_ = new_stop_asked_ || all[2 * r + 1] != 0;
  }
  new_loss_ /= contributors();
}

// failed: other ranks may still be in a collective, so the group is aborted first.
void PerStepTraining::leave(bool failed) {
  if (failed && group_) try {
      group_->abort();
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the group has already failed
    }
  transfers_.abort();
  ddp_.reset();
  group_.reset();
}

}  // namespace ringsmith
