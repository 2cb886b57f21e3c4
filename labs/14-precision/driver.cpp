// Runs the student's rounding, scaler and training steps.
#include LAB14_ROUNDING
#include LAB14_SCALER
#include LAB14_STEP
#include LAB14_CHOICE

#include "labs/kit/driver.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

using lab14::Format;

namespace {

std::string of_rank(const char* what, int rank) { return what + ("." + std::to_string(rank)); }
Format format_of(const kit::Request& in) {
  return in.integer("f16") != 0 ? Format::f16 : Format::bf16;
}
template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

// The toy model's own arithmetic. Lists the numbers of a format from 0 up, followed by the value
// that would come after the largest finite one. Rounds to the nearest entry, in double.
class Table {
 public:
  explicit Table(Format format) {
    const bool f16 = format == Format::f16;
    double step = f16 ? 0x1p-24 : 0x1p-133;
    const std::size_t before_it_doubles = f16 ? 1024 : 128, infinite = f16 ? 0x7C00 : 0x7F80;
    for (double value = 0; values_.size() <= infinite; value += step) {
      if (values_.size() % before_it_doubles == 0 && values_.size() > before_it_doubles) step *= 2;
      values_.push_back(value);
    }
  }
  [[nodiscard]] float value(std::uint16_t code) const {
    const std::size_t at = code & 0x7FFF;
    const double magnitude = at + 1 < values_.size()    ? values_[at]
                             : at + 1 == values_.size() ? std::numeric_limits<double>::infinity()
                                                        : std::numeric_limits<double>::quiet_NaN();
    return float((code & 0x8000) != 0 ? -magnitude : magnitude);
  }
  [[nodiscard]] std::uint16_t nearest(float x) const {
    const auto sign = std::uint16_t(std::signbit(x) ? 0x8000 : 0);
    const double magnitude = std::fabs(double(x));
    if (std::isnan(x)) return std::uint16_t(sign | 0x7FFF);
    if (magnitude >= values_.back()) return std::uint16_t(sign | (values_.size() - 1));
    const auto above = std::upper_bound(values_.begin(), values_.end(), magnitude);
    const auto at = std::size_t(above - values_.begin()) - 1;
    const double down = magnitude - values_[at], up = values_[at + 1] - magnitude;
    return std::uint16_t(sign | (at + (up < down || (up == down && at % 2 == 1))));
  }

 private:
  std::vector<double> values_;
};

struct BatchIsBroken {};  // not a std::exception: cleanup must not depend on the type

// The gradient of batch b on rank r for weight i is offset + slope * weight, times the factor.
// Records the arguments of each backward. Batches from 1000 on are broken.
class ToyLoss {
 public:
  ToyLoss(const kit::Request& in, kit::Cluster& cluster, int rank)
      : ToyLoss(in, cluster, rank, format_of(in)) {}
  ToyLoss(const kit::Request& in, kit::Cluster& cluster, int rank, Format format)
      : cluster_(cluster),
        rank_(rank),
        meet_(in.integer("meet", 0) != 0),
        format_(format),
        table_(format_),
        size_(std::size_t(in.integer("size"))),
        offset_(in.floats(of_rank("offset", rank))),
        slope_(in.floats(of_rank("slope", rank))) {}
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] Format format() const { return format_; }

  std::vector<std::uint16_t> backward(std::span<const std::uint16_t> weights, int batch,
                                      float factor) {
    if (weights.size() != size_)
      throw kit::Misuse{"backward was given " + std::to_string(weights.size()) +
                        " weights of a model with " + std::to_string(size_)};
    if (meet_) cluster_.end_of_step(rank_);  // puts all ranks into a backward simultaneously
    batches_.push_back(batch);
    factors_.push_back(factor);
    seen_.insert(seen_.end(), weights.begin(), weights.end());
    if (batch >= 1000) throw BatchIsBroken{};
    if (batch < 0 || (std::size_t(batch) + 1) * size_ > offset_.size())
      throw kit::Misuse{"backward was given batch " + std::to_string(batch) +
                        ", which was not requested"};
    std::vector<std::uint16_t> codes;
    for (std::size_t i = 0; i < size_; ++i) {
      const std::size_t at = std::size_t(batch) * size_ + i;
      const float product = slope_[at] * table_.value(weights[i]);
      const float gradient = offset_[at] + product;
      codes.push_back(table_.nearest(factor * gradient));
    }
    return codes;
  }
  void observe(kit::Observation& out) const {
    out.put(of_rank("batches", rank_), batches_);
    out.put(of_rank("factors", rank_), factors_);
    out.put(of_rank("weights", rank_), bytes_of(seen_));
  }

 private:
  kit::Cluster& cluster_;
  int rank_;
  bool meet_;
  Format format_;
  Table table_;
  std::size_t size_;
  std::vector<float> offset_, slope_;
  std::vector<std::int64_t> batches_;
  std::vector<float> factors_;
  std::vector<std::uint16_t> seen_;
};

void append(std::vector<double>& states, const lab14::ScalerState& state) {
  states.insert(states.end(), {double(state.scale), state.growth_factor, state.backoff_factor,
                               double(state.growth_interval), double(state.growth_tracker)});
}
lab14::ScalerState state_at(const std::vector<double>& states, std::size_t number) {
  const double* s = &states.at(5 * number);
  return {float(s[0]), s[1], s[2], std::int64_t(s[3]), std::int64_t(s[4])};
}

// Returns the type of the exception that `call` throws, "" if none.
template <class Call>
std::string thrown_by(Call call) {
  try {
    call();
  } catch (const std::invalid_argument&) {
    return "invalid_argument";
  } catch (const std::logic_error&) {
    return "logic_error";
  } catch (const std::runtime_error&) {
    return "runtime_error";
  }
  return "";
}

}  // namespace

KIT_SCENARIO(to_codes) {
  const Format format = format_of(in);
  std::vector<std::uint16_t> codes;
  for (const float value : in.floats("values")) codes.push_back(lab14::encode(format, value));
  out.put("codes", bytes_of(codes));
}

KIT_SCENARIO(to_floats) {
  const Format format = format_of(in);
  std::vector<float> values;
  for (std::uint32_t code = 0; code < 65536; ++code)
    values.push_back(lab14::decode(format, std::uint16_t(code)));
  out.put("values", values);
}

// `deeds`, two letters each: the scaler, A or B, and
//   l  load the next of `states`      u  unscale the next of `gradients`
//   p  update                         x  scale the next of `losses`       t  B takes A's state
KIT_SCENARIO(scaler) {
  const std::vector<double> given = in.numbers("states");
  const std::vector<float> gradients = in.floats("gradients"), losses = in.floats("losses");
  const std::vector<std::int64_t> shapes = in.integers("shapes");  // number of parameters, sizes
  lab14::GradScaler scalers[2];
  std::string thrown;
  std::vector<std::int64_t> found;
  std::vector<double> states;
  std::vector<float> scaled, unscaled;
  std::size_t next_state = 0, next_loss = 0, next_shape = 0, next_gradient = 0;
  const std::string deeds = in.text("deeds");
  for (std::size_t d = 0; d + 1 < deeds.size(); d += 2) {
    lab14::GradScaler& scaler = scalers[deeds[d] == 'B'];
    std::int64_t answer = -1;
    if (deeds[d + 1] == 'l') {
      const lab14::ScalerState state = state_at(given, next_state++);
      thrown += thrown_by([&] { scaler.load(state); });
    }
    if (deeds[d + 1] == 't') thrown += thrown_by([&] { scalers[1].load(scalers[0].state()); });
    if (deeds[d + 1] == 'p') thrown += thrown_by([&] { scaler.update(); });
    if (deeds[d + 1] == 'x') scaled.push_back(scaler.scale(losses.at(next_loss++)));
    if (deeds[d + 1] == 'u') {
      std::vector<std::vector<float>> parameters;
      for (std::int64_t n = shapes.at(next_shape++); n > 0; --n) {
        const auto first = gradients.begin() + std::ptrdiff_t(next_gradient);
        const std::int64_t length = shapes.at(next_shape++);
        parameters.emplace_back(first, first + length);
        next_gradient += std::size_t(length);
      }
      std::vector<std::span<float>> spans(parameters.begin(), parameters.end());
      thrown += thrown_by([&] { answer = scaler.unscale(spans); });
      for (const std::vector<float>& one : parameters)
        unscaled.insert(unscaled.end(), one.begin(), one.end());
    }
    thrown += ' ';
    found.push_back(answer);
    append(states, scalers[0].state());
    append(states, scalers[1].state());
  }
  out.put("thrown", thrown);
  out.put("found", found);
  out.put("states", states);
  out.put("scaled", scaled);
  out.put("unscaled", unscaled);
}

// One letter per deed; each backward uses the next batch:
//   z  zero_grad      s  a backward      n  one under NoSync      m  two, in nested NoSyncs
//   t  as n, with a broken batch
//   o  a backward while another replica's NoSync is alive
//   f  a backward of another model, in the other format, on the next batch; reports its gradients
//   x  a broken batch in a nested NoSync, then a backward in the outer NoSync
KIT_SCENARIO(replica) {
  kit::Cluster cluster(kit::cluster_options(in));
  const std::string script = in.text("script");
  const std::vector<float> values = in.floats("masters");
  cluster.run([&](kit::Group& group) {
    const int rank = group.rank();
    ToyLoss model(in, cluster, rank);
    lab14::Replica<ToyLoss> replica(model, group);
    std::vector<std::uint16_t> weights;
    for (const float value : values) weights.push_back(lab14::encode(model.format(), value));
    int batch = 0;
    std::vector<float> grads;
    for (const char deed : script) {
      const auto backward = [&] { replica.backward(weights, batch++, 1); };
      if (deed == 'z') replica.zero_grad();
      if (deed == 's') backward();
      if (deed == 'n') {
        [[maybe_unused]] const auto local = replica.no_sync();
        backward();
      }
      if (deed == 'o') {
        lab14::Replica<ToyLoss> other(model, group);
        [[maybe_unused]] const auto local = other.no_sync();
        backward();
      }
      if (deed == 'm') {
        [[maybe_unused]] const auto local = replica.no_sync();
        {
          [[maybe_unused]] const auto nested = replica.no_sync();
          backward();
        }
        backward();
      }
      const auto broken = [&] {
        try {
          [[maybe_unused]] const auto local = replica.no_sync();
          replica.backward(weights, 1000, 1);
        } catch (const BatchIsBroken&) {
        }
      };
      if (deed == 't') broken();
      if (deed == 'x') {
        [[maybe_unused]] const auto local = replica.no_sync();
        broken();
        backward();
      }
      if (deed == 'f') {
        const Format format = model.format() == Format::f16 ? Format::bf16 : Format::f16;
        ToyLoss loss(in, cluster, rank, format);
        lab14::Replica<ToyLoss> other(loss, group);
        std::vector<std::uint16_t> codes;
        for (const float value : values) codes.push_back(lab14::encode(format, value));
        other.backward(codes, batch, 1);
        grads.insert(grads.end(), other.grad().begin(), other.grad().end());
        cluster.end_of_step(rank);
        continue;
      }
      grads.insert(grads.end(), replica.grad().begin(), replica.grad().end());
      cluster.end_of_step(rank);
    }
    out.put(of_rank("grads", rank), grads);
    model.observe(out);
  });
  cluster.observe(out);
}

// `plan`: the batches of the epochs, in order; -1 ends each epoch.
KIT_SCENARIO(train) {
  kit::Cluster cluster(kit::cluster_options(in));
  const lab14::ScalerState scaler = state_at(in.numbers("scaler"), 0);
  const lab14::Sgd optimizer{float(in.number("lr")), float(in.number("momentum"))};
  cluster.run([&](kit::Group& group) {
    const int rank = group.rank();
    ToyLoss model(in, cluster, rank);
    lab14::Trainer<ToyLoss> trainer(model, group, in.floats("masters"),
                                    int(in.integer("accumulate")), scaler, optimizer);
    std::vector<float> masters;
    std::vector<double> states;
    std::vector<std::int64_t> made;  // steps of each epoch; -1: a broken batch ended it
    std::vector<int> batches;
    for (const std::int64_t batch : in.integers("plan")) {
      if (batch >= 0) {
        batches.push_back(int(batch));
        continue;
      }
      try {
        made.push_back(trainer.epoch(batches));
      } catch (const BatchIsBroken&) {
        made.push_back(-1);
      }
      batches.clear();
      masters.insert(masters.end(), trainer.masters().begin(), trainer.masters().end());
      append(states, trainer.scaler().state());
      cluster.end_of_step(rank);
    }
    out.put(of_rank("masters", rank), masters);
    out.put(of_rank("states", rank), states);
    out.put(of_rank("made", rank), made);
    model.observe(out);
  });
  cluster.observe(out);
}

KIT_SCENARIO(refused) {
  kit::Cluster cluster(kit::cluster_options(in));
  std::string thrown;
  cluster.run([&](kit::Group& group) {
    ToyLoss model(in, cluster, group.rank());
    for (const std::int64_t accumulate : in.integers("accumulate"))
      thrown += thrown_by([&] {
                  const lab14::Trainer<ToyLoss> trainer(model, group, in.floats("masters"),
                                                        int(accumulate), {}, {});
                }) +
                ' ';
  });
  out.put("thrown", thrown);
}

// largest: the largest gradient of each step. The rule sees it scaled and in f16, after the step.
KIT_SCENARIO(choice) {
  const Table table(Format::f16);
  lab14::OwnScale rule;
  std::vector<float> scales;
  for (const float largest : in.floats("largest")) {
    scales.push_back(rule.next());
    rule.after(table.value(table.nearest(largest * scales.back())));
  }
  out.put("scales", scales);
}
