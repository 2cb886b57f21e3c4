#include "labs/nccl/group.hpp"

#include <algorithm>
#include <optional>
#include <thread>

namespace ringsmith::nccl {

namespace {

struct Making {
  Device device;
  std::function<void()> run;
};

struct Group {
  int depth = 0;
  int part = 0;  // number of inner groups that have ended
  std::vector<Making> makings;
  std::vector<Operation> operations;
  std::optional<Refusal> refused;
};
thread_local Group group;

template <class Body>
void attempt(std::optional<Refusal>& refused, Body body) {
  try {
    body();
  } catch (...) {
    const Refusal now = current_refusal();
    if (!refused) refused = now;
  }
}

void run_making(const Making& making) {
  const DeviceGuard guard(making.device);
  making.run();
}

void run_together(const std::vector<Making>& makings, std::optional<Refusal>& refused) {
  std::vector<std::optional<Refusal>> of(makings.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < makings.size(); ++i)
    attempt(of[i], [&] {  // the thread may fail to start
      threads.emplace_back([&, i] { attempt(of[i], [&] { run_making(makings[i]); }); });
    });
  threads.clear();  // joins them
  for (const auto& each : of)
    if (each && !refused) refused = each;
}

void run_in_order(const std::vector<Operation>& operations, std::optional<Refusal>& refused) {
  std::vector<Communicator*> communicators;
  for (const Operation& o : operations)
    if (std::find(communicators.begin(), communicators.end(), o.communicator) ==
        communicators.end())
      communicators.push_back(o.communicator);
  for (Communicator* const communicator : communicators)
    attempt(refused, [&] {
      std::vector<MessageCall> messages;
      for (const Operation& o : operations)
        if (const auto* m = std::get_if<MessageCall>(&o.call);
            m != nullptr && o.communicator == communicator)
          messages.push_back(*m);
      if (!messages.empty()) communicator->start(messages);
      for (const Operation& o : operations)
        if (const auto* c = std::get_if<CollectiveCall>(&o.call);
            c != nullptr && o.communicator == communicator)
          communicator->start(*c, o.stream);
    });
}

}  // namespace

void submit(const Operation& operation) {
  if (group.depth > 0) {
    group.operations.push_back(operation);
    if (auto* m = std::get_if<MessageCall>(&group.operations.back().call)) m->part = group.part;
    return;
  }
  std::optional<Refusal> refused;
  run_in_order({operation}, refused);
  if (refused) throw *refused;
}

void submit(Device device, std::function<void()> making) {
  if (group.depth > 0) return group.makings.push_back({device, std::move(making)});
  run_making({device, std::move(making)});
}

void group_start() { ++group.depth; }

void group_end() {
  if (group.depth == 0)
    throw Refusal(ncclInvalidUsage, "there was no ncclGroupStart on this thread");
  ++group.part;
  if (--group.depth > 0) return;
  const Group ended = std::exchange(group, {});
  std::optional<Refusal> refused = ended.refused;
  run_together(ended.makings, refused);
  if (!ended.refused) run_in_order(ended.operations, refused);
  if (refused) throw *refused;
}

void group_drop() {
  if (group.depth == 0)
    throw Refusal(ncclInvalidUsage, "there was no ncclGroupStart on this thread");
  if (--group.depth == 0) group = {};
}

void note_in_group(const Refusal& refusal) {
  if (group.depth > 0 && !group.refused) group.refused = refusal;
}

}  // namespace ringsmith::nccl
