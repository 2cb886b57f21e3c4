// Runs the student's DataParallel on the kit's devices.
//
// The model is y = W x + b, row by row, with whole numbers, so that sums are exact. The model
// rejects data on another device, and detects whether all replicas are in the model simultaneously.
#include LAB08_DATA_PARALLEL

#include "labs/kit/driver.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <thread>

#include "labs/kit/granted.hpp"
#include "labs/kit/heap/held.hpp"

namespace {

using kit::Buffer;

class Linear : public kit::DeviceModel {
 public:
  Linear(kit::Devices& devices, const kit::Request& in)
      : devices_(devices), outputs_(std::size_t(in.integer("outputs"))) {
    if (in.has("failing")) failing_ = in.integers("failing");
  }

  Buffer forward(int device, const Parameters& w, const Buffer& x) override {
    require_here(device, {w[0], w[1], &x});
    const kit::On here(device);
    meet(device);
    Buffer y = devices_.make(device, x.rows(), outputs_);
    for (std::size_t r = 0; r < x.rows(); ++r)
      for (std::size_t o = 0; o < outputs_; ++o) {
        float sum = w[1]->numbers()[o];
        for (std::size_t i = 0; i < x.width(); ++i)
          sum += w[0]->numbers()[o * x.width() + i] * x.numbers()[r * x.width() + i];
        y.numbers()[r * outputs_ + o] = sum;
      }
    return y;
  }

  std::vector<Buffer> backward(int device, const Parameters& w, const Buffer& x,
                               const Buffer& dy) override {
    require_here(device, {w[0], w[1], &x, &dy});
    const kit::On here(device);
    if (dy.rows() != x.rows())
      throw std::runtime_error(std::to_string(dy.rows()) + " rows of gradient for " +
                               std::to_string(x.rows()) + " rows of input");
    meet(device);
    std::vector<Buffer> out;
    out.push_back(devices_.make(device, outputs_, x.width()));
    out.push_back(devices_.make(device, 1, outputs_));
    for (std::size_t r = 0; r < x.rows(); ++r)
      for (std::size_t o = 0; o < outputs_; ++o) {
        const float g = dy.numbers()[r * outputs_ + o];
        out[1].numbers()[o] += g;
        for (std::size_t i = 0; i < x.width(); ++i)
          out[0].numbers()[o * x.width() + i] += g * x.numbers()[r * x.width() + i];
      }
    return out;
  }

  // From now on, this many replicas must be in the model simultaneously. With `fail`, the replicas
  // of "failing" throw.
  void expect(int replicas, bool fail) {
    expected_ = replicas;
    inside_ = 0;
    fail_ = fail;
  }
  std::atomic<bool> alone = false;  // a replica waited for others that never arrived

 private:
  static void require_here(int device, const std::vector<const Buffer*>& all) {
    for (const Buffer* b : all)
      if (b->device() != device)
        throw std::runtime_error("computes on device " + std::to_string(device) +
                                 " with numbers of device " + std::to_string(b->device()));
  }
  void meet(int device) {
    const int round = round_;
    if (++inside_ == expected_) {
      inside_ = 0;
      ++round_;
    } else if (!alone) {
      alone = !kit::wait_at_most(std::chrono::seconds(3), [&] { return round_ != round; });
    }
    for (const std::int64_t failing : failing_)
      if (fail_ && failing == device)
        throw std::runtime_error("out of memory on device " + std::to_string(device));
  }

  kit::Devices& devices_;
  std::size_t outputs_;
  std::vector<std::int64_t> failing_;
  int expected_ = 0;
  std::atomic<int> inside_ = 0, round_ = 0;
  bool fail_ = false;
};

Buffer filled(kit::Devices& devices, std::size_t rows, std::size_t width, std::int64_t salt) {
  Buffer b = devices.make(0, rows, width);
  std::int64_t i = 0;
  for (float& number : b.numbers())
    number = float((i++ * 7 + salt * 13) % 19 - 9);  // the same formula as in public.py
  return b;
}

void put_into(Buffer& buffer, const std::vector<float>& numbers) {
  std::copy(numbers.begin(), numbers.end(), buffer.numbers().begin());
}

}  // namespace

KIT_SCENARIO(split) {
  (void)lab08::split_rows(11, 3);  // must not affect later calls
  std::vector<std::int64_t> flat;
  for (const lab08::Part& p :
       lab08::split_rows(std::size_t(in.integer("rows")), int(in.integer("devices")))) {
    flat.push_back(std::int64_t(p.first));
    flat.push_back(std::int64_t(p.count));
  }
  out.put("parts", flat);
}

// Runs tasks 2 and 4 alone: scatters parts, given as first, count, first, count, ..., and gathers
// them.
KIT_SCENARIO(pieces) {
  kit::Devices devices(int(in.integer("devices")));
  const auto numbers = in.integers("parts");
  std::vector<lab08::Part> parts;
  for (std::size_t i = 0; i + 1 < numbers.size(); i += 2)
    parts.push_back({std::size_t(numbers[i]), std::size_t(numbers[i + 1])});
  Buffer batch =
      filled(devices, std::size_t(in.integer("rows")), std::size_t(in.integer("width")), 3);
  if (in.has("x")) put_into(batch, in.floats("x"));
  const std::vector<Buffer> scattered = lab08::scatter(devices, batch, parts);
  std::vector<std::int64_t> places;
  for (const Buffer& piece : scattered) places.push_back(piece.device());
  out.put("places", places);
  for (std::size_t i = 0; i < scattered.size(); ++i) {
    const kit::On there(scattered[i].device());
    out.put("piece." + std::to_string(i), scattered[i].numbers());
  }
  const Buffer whole = lab08::gather(devices, scattered);
  out.put("whole", whole.numbers());
  out.put("whole_device", whole.device());
  out.put("width", std::int64_t(whole.width()));
}

// Runs task 3 alone, after a call for one replica, which must have no effect. All replicas must run
// simultaneously. The listed replicas throw exceptions of three types, all with the same text. The
// other replicas take longer.
KIT_SCENARIO(apply) {
  const int replicas = int(in.integer("replicas"));
  bool first = true;
  const auto failing = in.integers("failing");
  const std::string words = in.text("words");
  std::vector<std::atomic<int>> ran(static_cast<std::size_t>(replicas));
  std::atomic<int> inside = 0, ended = 0;
  std::atomic<bool> alone = false;
  const auto body = [&](int i) {
    if (first) return;
    ++ran.at(std::size_t(i));
    ++inside;
    if (!kit::wait_at_most(std::chrono::seconds(3), [&] { return inside >= replicas || alone; }))
      alone = true;
    const bool fails = std::find(failing.begin(), failing.end(), i) != failing.end();
    if (!fails) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ++ended;
    if (fails && i % 3 == 0) throw std::out_of_range(words);
    if (fails && i % 3 == 1) throw std::runtime_error(words);
    if (fails) throw std::invalid_argument(words);
  };
  lab08::parallel_apply(1, body);
  first = false;
  std::string said = "nothing";
  try {
    lab08::parallel_apply(replicas, body);
  } catch (const std::runtime_error& error) {
    said = error.what();
  }
  out.put("ended", std::int64_t(ended));
  out.put("alone", bool(alone));
  out.put("said", said);
  std::vector<std::int64_t> times(ran.begin(), ran.end());
  out.put("ran", times);
}

// Uses two objects alternately, with separate devices. ops: rows of (object, 0 for forward or 1 for
// backward, rows, salt, replicas). No batch outlives its forward.
KIT_SCENARIO(by_turns) {
  const auto ops = in.integers("ops"), counts = in.integers("devices");
  struct One {
    kit::Devices devices;
    Linear model;
    std::vector<Buffer> parameters;
    lab08::DataParallel parallel;
    One(int count, const kit::Request& request)
        : devices(count), model(devices, request), parallel(devices, model, parameters) {
      const auto inputs = std::size_t(request.integer("inputs")),
                 outputs = std::size_t(request.integer("outputs"));
      parameters.push_back(filled(devices, outputs, inputs, 1));
      parameters.push_back(filled(devices, 1, outputs, 2));
    }
  };
  One first(int(counts[0]), in), second(int(counts[1]), in);
  for (std::size_t at = 0, number = 0; at + 5 <= ops.size(); at += 5, ++number) {
    One& one = ops[at] == 0 ? first : second;
    const bool forward = ops[at + 1] == 0;
    const Buffer given =
        filled(one.devices, std::size_t(ops[at + 2]),
               std::size_t(in.integer(forward ? "inputs" : "outputs")), ops[at + 3]);
    one.model.expect(int(ops[at + 4]), false);
    const std::string name = "." + std::to_string(number);
    if (forward) {
      out.put("y" + name, one.parallel.forward(given).numbers());
      continue;
    }
    const std::vector<Buffer> found = one.parallel.backward(given);
    for (std::size_t p = 0; p < found.size(); ++p) {
      out.put("g" + name + "." + std::to_string(p), found[p].numbers());
      for (std::size_t k = 0; k < found[p].numbers().size(); ++k)
        one.parameters[p].numbers()[k] -= found[p].numbers()[k];
    }
  }
  first.devices.observe(out);
  out.put("alone", first.model.alone || second.model.alone);
}

// Runs steps of forward, backward and an update. fail: in the first step the replicas of "failing"
// throw, in forward (f) or in backward (b).
KIT_SCENARIO(train) {
  const auto rows = std::size_t(in.integer("rows")), inputs = std::size_t(in.integer("inputs")),
             outputs = std::size_t(in.integer("outputs"));
  kit::Devices devices(int(in.integer("devices")));
  Linear model(devices, in);
  std::vector<Buffer> parameters;
  parameters.push_back(filled(devices, outputs, inputs, 1));
  parameters.push_back(filled(devices, 1, outputs, 2));
  lab08::DataParallel parallel(devices, model, parameters);
  const std::string fail = in.text("fail", "");
  const int replicas = int(in.integer("replicas"));
  std::string said;
  for (std::int64_t step = 0; step < in.integer("steps"); ++step) {
    Buffer batch = filled(devices, rows, inputs, 10 + step);
    Buffer gradient = filled(devices, rows, outputs, 20 + step);
    if (in.has("x")) put_into(batch, in.floats("x"));
    if (in.has("dy")) put_into(gradient, in.floats("dy"));
    devices.forget_traffic();
    devices.forget_most();
    kit::heap_forget_most();
    const std::int64_t before = kit::heap(), buffers = devices.held();
    try {
      model.expect(replicas, fail == "f" && step == 0);
      const Buffer y = parallel.forward(batch);
      out.put("output", y.numbers());
      out.put("output_device", y.device());
      model.expect(replicas, fail == "b" && step == 0);
      const std::vector<Buffer> found = parallel.backward(gradient);
      out.put("heap", kit::heap_most() - before + buffers);
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        out.put("gradient." + std::to_string(p), found.at(p).numbers());
        for (std::size_t k = 0; k < parameters[p].numbers().size(); ++k)
          parameters[p].numbers()[k] -= found[p].numbers()[k];
      }
    } catch (const std::exception& error) {
      said += (said.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  devices.observe(out);
  out.put("said", said);
  out.put("alone", model.alone);
}
