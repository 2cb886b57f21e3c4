#include "labs/apps/schedule/recording.hpp"

#include <nlohmann/json.hpp>

namespace ringsmith::apps {

using comm::Schedule;
using comm::Simulation;
using comm::Step;
using comm::Value;
using comm::Violation;
using nlohmann::json;

namespace {

const Step& step_of(const Schedule& schedule, int rank, int step) {
  return schedule.steps.at(static_cast<std::size_t>(rank)).at(static_cast<std::size_t>(step));
}

class Recorder : public comm::Observer {
 public:
  Recorder(const Schedule& schedule, Recording& recording)
      : schedule_(schedule), recording_(recording), contributions_(schedule) {}

  void posted(int rank, int step) override {
    contributions_.posted(rank, step);
    recording_.happenings.push_back({Happening::Kind::posted, rank, step, rank, step, {}});
  }
  void received(int rank, int step, int sender, int sender_step) override {
    contributions_.received(rank, step, sender, sender_step);
    const Step& s = step_of(schedule_, rank, step);
    std::vector<Value> written;
    for (int c = 0; c < s.chunks; ++c)
      written.push_back(contributions_.value(rank, s.recv_chunk + c));
    recording_.happenings.push_back(
        {Happening::Kind::received, rank, step, sender, sender_step, std::move(written)});
  }

 private:
  const Schedule& schedule_;
  Recording& recording_;
  comm::Contributions contributions_;
};

// [[rank, chunk], ...] with one entry per addition; [] for memory that has not been written.
json values(const Value& value) {
  json out = json::array();
  for (const comm::Origin& origin : value)
    if (origin != comm::kUndefined) out.push_back({origin.rank, origin.chunk});
  return out;
}

template <class Get>
json by_rank_and_chunk(const Schedule& schedule, Get get) {
  json out = json::array();
  for (int rank = 0; rank < schedule.world; ++rank) {
    json row = json::array();
    for (int chunk = 0; chunk < static_cast<int>(schedule.chunks.size()); ++chunk)
      row.push_back(values(get(schedule, rank, chunk)));
    out.push_back(std::move(row));
  }
  return out;
}

json as_object(const Step& s) {
  return {{"send_peer", s.send_peer},
          {"send_chunk", s.send_chunk},
          {"recv_peer", s.recv_peer},
          {"recv_chunk", s.recv_chunk},
          {"reduces", s.action == comm::Action::reduce},
          {"chunks", s.chunks}};
}

json as_object(const Recording& recording) {
  json happenings = json::array(), blocked = json::array();
  for (const Happening& h : recording.happenings) {
    json one = {{"kind", h.kind == Happening::Kind::posted ? "posted" : "received"},
                {"rank", h.rank},
                {"step", h.step}};
    if (h.kind == Happening::Kind::received) {
      one["sender"] = h.sender;
      one["sender_step"] = h.sender_step;
      one["written"] = json::array();
      for (const Value& value : h.written) one["written"].push_back(values(value));
    }
    happenings.push_back(std::move(one));
  }
  for (const comm::Blocked& b : recording.blocked)
    blocked.push_back(
        {{"rank", b.rank}, {"step", b.step}, {"sending", b.sending}, {"peer", b.peer}});
  return {{"slots", recording.slots}, {"happenings", happenings}, {"blocked", blocked}};
}

json as_object(const Simulation& simulation) {
  json events = json::array();
  for (const comm::StepEvents& e : simulation.events)
    events.push_back({{"rank", e.rank},
                      {"step", e.step},
                      {"posted", e.posted},
                      {"began", e.began},
                      {"arrived", e.arrived},
                      {"finished", e.finished}});
  return {{"seconds", simulation.seconds},
          {"finished", simulation.finished},
          {"messages", simulation.messages},
          {"bytes", simulation.bytes},
          {"events", events}};
}

}  // namespace

std::size_t Recording::steps_done(const Schedule& schedule) const {
  std::size_t all = 0, open = 0;
  for (const auto& steps : schedule.steps) all += steps.size();
  for (const comm::Blocked& b : blocked)
    open +=
        schedule.steps[static_cast<std::size_t>(b.rank)].size() - static_cast<std::size_t>(b.step);
  return all - open;
}

Recording record_run(const Schedule& schedule, int slots) {
  Recording recording;
  recording.slots = slots;
  Recorder recorder(schedule, recording);
  recording.blocked = comm::interpret(schedule, {slots, false}, recorder);
  return recording;
}

std::string as_json(const Schedule& schedule, const Recording& recording,
                    const std::vector<Violation>& findings, const Simulation* simulation) {
  json chunks = json::array(), steps = json::array(), faults = json::array();
  for (const comm::Chunk& c : schedule.chunks)
    chunks.push_back({{"offset", c.offset}, {"count", c.count}});
  for (const auto& of_rank : schedule.steps) {
    json row = json::array();
    for (const Step& s : of_rank) row.push_back(as_object(s));
    steps.push_back(std::move(row));
  }
  for (const Violation& f : findings)
    faults.push_back({{"fault", comm::name_of(f.fault)},
                      {"rank", f.rank},
                      {"step", f.step},
                      {"text", f.describe()}});
  const json out = {{"algorithm", std::string(name_of(schedule.algorithm))},
                    {"collective", comm::name_of(schedule.collective)},
                    {"world", schedule.world},
                    {"count", schedule.count},
                    {"node_of", schedule.node_of},
                    {"chunks", chunks},
                    {"steps", steps},
                    {"start", by_rank_and_chunk(schedule,
                                                [](const Schedule& s, int rank, int chunk) {
                                                  return s.separate_input
                                                             ? Value{comm::kUndefined}
                                                             : comm::initial_value(s, rank, chunk);
                                                })},
                    {"promised", by_rank_and_chunk(schedule, comm::promised_value)},
                    {"run", as_object(recording)},
                    {"faults", faults},
                    {"simulation", simulation == nullptr ? json() : as_object(*simulation)}};
  return out.dump();
}

}  // namespace ringsmith::apps
