// Runs the student's DataParallel on the kit's devices and says what came out. No verdicts here.
//
// The model is y = W x + b, row by row, with whole numbers, so that sums are exact. It refuses what
// lies on another device, and notices whether the replicas are inside at the same time.
#include LAB08_DATA_PARALLEL

#include "labs/kit/driver.hpp"

#include <chrono>
#include <condition_variable>

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

  // From here on: so many replicas are to be inside at once, and those listed throw.
  void expect(int replicas, bool fail) {
    expected_ = replicas;
    inside_ = 0;
    fail_ = fail;
  }
  bool alone = false;  // a replica waited for others that never came

 private:
  static void require_here(int device, const std::vector<const Buffer*>& all) {
    for (const Buffer* b : all)
      if (b->device() != device)
        throw std::runtime_error("computes on device " + std::to_string(device) +
                                 " with numbers that lie on device " + std::to_string(b->device()));
  }
  void meet(int device) {
    std::unique_lock lock(mutex_);
    const int round = round_;
    if (++inside_ == expected_) {
      inside_ = 0;
      ++round_;
      changed_.notify_all();
    } else if (!alone) {
      alone = !changed_.wait_for(lock, std::chrono::seconds(3), [&] { return round_ != round; });
    }
    for (const std::int64_t failing : failing_)
      if (fail_ && failing == device)
        throw std::runtime_error("out of memory on device " + std::to_string(device));
  }

  kit::Devices& devices_;
  std::size_t outputs_;
  std::vector<std::int64_t> failing_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int expected_ = 0, inside_ = 0, round_ = 0;
  bool fail_ = false;
};

Buffer filled(kit::Devices& devices, std::size_t rows, std::size_t width, std::int64_t salt) {
  Buffer b = devices.make(0, rows, width);
  std::int64_t i = 0;
  for (float& number : b.numbers())
    number = float((i++ * 7 + salt * 13) % 19 - 9);  // public.py too
  return b;
}

}  // namespace

KIT_SCENARIO(split) {
  std::vector<std::int64_t> flat;
  for (const lab08::Part& p :
       lab08::split_rows(std::size_t(in.integer("rows")), int(in.integer("devices")))) {
    flat.push_back(std::int64_t(p.first));
    flat.push_back(std::int64_t(p.count));
  }
  out.put("parts", flat);
}

// Steps of forward, backward and an update; `fail`: in which step the failing replicas throw, in
// forward (f) or backward (b).
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
    const Buffer batch = filled(devices, rows, inputs, 10 + step);
    const Buffer gradient = filled(devices, rows, outputs, 20 + step);
    devices.forget_traffic();
    devices.forget_most();
    try {
      model.expect(replicas, fail == "f" && step == 0);
      const Buffer y = parallel.forward(batch);
      out.put("output", y.numbers());
      out.put("output_device", y.device());
      model.expect(replicas, fail == "b" && step == 0);
      const std::vector<Buffer> found = parallel.backward(gradient);
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
