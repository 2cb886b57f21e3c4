// Runs the student's shards on the kit's fabric.
#include LAB20_FSDP

#include "labs/kit/driver.hpp"

#include <stdexcept>
#include <typeinfo>

#include "labs/kit/heap/held.hpp"

using lab20::Group;

namespace {

std::string of_rank(const char* what, int rank) { return what + ("." + std::to_string(rank)); }

// The events on one rank, in order, and the memory that it holds at each of them beyond its memory
// at the beginning.
struct Trace {
  std::string events;
  std::vector<std::int64_t> bytes;
  std::int64_t base = 0;

  Trace() {
    events.reserve(1 << 16);
    bytes.reserve(1 << 14);
  }
  void note(char event, int unit) {
    bytes.push_back(kit::heap_of_thread() - base);
    events += event;
    events += std::to_string(unit);
    events += ' ';
    if (bytes.size() == bytes.capacity() || events.size() + 32 > events.capacity())
      throw kit::Misuse{"more than 5000 events: " + events.substr(0, 60) + "..."};
  }
};

// Runs body(group, trace) on every rank, and reports traffic, events and memory.
template <class Body>
void run(const kit::Request& in, kit::Observation& out, const Body& body) {
  kit::Fabric fabric(kit::fabric_options(in));
  Group::Log log;
  try {
    fabric.run([&](kit::Link& link) {
      Trace trace;
      Group group(fabric, link, log, [&](char event, int unit) { trace.note(event, unit); });
      body(group, trace);
      out.put(of_rank("events", group.rank()), trace.events);
      out.put(of_rank("bytes", group.rank()), trace.bytes);
      out.put(of_rank("pending", group.rank()), group.pending());
    });
  } catch (const lab20::Disagreement& d) {
    throw kit::Misuse{d.message};
  }
  fabric.observe(out);
}

template <class T, class U>
void append(std::vector<T>& to, const U& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// A sequence of numbers, read piece by piece.
template <class T>
class Tape {
 public:
  explicit Tape(std::vector<T> numbers) : numbers_(std::move(numbers)) {}
  std::vector<T> next(std::int64_t count) {
    const auto first = numbers_.begin() + std::ptrdiff_t(at_);
    at_ += std::size_t(count);
    if (at_ > numbers_.size()) throw std::logic_error("the request has too few numbers");
    return {first, first + std::ptrdiff_t(count)};
  }

 private:
  std::vector<T> numbers_;
  std::size_t at_ = 0;
};

std::vector<lab20::Tensors> model_of(const kit::Request& in) {
  Tape<float> values(in.floats("values"));
  Tape<std::int64_t> sizes(in.integers("sizes"));
  std::vector<lab20::Tensors> model;
  for (const std::int64_t tensors : in.integers("units")) {
    model.emplace_back();
    for (const std::int64_t size : sizes.next(tensors)) model.back().push_back(values.next(size));
  }
  return model;
}

// The gradient of parameter i in batch b on a rank is offset[b][i] + slope * parameter.
class ToyModel {
 public:
  ToyModel(const kit::Request& in, int rank, const std::vector<lab20::Tensors>& model, Trace& trace)
      : trace_(trace),
        offset_(in.floats(of_rank("offset", rank))),
        slope_(float(in.number("slope"))) {
    for (const lab20::Tensors& unit : model) {
      first_.push_back(total_);
      for (const std::vector<float>& tensor : unit) total_ += tensor.size();
    }
    first_.push_back(total_);
    if (in.integer("record", 1) != 0) {
      const std::size_t batches = total_ == 0 ? 0 : offset_.size() / total_;
      used_.reserve(2 * (batches + 1) * total_);
      widths_.reserve(1 << 14);
    }
  }
  void start(std::size_t batch) { batch_ = batch; }
  void forward(int unit, const std::vector<std::span<const float>>& parameters) {
    trace_.note('f', unit);
    record(parameters);
  }
  void backward(int unit, const std::vector<std::span<const float>>& parameters,
                std::span<float> gradient) {
    trace_.note('b', unit);
    record(parameters);
    if (unit < 0 || std::size_t(unit) + 1 >= first_.size())
      throw kit::Misuse{"backward of unit " + std::to_string(unit) + ", which does not exist"};
    const std::size_t first = first_[std::size_t(unit)],
                      count = first_[std::size_t(unit) + 1] - first;
    if (gradient.size() != count)
      throw kit::Misuse{"backward of unit " + std::to_string(unit) + " gets memory for " +
                        std::to_string(gradient.size()) + " gradients, must be " +
                        std::to_string(count)};
    std::size_t at = 0;
    for (const std::span<const float> p : parameters)
      for (const float x : p) {
        if (at < count) gradient[at] = offset_[batch_ * total_ + first + at] + slope_ * x;
        ++at;
      }
  }
  [[nodiscard]] const std::vector<float>& used() const { return used_; }
  [[nodiscard]] const std::vector<std::int64_t>& widths() const { return widths_; }

 private:
  void record(const std::vector<std::span<const float>>& parameters) {
    if (widths_.capacity() == 0) return;
    widths_.push_back(std::ssize(parameters));
    for (const std::span<const float> p : parameters) {
      widths_.push_back(std::ssize(p));
      if (used_.size() + p.size() <= used_.capacity()) append(used_, p);
    }
  }

  Trace& trace_;
  std::vector<float> offset_;
  float slope_;
  std::vector<std::size_t> first_;  // element of each unit; then the total
  std::size_t total_ = 0, batch_ = 0;
  std::vector<float> used_;
  std::vector<std::int64_t> widths_;
};

std::vector<lab20::SavedShard> saved_of(Tape<std::int64_t>& shapes, Tape<float>& numbers) {
  std::vector<lab20::SavedShard> saved(std::size_t(shapes.next(1)[0]));
  for (lab20::SavedShard& s : saved) {
    const std::vector<std::int64_t> shape = shapes.next(4);  // rank, world, values, momenta
    s = {int(shape[0]), int(shape[1]), numbers.next(shape[2]), numbers.next(shape[3])};
  }
  return saved;
}

void append_all(std::vector<float>& to, const std::vector<lab20::Tensors>& model,
                std::vector<std::int64_t>& shape) {
  shape.push_back(std::ssize(model));
  for (const lab20::Tensors& unit : model) {
    shape.push_back(std::ssize(unit));
    for (const std::vector<float>& tensor : unit) {
      shape.push_back(std::ssize(tensor));
      append(to, tensor);
    }
  }
}

}  // namespace

KIT_SCENARIO(shards) {
  std::vector<std::int64_t> numbers;
  const int world = int(in.integer("world"));
  for (const std::int64_t count : in.integers("counts"))
    for (int rank = 0; rank < world; ++rank) {
      const lab20::Shard s = lab20::shard_of(std::size_t(count), world, rank);
      append(numbers, std::vector<std::int64_t>{std::int64_t(s.first), std::int64_t(s.length),
                                                std::int64_t(s.padded)});
    }
  out.put("numbers", numbers);
}

// The script's letters are calls of one unit: s start_gather, g gather, p parameters, l release, r
// reduce the next gradient, v double the shard's values. Reports the shards and the memory after
// each call.
KIT_SCENARIO(unit) {
  const std::string script = in.text("script");
  const std::vector<lab20::Tensors> model = model_of(in);
  run(in, out, [&](Group& group, Trace& trace) {
    const int rank = group.rank();
    Tape<float> gradients(in.floats(of_rank("gradients", rank)));
    std::size_t count = 0;
    for (const std::vector<float>& tensor : model[0]) count += tensor.size();
    std::vector<float> shards, viewed;
    std::vector<std::int64_t> widths, held, left;
    shards.reserve(4 * (script.size() + 1) * (count + 8));
    viewed.reserve((script.size() + 1) * count);
    widths.reserve(64 * (script.size() + 1));
    held.reserve(script.size() + 1);
    left.reserve(script.size() + 1);
    std::string thrown;
    thrown.reserve(16 * (script.size() + 1));
    trace.base = kit::heap_of_thread();
    {
      lab20::Unit unit(group, 0, model[0]);
      const auto look = [&] {
        held.push_back(kit::heap_of_thread() - trace.base);
        for (const std::span<float> part : {unit.value(), unit.gradient(), unit.momentum()})
          append(shards, part);
      };
      look();
      for (const char deed : script) {
        try {
          if (deed == 's') unit.start_gather();
          if (deed == 'g') unit.gather();
          if (deed == 'l') unit.release();
          if (deed == 'v')
            for (float& x : unit.value()) x *= 2;
          if (deed == 'p') {
            const std::vector<std::span<const float>> views = unit.parameters();
            widths.push_back(std::ssize(views));
            for (const std::span<const float> view : views) {
              widths.push_back(std::ssize(view));
              append(viewed, view);
            }
          }
          if (deed == 'r') {
            std::vector<float> gradient = gradients.next(std::int64_t(count));
            gradient.reserve(count + 3);  // memory to be freed, even for a unit of no parameters
            unit.reduce(gradient);
            left.push_back(std::int64_t(gradient.capacity()));
          }
        } catch (const std::logic_error& e) {
          thrown += typeid(e) == typeid(std::logic_error) ? deed : '?';
        }
        thrown += ' ';
        look();
      }
      out.put(of_rank("padded", rank), unit.value().size());
    }
    out.put(of_rank("shards", rank), shards);
    out.put(of_rank("viewed", rank), viewed);
    out.put(of_rank("widths", rank), widths);
    out.put(of_rank("held", rank), held);
    out.put(of_rank("left", rank), left);
    out.put(of_rank("thrown", rank), thrown);
  });
}

// The script's letters: F forward_backward with the next pair of options, S step, W whole, V save,
// L load the next list of shards. With record = 0 the driver keeps nothing, so the memory at each
// event is the student's.
KIT_SCENARIO(train) {
  const std::string script = in.text("script");
  const std::vector<lab20::Tensors> model = model_of(in);
  run(in, out, [&](Group& group, Trace& trace) {
    const int rank = group.rank();
    const bool record = in.integer("record", 1) != 0;
    ToyModel toy(in, rank, model, trace);
    Tape<std::int64_t> options(in.integers("options")), loads(in.integers("loads"));
    Tape<float> loaded(in.floats("loaded")), rates(in.floats("rates"));
    std::vector<float> shards, wholes, saved;
    std::vector<std::int64_t> shapes, saved_shapes;
    std::string thrown;
    thrown.reserve(32 * (script.size() + 1));
    std::size_t batch = 0;
    const auto look = [&](lab20::Sharded& sharded) {
      if (!record) return;
      for (lab20::Unit& unit : sharded.units())
        for (const std::span<float> part : {unit.value(), unit.gradient(), unit.momentum()})
          append(shards, part);
    };
    trace.base = kit::heap_of_thread();
    {
      lab20::Sharded sharded(group, model);
      trace.note('c', 0);
      look(sharded);
      for (const char deed : script) {
        std::vector<lab20::SavedShard> given;
        if (deed == 'L') given = saved_of(loads, loaded);
        trace.note(deed, 0);
        try {
          if (deed == 'F') {
            const std::vector<std::int64_t> o = options.next(2);
            toy.start(batch++);
            sharded.forward_backward(toy, {o[0] != 0, o[1] != 0});
          }
          if (deed == 'S') {
            const std::vector<float> rate = rates.next(2);
            sharded.step(rate[0], rate[1]);
          }
          if (deed == 'W') {
            const lab20::WholeState state = sharded.whole();
            trace.note('e', 0);
            if (record) {
              append_all(wholes, state.values, shapes);
              append_all(wholes, state.momenta, shapes);
            }
          }
          if (deed == 'V') {
            const lab20::SavedShard s = sharded.save();
            append(saved_shapes, std::vector<std::int64_t>{s.rank, s.world, std::ssize(s.values),
                                                           std::ssize(s.momenta)});
            append(saved, s.values);
            append(saved, s.momenta);
          }
          if (deed == 'L') sharded.load(given);
        } catch (const std::invalid_argument&) {
          thrown += "invalid_argument";
        } catch (const std::logic_error& e) {
          thrown += typeid(e) == typeid(std::logic_error) ? "logic_error" : "another";
        }
        thrown += ' ';
        look(sharded);
      }
      trace.note('d', 0);
    }
    out.put(of_rank("shards", rank), shards);
    out.put(of_rank("wholes", rank), wholes);
    out.put(of_rank("shapes", rank), shapes);
    out.put(of_rank("saved", rank), saved);
    out.put(of_rank("saved_shapes", rank), saved_shapes);
    out.put(of_rank("thrown", rank), thrown);
    out.put(of_rank("used", rank), toy.used());
    out.put(of_rank("widths", rank), toy.widths());
  });
}

// Measures the peak of new memory during a step and during a load. They send nothing, so no other
// rank runs meanwhile.
KIT_SCENARIO(peaks) {
  const std::vector<lab20::Tensors> model = model_of(in);
  run(in, out, [&](Group& group, Trace& trace) {
    ToyModel toy(in, group.rank(), model, trace);
    Tape<std::int64_t> loads(in.integers("loads"));
    Tape<float> loaded(in.floats("loaded"));
    const std::vector<lab20::SavedShard> given = saved_of(loads, loaded);
    trace.base = kit::heap_of_thread();
    lab20::Sharded sharded(group, model);
    sharded.forward_backward(toy);
    std::vector<std::int64_t> peaks;
    peaks.reserve(8);
    const auto during = [&](const auto& call) {
      kit::heap_forget_most();
      const std::int64_t before = kit::heap();
      call();
      peaks.push_back(kit::heap_most() - before);
    };
    during([&] { sharded.step(0.5F, 0.5F); });
    during([&] { sharded.load(given); });
    during([&] { (void)sharded.save(); });
    out.put(of_rank("peaks", group.rank()), peaks);
  });
}
