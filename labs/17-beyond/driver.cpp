// Runs the student's hooks and join on the kit's fabric.
#include LAB17_HOOKS
#include LAB17_JOIN

#include <bit>
#include <cstdint>

#include "labs/17-beyond/on_ranks.hpp"

using namespace on_ranks;
using lab17::Bucket;

KIT_SCENARIO(top_k) {
  const std::vector<float> values = in.floats("values"), before = values;
  std::vector<std::int64_t> places, lengths;
  for (const std::int64_t k : in.integers("k")) {
    const std::vector<std::uint32_t> found = lab17::top_k(values, std::size_t(k));
    lengths.push_back(std::int64_t(found.size()));
    append(places, found);
  }
  out.put("places", places);
  out.put("lengths", lengths);
}

// Compresses a sequence of gradients, each with an object (0 or 1), a bucket and a size. Reports
// the values that each call sends, and the residual of its bucket.
KIT_SCENARIO(compress) {
  const std::vector<std::int64_t> objects = in.integers("objects"),
                                  indices = in.integers("indices"), sizes = in.integers("sizes"),
                                  k = in.integers("k");
  Tape<float> gradients(in.floats("gradients"));
  lab17::TopK hooks[2] = {lab17::TopK(std::size_t(k[0])), lab17::TopK(std::size_t(k[1]))};
  std::vector<std::int64_t> lengths, places, unknown, widths;
  std::vector<float> values, residuals;
  for (std::size_t call = 0; call < sizes.size(); ++call) {
    lab17::TopK& hook = hooks[objects[call]];
    const auto index = int(indices[call]);
    const lab17::Sparse sent = hook.compress(index, gradients.next(sizes[call]));
    lengths.push_back(std::int64_t(sent.places.size()));
    lengths.push_back(std::int64_t(sent.values.size()));
    append(places, sent.places);
    append(values, sent.values);
    const std::vector<float> waits = hook.residual(index);
    widths.push_back(std::int64_t(waits.size()));
    append(residuals, waits);
    unknown.push_back(std::int64_t(hook.residual(987654).size()));
  }
  out.put("lengths", lengths);
  out.put("places", places);
  out.put("values", values);
  out.put("widths", widths);
  out.put("residuals", residuals);
  out.put("unknown", unknown);
}

// Passes a sequence of buckets through a hook: "average", "bf16" or "top_k". objects: the hook
// object for each bucket, 0 or 1.
KIT_SCENARIO(hooks) {
  const std::string which = in.text("hook");
  const std::vector<std::int64_t> objects = in.integers("objects"),
                                  indices = in.integers("indices"), sizes = in.integers("sizes");
  run(in, out, [&](Group& group) {
    const int rank = group.rank();
    Tape<float> gradients(in.floats(of_rank("gradients", rank)));
    const std::vector<std::int64_t> k = in.integers(of_rank("k", rank));
    lab17::TopK top_k[2] = {lab17::TopK(std::size_t(k[0])), lab17::TopK(std::size_t(k[1]))};
    std::vector<float> averages;
    std::int64_t outside = 0;
    for (std::size_t call = 0; call < sizes.size(); ++call) {
      std::vector<float> memory{kGuard};
      append(memory, gradients.next(sizes[call]));
      memory.push_back(kGuard);
      const std::span<float> data = std::span(memory).subspan(1, std::size_t(sizes[call]));
      const Bucket bucket{int(indices[call]), data};
      if (which == "average") lab17::average_hook(group, bucket);
      if (which == "bf16") lab17::bf16_hook(group, bucket);
      if (which == "top_k") top_k[objects[call]](group, bucket);
      append(averages, data);
      outside += (memory.front() != kGuard) + (memory.back() != kGuard);
    }
    out.put(of_rank("averages", rank), averages);
    out.put(of_rank("outside", rank), outside);
  });
}

// Reduces one large bucket that is zero except for a few values, with TopK.
KIT_SCENARIO(far) {
  const std::vector<std::int64_t> places = in.integers("places");
  const std::vector<float> values = in.floats("values");
  run(in, out, [&](Group& group) {
    std::vector<float> data(std::size_t(in.integer("size")), 0.0F);
    for (std::size_t i = 0; i < places.size(); ++i)
      data[std::size_t(places[i])] = values[i] * float(group.rank() + 1);
    lab17::TopK hook(std::size_t(in.integer("k")));
    hook(group, {0, data});
    std::vector<std::int64_t> there;
    std::vector<float> found;
    for (std::size_t i = 0; i < data.size(); ++i)
      if (data[i] != 0) there.push_back(std::int64_t(i)), found.push_back(data[i]);
    out.put(of_rank("there", group.rank()), there);
    out.put(of_rank("found", group.rank()), found);
  });
}

namespace {

lab17::JoinOptions join_options(const kit::Request& in) {
  return {in.integer("by_world", 1) != 0, in.integer("strict", 0) != 0};
}

// The gradient of element i for batch b on a rank is offset + slope * parameter. The last number
// of the model's state is not a parameter but a running statistic of the rank's batches.
class ToyModel {
 public:
  ToyModel(const kit::Request& in, int rank)
      : offset_(in.floats(of_rank("offset", rank))),
        slope_(float(in.number("slope"))),
        lr_(float(in.number("lr"))),
        state_(in.floats(of_rank("state", rank))),
        gradient_(state_.size() - 1, kGuard),
        left_(gradient_) {
    std::size_t at = 0;
    int index = 0;
    for (const std::int64_t size : in.integers("buckets")) {
      buckets_.push_back({index++, std::span(gradient_).subspan(at, std::size_t(size))});
      at += std::size_t(size);
    }
  }
  void backward(int batch) {
    if (open_) deeds_ += "!";  // the previous backward had no step
    open_ = true;
    deeds_ += "b" + std::to_string(batch) + " ";
    const std::size_t first = std::size_t(batch) * gradient_.size();
    if (batch < 0 || first + gradient_.size() > offset_.size())
      throw kit::Misuse{"backward was given batch " + std::to_string(batch) +
                        ", which was not requested"};
    for (std::size_t i = 0; i < gradient_.size(); ++i)
      gradient_[i] = offset_[first + i] + slope_ * state_[i];
    state_.back() = 0.5F * state_.back() + offset_[first];
  }
  [[nodiscard]] const std::vector<Bucket>& buckets() const { return buckets_; }
  void step() {
    if (!open_) deeds_ += "!";
    open_ = false;
    deeds_ += "s ";
    for (std::size_t i = 0; i < gradient_.size(); ++i) state_[i] -= lr_ * gradient_[i];
    left_ = gradient_;
  }
  // Returns how many gradients have changed since the last step.
  [[nodiscard]] std::int64_t touched() const {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < left_.size(); ++i)
      count += std::bit_cast<std::uint32_t>(gradient_[i]) != std::bit_cast<std::uint32_t>(left_[i]);
    return count;
  }
  [[nodiscard]] std::span<float> state() { return state_; }
  [[nodiscard]] const std::string& deeds() const { return deeds_; }

 private:
  std::vector<float> offset_;
  float slope_, lr_;
  std::vector<float> state_, gradient_, left_;
  std::vector<Bucket> buckets_;
  std::string deeds_;
  bool open_ = false;
};

}  // namespace

// have.R: one number for each call of next() on rank R: 1 if the rank has data, else 0. Rank R also
// calls next() again after it has returned false, and after it has thrown.
KIT_SCENARIO(exchange) {
  run(in, out, [&](Group& group) {
    lab17::Join join(group, join_options(in));
    std::vector<std::int64_t> rows{-1, join.divisor(), join.authority()};
    std::string thrown;
    for (const std::int64_t have : in.integers(of_rank("have", group.rank()))) {
      std::int64_t any = -1;
      try {
        any = join.next(have != 0);
      } catch (const lab17::InputsExhausted& e) {
        thrown += (thrown.empty() ? "" : "; ") + std::string(e.what());
      }
      append(rows, std::vector<std::int64_t>{any, join.divisor(), join.authority()});
    }
    out.put(of_rank("rows", group.rank()), rows);
    out.put(of_rank("thrown", group.rank()), thrown);
  });
}

// Runs `rounds` training runs with the same model. batches.R.N: the batches of rank R in round N.
KIT_SCENARIO(join) {
  run(in, out, [&](Group& group) {
    const int rank = group.rank();
    ToyModel model(in, rank);
    std::vector<float> states;
    std::vector<std::int64_t> steps, touched;
    std::string thrown;
    for (std::int64_t round = 0; round < in.integer("rounds"); ++round) {
      std::vector<int> batches;
      append(batches, in.integers(of_rank("batches", rank) + "." + std::to_string(round)));
      try {
        steps.push_back(lab17::train_joined(model, group, batches, join_options(in)));
      } catch (const lab17::InputsExhausted& e) {
        steps.push_back(-1);
        thrown += e.what();
      }
      thrown += "\n";
      touched.push_back(model.touched());
      append(states, model.state());
    }
    out.put(of_rank("states", rank), states);
    out.put(of_rank("steps", rank), steps);
    out.put(of_rank("touched", rank), touched);
    out.put(of_rank("thrown", rank), thrown);
    out.put(of_rank("deeds", rank), model.deeds());
  });
}
