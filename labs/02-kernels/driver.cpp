// Launches the student's kernels with the judge's inputs, grids and alignments.
#include LAB02_KERNELS

#include "labs/kit/driver.hpp"

#include "kernels/vgpu/settings.hpp"
#include "labs/kit/audit.hpp"

using kit::Audit;
using kit::DeviceArray;
using kit::Stream;

namespace {

// The seed determines the order of threads and blocks, and the delays.
void seed_emulator(const kit::Request& in) {
  vgpu::Settings::insist("VGPU_DEVICES", 1);
  vgpu::Settings::insist("VGPU_SEED", std::uint64_t(in.integer("seed")));
}

// The grid may have fewer or more threads than the kernel has elements.
dim3 blocks(const kit::Request& in) { return {unsigned(in.integer("blocks"))}; }
dim3 threads(const kit::Request& in) { return {unsigned(in.integer("threads"))}; }

}  // namespace

KIT_SCENARIO(axpy) {
  seed_emulator(in);
  const Stream stream;
  const DeviceArray<float> x(stream, in.floats("x"), std::size_t(in.integer("offset", 0)));
  const DeviceArray<float> y(stream, in.floats("y"));
  // An earlier launch with another grid and other arrays must not affect the next one.
  const DeviceArray<float> few(stream, std::vector<float>(7, 1.0F));
  kit::launch(lab02::axpy, dim3(2), dim3(3), 0, stream.get(), std::int64_t(few.size()), 0.5F,
              few.data(), few.data());
  kit::launch(lab02::axpy, blocks(in), threads(in), 0, stream.get(), std::int64_t(x.size()),
              float(in.number("a")), x.data(), y.data());
  out.put("y", y.host());
}

KIT_SCENARIO(rows) {
  seed_emulator(in);
  const Stream stream;
  const DeviceArray<float> x(stream, Audit::hide(0, in.floats("x")));
  const auto rows = in.integer("rows"), cols = in.integer("cols");
  const DeviceArray<float> largest(stream, std::size_t(rows)), sum(stream, std::size_t(rows));
  kit::launch(lab02::row_reduce, blocks(in), threads(in), 0, stream.get(), rows, cols,
              Audit::open(0, x.data()), largest.data(), sum.data());
  out.put("largest", largest.host());
  out.put("sum", sum.host());
  out.put("loads", Audit::loads(0));
}

KIT_SCENARIO(matmul) {
  seed_emulator(in);
  const Stream stream;
  const auto m = in.integer("m"), n = in.integer("n"), k = in.integer("k");
  const DeviceArray<float> a(stream, Audit::hide(0, in.floats("a"))),
      b(stream, Audit::hide(1, in.floats("b")));
  const DeviceArray<float> c(stream, std::size_t(m * n));
  const dim3 grid = lab02::matmul_grid(m, n);
  out.put("grid", std::vector<std::int64_t>{grid.x, grid.y, grid.z});
  kit::launch(lab02::matmul, grid, dim3(lab02::kTile, lab02::kTile), 0, stream.get(), m, n, k,
              Audit::open(0, a.data()), Audit::open(1, b.data()), c.data());
  out.put("c", c.host());
  out.put("loads", std::vector<std::int64_t>{Audit::loads(0), Audit::loads(1)});
}

// Calls sgd_width for all triples of the addresses, without dereferencing them.
KIT_SCENARIO(widths) {
  std::vector<const float*> places;
  for (const std::int64_t address : in.integers("places"))
    places.push_back(reinterpret_cast<const float*>(std::uintptr_t(address)));
  std::vector<std::int64_t> widths;
  for (const float* g : places)
    for (const float* p : places)
      for (const float* v : places) widths.push_back(lab02::sgd_width(g, p, v));
  out.put("widths", widths);
}

// Runs sgd<4> on a misaligned array. The first float4 access to that array stops the kernel.
KIT_SCENARIO(wide) {
  seed_emulator(in);
  const Stream stream;
  const std::vector<float> ones(64, 1.0F);
  const auto array = [&](const char* name) {
    return DeviceArray<float>(stream, ones, in.text("misaligned") == name ? 1 : 0);
  };
  const DeviceArray<float> g = array("g"), p = array("p"), v = array("v");
  kit::launch(lab02::sgd<4>, dim3(1), dim3(32), 0, stream.get(), std::int64_t(ones.size()),
              lab02::Sgd{1.0F, 1.0F, 1.0F}, static_cast<const float*>(g.data()), p.data(),
              v.data());
  stream.synchronize();
}

KIT_SCENARIO(sgd) {
  seed_emulator(in);
  const Stream stream;
  const auto array = [&](const char* name) {
    const std::string offset = std::string("offset_") + name;
    return DeviceArray<float>(stream, in.floats(name), std::size_t(in.integer(offset, 0)));
  };
  const DeviceArray<float> g = array("g"), p = array("p"), v = array("v");
  const lab02::Sgd s{float(in.number("lr")), float(in.number("momentum")),
                     float(in.number("decay"))};
  const int width = lab02::sgd_width(g.data(), p.data(), v.data());
  const DeviceArray<float> few(stream, std::vector<float>(9, 1.0F)), p0(stream, few.host()),
      v0(stream, few.host());
  kit::launch(width == 4 ? lab02::sgd<4> : lab02::sgd<1>, dim3(2), dim3(3), 0, stream.get(),
              std::int64_t(few.size()), lab02::Sgd{3.0F, 5.0F, 7.0F},
              static_cast<const float*>(few.data()), p0.data(), v0.data());
  kit::launch(width == 4 ? lab02::sgd<4> : lab02::sgd<1>, blocks(in), threads(in), 0, stream.get(),
              std::int64_t(g.size()), s, static_cast<const float*>(g.data()), p.data(), v.data());
  out.put("width", width);
  out.put("p", p.host());
  out.put("v", v.host());
}
