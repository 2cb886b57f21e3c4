#include "runtime/parallel/ddp.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "kernels/mode.hpp"
#include "runtime/parallel/agreement.hpp"
#include "runtime/parallel/broadcast_coalesced.hpp"

namespace ringsmith {

namespace {

Bytes mebibytes(double mib, const char* what) {
  if (!std::isfinite(mib) || mib <= 0)
    throw UsageError(fmt::format("{} must be a positive number of MiB, got {}", what, mib));
  return Bytes(static_cast<std::size_t>(std::ceil(mib * (1 << 20))));
}

std::string describe_options(const DdpOptions& o) {
  return fmt::format(
      "options bucket_cap_mb={} first_bucket_mb={} find_unused_parameters={} static_graph={} "
      "broadcast_buffers={} op={} algorithm={}",
      o.bucket_cap_mb, o.first_bucket_mb, o.find_unused_parameters, o.static_graph,
      o.broadcast_buffers, static_cast<int>(o.op),
      o.algorithm ? static_cast<int>(*o.algorithm) : -1);
}

// Counts all cores of the machine, because ranks bound to some cores leave the others free.
bool has_core_to_spare(const comm::ProcessGroup& group) {
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return static_cast<long>(group.ranks_on_machine()) * kernels::threads() < cores;
}

void require_once(const char* what, const NamedTensors& tensors) {
  for (auto later = tensors.begin(); later != tensors.end(); ++later)
    for (auto first = tensors.begin(); first != later; ++first)
      require(!first->second.is_same(later->second) && first->first != later->first,
              fmt::format("DistributedDataParallel: {}s '{}' and '{}' have the same {}; give each "
                          "tensor once, under its own name",
                          what, first->first, later->first,
                          first->first == later->first ? "name" : "tensor"));
}

// Returns the name of the first tensor that is not in `others`, or null.
const std::string* first_beyond(const NamedTensors& tensors, const NamedTensors& others) {
  const auto same = [](const auto& a, const auto& b) { return a.second.is_same(b.second); };
  const auto differs = std::ranges::mismatch(tensors, others, same).in1;
  for (auto each = differs; each != tensors.end(); ++each)
    if (std::ranges::none_of(others, [&](const auto& other) { return same(*each, other); }))
      return &each->first;
  return nullptr;
}

}  // namespace

Overlap parse_overlap(std::string_view name) {
  if (name == "auto") return Overlap::automatic;
  if (name == "on") return Overlap::on;
  if (name == "off") return Overlap::off;
  if (name == "alternate") return Overlap::alternate;
  throw UsageError(fmt::format("overlap '{}' is unknown; choose auto, on, off or alternate", name));
}

// A group on a GPU needs no core, because its streams run concurrently with backward.
bool overlaps(Overlap choice, const comm::ProcessGroup& group) {
  return choice == Overlap::on || choice == Overlap::alternate ||
         (choice == Overlap::automatic && (group.device().is_cuda() || has_core_to_spare(group)));
}

DistributedDataParallel::DistributedDataParallel(Module& module,
                                                 std::shared_ptr<comm::ProcessGroup> group,
                                                 const DdpOptions& options)
    : DistributedDataParallel(module.named_parameters(), module.named_buffers(), std::move(group),
                              options) {
  module_ = &module;
}

DistributedDataParallel::DistributedDataParallel(const NamedTensors& parameters,
                                                 const NamedTensors& buffers,
                                                 std::shared_ptr<comm::ProcessGroup> group,
                                                 const DdpOptions& options)
    : group_(std::move(group)),
      options_(options),
      parameters_(parameters),
      named_buffers_(buffers) {
  require_once("parameter", parameters);
  require_once("buffer", buffers);
  const BucketCaps caps{mebibytes(options.first_bucket_mb, "first_bucket_mb"),
                        mebibytes(options.bucket_cap_mb, "bucket_cap_mb")};
  std::vector<std::string> model, unknown = options.ignored;
  std::vector<Tensor> trained;
  const auto ignored = [&](const std::string& name) {
    if (std::ranges::find(options.ignored, name) == options.ignored.end()) return false;
    std::erase(unknown, name);
    model.push_back("ignored '" + name + "'");
    return true;
  };
  for (const auto& [name, tensor] : parameters) {
    if (ignored(name)) continue;
    model.push_back(
        describe_tensor(tensor.requires_grad() ? "parameter" : "frozen parameter", name, tensor));
    state_.push_back(tensor);
    if (!tensor.requires_grad()) continue;
    names_.push_back(name);
    trained.push_back(tensor);
  }
  for (const auto& [name, tensor] : buffers) {
    if (ignored(name)) continue;
    model.push_back(describe_tensor("buffer", name, tensor));
    state_.push_back(tensor);
    buffers_.push_back(tensor);
  }
  for (const std::string& name : unknown) model.push_back("unknown, but ignored '" + name + "'");
  model.push_back(describe_options(options));
  if (options.init_sync) verify_same_model(*group_, model);
  require(unknown.empty(), fmt::format("DdpOptions::ignored: the model has no parameter and no "
                                       "buffer of the name '{}'; give names as named_parameters() "
                                       "and named_buffers() do",
                                       fmt::join(unknown, "', '")));
  if (options.algorithm) group_->set_algorithm(*options.algorithm);
  if (options.init_sync) broadcast_coalesced(*group_, state_, 0);
  reducer_ = std::make_unique<Reducer>(
      names_, trained, group_,
      ReducerOptions{caps, options.find_unused_parameters, options.static_graph,
                     overlaps(options.overlap, *group_), options.overlap == Overlap::alternate,
                     options.op});
}

Tensor DistributedDataParallel::forward(const Tensor& x) {
  if (module_ == nullptr)
    throw UsageError("DistributedDataParallel was constructed without a module: use forward(body)");
  return forward([&] { return module_->forward(x); });
}

void DistributedDataParallel::require_unchanged() const {
  const auto refuse = [](const char* what, const std::string& name, const char* change) {
    throw UsageError(
        fmt::format("{} '{}' was {} after DistributedDataParallel was constructed: "
                    "construct it again, on every rank, after such a change",
                    what, name, change));
  };
  const std::vector<Tensor>& trained = reducer_->parameters();
  auto next = trained.begin();
  for (const auto& [name, tensor] : parameters_) {
    const bool was = next != trained.end() && next->is_same(tensor);
    if (was) ++next;
    if (was != tensor.requires_grad() &&
        std::ranges::find(options_.ignored, name) == options_.ignored.end())
      refuse("parameter", name, was ? "frozen" : "unfrozen");
  }
  if (module_ == nullptr) return;
  const auto check = [&](const char* what, const NamedTensors& then, const NamedTensors& now) {
    if (const std::string* added = first_beyond(now, then))
      refuse(what, *added, "added or replaced");
    if (const std::string* gone = first_beyond(then, now)) refuse(what, *gone, "removed");
  };
  check("parameter", parameters_, module_->named_parameters());
  check("buffer", named_buffers_, module_->named_buffers());
}

void DistributedDataParallel::synchronise_buffers() {
  broadcast_coalesced(*group_, buffers_, join_ ? join_->authority() : 0);
}

void DistributedDataParallel::begin_forward() {
  if (!grad_enabled()) return;
  require_unchanged();
  if (join_) {
    require(!reducer_->awaits_backward(),
            "join(): forward() called again before backward(); inside join() they must alternate");
    join_->announce(reducer_->synchronising());
    reducer_->set_divisor(join_->divisor());
  }
  reducer_->begin_forward();
  if (reducer_->synchronising() && options_.broadcast_buffers) synchronise_buffers();
}

// Joins the other ranks' forward and backward passes until no rank has inputs. After that, joins
// the broadcast of the final state.
void DistributedDataParallel::shadow_others() {
  require(
      !reducer_->awaits_backward(),
      "join(): it ends with a forward() whose backward() did not run; run it, or evaluate under "
      "NoGradGuard");
  while (join_->shadow()) {
    if (!join_->reduces()) continue;
    reducer_->set_divisor(join_->divisor());
    reducer_->shadow_forward();
    if (options_.broadcast_buffers) synchronise_buffers();
    reducer_->shadow_backward();
  }
  broadcast_coalesced(*group_, state_, join_->authority());
}

void DistributedDataParallel::end_forward(const std::vector<Tensor>& outputs) {
  if (grad_enabled()) reducer_->end_forward(outputs);
}

}  // namespace ringsmith
