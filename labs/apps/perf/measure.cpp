// One measurement: lays out a collective's buffers, verifies the results, and times it.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>

#include "labs/apps/perf/perf.hpp"
#include "runtime/device/cuda_check.hpp"
#include "runtime/device/memory.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith::apps {

using comm::Buffer;

PerfMemory::PerfMemory(comm::ProcessGroup& group, bool own, std::size_t bytes, bool two) {
  first_ = make(group, own, bytes + 2 * kGuard);
  second_ = two ? make(group, own, bytes + 2 * kGuard) : first_;
}

std::byte* PerfMemory::make(comm::ProcessGroup& group, bool own, std::size_t bytes) {
  const Device device = group.device();
  if (own) {
    auto memory = group.allocate_on(device, Bytes(bytes));
    keep_.push_back(memory);
    return memory->data();
  }
  if (device.is_cuda()) {
    std::byte* const memory = device_allocator::allocate(device, Bytes(bytes));
    keep_.emplace_back(
        memory, [device](void* p) { device_allocator::free(device, static_cast<std::byte*>(p)); });
    return memory;
  }
  constexpr std::size_t kAlignment = 2 << 20;  // size of a huge page
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, rounded);
  keep_.emplace_back(memory, [](void* p) { std::free(p); });
  return static_cast<std::byte*>(memory);
}

namespace {

constexpr std::byte kGuardByte{0xa5};

void copy(void* to, const void* from, std::size_t bytes, Device device) {
  const DeviceGuard guard(device);
  const Stream stream = Stream::current(device);
  cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.get()));
  stream.synchronize();
}

// A buffer with its guards, accessible from the host: the buffer itself, or a copy of it if it is
// on a device.
class HostView {
 public:
  HostView(Buffer data, Device device) : data_(data), view_(data), device_(device) {
    if (device.is_cpu()) return;
    copy_.resize(data.size().value + 2 * PerfMemory::kGuard);
    view_ = {copy_.data() + PerfMemory::kGuard, data.count(), data.dtype()};
  }
  [[nodiscard]] Buffer data() { return view_; }
  void fetch() {
    if (!copy_.empty())
      copy(copy_.data(), data_.data() - PerfMemory::kGuard, copy_.size(), device_);
  }
  void store() {
    if (!copy_.empty())
      copy(data_.data() - PerfMemory::kGuard, copy_.data(), copy_.size(), device_);
  }

 private:
  Buffer data_, view_;
  Device device_;
  std::vector<std::byte> copy_;
};

void set_guards(Buffer data) {
  std::memset(data.data() - PerfMemory::kGuard, static_cast<int>(kGuardByte), PerfMemory::kGuard);
  std::memset(data.data() + data.size().value, static_cast<int>(kGuardByte), PerfMemory::kGuard);
}

std::size_t broken_guards(Buffer data) {
  const auto broken = [](const std::byte* p) {
    return std::count_if(p, p + PerfMemory::kGuard, [](std::byte v) { return v != kGuardByte; });
  };
  return static_cast<std::size_t>(broken(data.data() - PerfMemory::kGuard) +
                                  broken(data.data() + data.size().value));
}

void clear(Buffer data, Device device) {
  if (device.is_cpu()) return fill_zero(data);
  if (data.size().value == 0) return;
  const DeviceGuard guard(device);
  cuda_check(cudaMemsetAsync(data.data(), 0, data.size().value, Stream::current(device).get()));
}

void wait_for_device(Device device) {
  if (device.is_cuda()) Stream::current(device).synchronize();
}

constexpr int kMaxIterations = 20000;  // most that --min-time may request

double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

struct Layout {
  Buffer input, output;
  Buffer guarded;  // the part that the collective may write to; guards surround it
};

Layout lay_out(const Benchmark& b, const PerfMemory& memory, const Shape& shape, int rank,
               int world, bool in_place) {
  const std::size_t in = shape.part * b.input_parts(world);
  const std::size_t out = shape.part * b.output_parts(world);
  const auto at = [&](std::byte* base, std::size_t offset, std::size_t count) {
    return Buffer(base + offset * size_of(shape.dtype), Elements(count), shape.dtype);
  };
  if (!in_place)
    return {at(memory.first(), 0, in), at(memory.second(), 0, out), at(memory.second(), 0, out)};
  // The shorter buffer is this rank's part of the longer one.
  std::byte* base = memory.first();
  const std::size_t place = shape.part * static_cast<std::size_t>(rank);
  const Buffer whole = at(base, 0, std::max(in, out));
  return {at(base, in < out ? place : 0, in), at(base, out < in ? place : 0, out), whole};
}

// Runs once on known inputs. Returns the number of this rank's wrong elements and guard bytes.
std::size_t verify(const Benchmark& b, comm::ProcessGroup& group, const Layout& layout,
                   const Shape& shape, bool in_place, unsigned seed) {
  const int rank = group.rank(), world = group.size();
  const Device device = group.device();
  const Pattern pattern{shape.op, world, seed};
  clear(layout.guarded, device);
  HostView input(layout.input, device), guarded(layout.guarded, device);
  guarded.fetch();
  set_guards(guarded.data());
  guarded.store();
  input.fetch();
  fill(input.data(), pattern, rank);
  input.store();
  group.barrier();
  b.run({group, layout.input, layout.output, shape.op, shape.root});
  guarded.fetch();
  std::size_t wrong = broken_guards(guarded.data());
  if (comm::has(b.contract().output, rank, shape.root)) {
    HostView output(layout.output, device);
    output.fetch();
    wrong += count_wrong(output.data(), pattern, [&](std::size_t i) {
      return b.expected({rank, world, shape.part, shape.root, i});
    });
  }
  if (!in_place) {  // the input must be unchanged
    input.fetch();
    wrong += count_wrong(input.data(), pattern, [&](std::size_t i) { return Expected{rank, i}; });
  }
  return wrong;
}

double percentile(const std::vector<double>& sorted, double share) {  // by the nearest-rank method
  const double n = static_cast<double>(sorted.size());
  return sorted[static_cast<std::size_t>(std::max(1.0, std::ceil(share * n))) - 1];
}

void summarise(std::vector<double> times, Measurement& m) {
  std::sort(times.begin(), times.end());
  const std::size_t n = times.size();
  m.time = n % 2 == 1 ? times[n / 2] : 0.5 * (times[n / 2 - 1] + times[n / 2]);
  m.min = times.front();
  m.max = times.back();
  m.p99 = percentile(times, 0.99);
  const double mean = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(n);
  double squares = 0;
  for (const double t : times) squares += (t - mean) * (t - mean);
  m.cv = mean > 0 ? 100 * std::sqrt(squares / static_cast<double>(n)) / mean : 0;
}

}  // namespace

std::size_t bytes_of_shape(const Benchmark& b, const Shape& shape, int world) {
  return shape.part * b.parts(world) * size_of(shape.dtype);
}

Measurement measure(const Benchmark& b, const PerfOptions& o, comm::ProcessGroup& group,
                    const PerfMemory& memory, const Shape& shape, bool in_place) {
  const Layout layout = lay_out(b, memory, shape, group.rank(), group.size(), in_place);
  const Device device = group.device();
  const auto run = [&] {
    b.run({group, layout.input, layout.output, shape.op, shape.root});
    wait_for_device(device);  // a call on device memory is only queued on the stream
  };
  const auto max_over_ranks = [&](std::span<double> values) {
    group.all_reduce(values, comm::ReduceOp::max);
  };
  Measurement m;
  std::int64_t wrong = 0;
  if (o.check > 0) wrong = static_cast<std::int64_t>(verify(b, group, layout, shape, in_place, 1));

  // Zeros remain zeros no matter how often they are reduced in place.
  clear(layout.input, device);
  clear(layout.guarded, device);
  wait_for_device(device);
  group.barrier();
  double start = now_us();
  for (int i = 0; i < o.warmup; ++i) run();
  double warm = o.warmup > 0 ? (now_us() - start) / o.warmup : 0;
  max_over_ranks({&warm, 1});
  m.iterations = o.iterations;
  if (o.min_ms > 0 && warm > 0)
    m.iterations = std::max(
        m.iterations, static_cast<int>(std::min<double>(kMaxIterations, o.min_ms * 1e3 / warm)));
  std::vector<double> times(static_cast<std::size_t>(m.iterations));
  group.barrier();
  start = now_us();
  double before = start;
  for (double& t : times) {
    run();
    const double now = now_us();
    t = now - before;
    before = now;
  }
  m.avg = (before - start) / m.iterations;
  max_over_ranks({&m.avg, 1});
  max_over_ranks(times);
  summarise(std::move(times), m);

  if (o.check > 0) {
    wrong =
        std::max(wrong, static_cast<std::int64_t>(verify(b, group, layout, shape, in_place, 2)));
    group.all_reduce(std::span<std::int64_t>(&wrong, 1), comm::ReduceOp::sum);
    m.wrong = wrong;
  }
  const double bytes = static_cast<double>(bytes_of_shape(b, shape, group.size()));
  m.algbw = m.time > 0 ? bytes / m.time / 1e3 : 0;
  m.busbw = m.algbw * b.bus_factor(group.size());
  return m;
}

}  // namespace ringsmith::apps
