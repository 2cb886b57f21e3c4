#include "runtime/comm/analysis/contributions.hpp"

#include <algorithm>

namespace ringsmith::comm {

Contributions::Contributions(const Schedule& schedule)
    : schedule_(schedule),
      values_(static_cast<std::size_t>(schedule.world) * schedule.chunks.size()),
      written_(values_.size(), -1) {
  for (int rank = 0; rank < schedule.world; ++rank)
    for (int chunk = 0; chunk < static_cast<int>(schedule.chunks.size()); ++chunk)
      values_[index(rank, chunk)] =
          schedule.separate_input ? Value{kUndefined} : initial_value(schedule, rank, chunk);
}

std::size_t Contributions::index(int rank, int chunk) const {
  return static_cast<std::size_t>(rank) * schedule_.chunks.size() + static_cast<std::size_t>(chunk);
}

const Value& Contributions::value(int rank, int chunk) const { return values_[index(rank, chunk)]; }

int Contributions::last_written(int rank, int chunk) const { return written_[index(rank, chunk)]; }

void Contributions::posted(int rank, int step) {
  const Step& sent =
      schedule_.steps[static_cast<std::size_t>(rank)][static_cast<std::size_t>(step)];
  std::vector<Value>& message = in_flight_[{rank, step}];
  for (int chunk = sent.send_chunk; chunk < sent.send_chunk + sent.chunks; ++chunk)
    message.push_back(schedule_.separate_input ? initial_value(schedule_, rank, chunk)
                                               : value(rank, chunk));
}

void Contributions::received(int rank, int step, int sender, int sender_step) {
  const Step& taken =
      schedule_.steps[static_cast<std::size_t>(rank)][static_cast<std::size_t>(step)];
  for (int i = 0; i < taken.chunks; ++i) {
    const int chunk = taken.recv_chunk + i;
    Value arrived =
        sender == rank
            ? initial_value(schedule_, rank, chunk)
            : std::move(in_flight_.at({sender, sender_step})[static_cast<std::size_t>(i)]);
    take(rank, step, chunk, std::move(arrived));
  }
  if (sender != rank) in_flight_.erase({sender, sender_step});
}

void Contributions::take(int rank, int step, int chunk, Value arrived) {
  Value& mine = values_[index(rank, chunk)];
  written_[index(rank, chunk)] = step;
  const Step& taken =
      schedule_.steps[static_cast<std::size_t>(rank)][static_cast<std::size_t>(step)];
  if (taken.action == Action::reduce) {
    arrived.insert(arrived.end(), mine.begin(), mine.end());
    std::sort(arrived.begin(), arrived.end());
  } else {
    Value lost;
    std::set_difference(mine.begin(), mine.end(), arrived.begin(), arrived.end(),
                        std::back_inserter(lost));
    lost.erase(std::remove(lost.begin(), lost.end(), kUndefined), lost.end());
    if (!lost.empty()) losses_.push_back({rank, step, chunk, lost});
  }
  mine = std::move(arrived);
}

Value initial_value(const Schedule& schedule, int rank, int chunk) {
  bool valid = true;
  switch (schedule.collective) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
    case Collective::reduce:
    case Collective::all_to_all:
      break;
    case Collective::all_gather:
    case Collective::gather:
      valid = chunk == rank;
      break;
    case Collective::broadcast:
    case Collective::scatter:
      valid = rank == schedule.root;
      break;
  }
  return {valid ? Origin{rank, chunk} : kUndefined};
}

Value promised_value(const Schedule& schedule, int rank, int chunk) {
  Value sum;
  for (int r = 0; r < schedule.world; ++r) sum.push_back({r, chunk});
  switch (schedule.collective) {
    case Collective::all_reduce:
      return sum;
    case Collective::reduce_scatter:
      return chunk == rank ? sum : Value{};
    case Collective::reduce:
      return rank == schedule.root ? sum : Value{};
    case Collective::all_gather:
      return {{chunk, chunk}};
    case Collective::broadcast:
      return {{schedule.root, chunk}};
    case Collective::gather:
      return rank == schedule.root ? Value{{chunk, chunk}} : Value{};
    case Collective::scatter:
      return chunk == rank ? Value{{schedule.root, chunk}} : Value{};
    case Collective::all_to_all:
      return {{chunk, rank}};
  }
  return {};
}

}  // namespace ringsmith::comm
