#include "runtime/comm/cpu_process_group.hpp"

#include "runtime/base/tracer.hpp"
#include "runtime/comm/subgroup.hpp"

namespace ringsmith::comm {

CpuProcessGroup::CpuProcessGroup(std::shared_ptr<Bootstrap> bootstrap, const GroupOptions& options)
    : peers_(std::move(bootstrap), options),
      dispatcher_(peers_),
      options_(options),
      queue_([this](Transfer& transfer, bool foreground) { take_turn(transfer, foreground); },
             [this] { peers_.waiter().hold_core(true); }) {}

int CpuProcessGroup::rank() const { return peers_.rank(); }
int CpuProcessGroup::size() const { return peers_.size(); }

WorkPtr CpuProcessGroup::submit(const Transfer& transfer) {
  Transfer chosen = transfer;
  ask(chosen);
  return queue_.push(chosen);
}

void CpuProcessGroup::run(const Transfer& transfer) {
  Transfer chosen = transfer;
  ask(chosen);
  queue_.run(chosen);
}

void CpuProcessGroup::ask(Transfer& transfer) const {
  const Collective collective = transfer.call.collective;
  Algorithm option = options_.algorithm;
  if (collective == Collective::all_reduce)
    for (const auto& [up_to, of_size] : by_size_) {
      option = of_size;
      if (transfer.input.size() <= up_to) break;
    }
  transfer.call.algorithm = asked_of(collective, option);
}

void CpuProcessGroup::take_turn(Transfer& transfer, bool foreground) {
  transfer.sequence = transfer.call.is_message() ? messages_++ : collectives_++;
  const trace::Span span(transfer.call.name(), trace::Category::comm,
                         {"bytes", static_cast<std::int64_t>(transfer.call.bytes())});
  peers_.waiter().hold_core(foreground);
  execute(transfer);
}

void CpuProcessGroup::execute(Transfer& transfer) { dispatcher_.run(transfer); }

std::shared_ptr<ProcessGroup> CpuProcessGroup::new_group(const std::vector<int>& ranks) {
  return make_subgroup(*this, peers_.segments().bootstrap(), agreed_members(*this, ranks));
}
std::shared_ptr<ProcessGroup> CpuProcessGroup::split(int colour) {
  return make_subgroup(*this, peers_.segments().bootstrap(), members_of_colour(*this, colour));
}

// A running call notices the mark and reports the abort. If no call is running, this thread reports
// it.
void CpuProcessGroup::abort(Site site) {
  peers_.health().mark_aborted(site);
  queue_.take_turn([this] { peers_.health().report_aborted(); });
}

}  // namespace ringsmith::comm
