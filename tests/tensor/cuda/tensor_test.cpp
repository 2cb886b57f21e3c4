#include "runtime/tensor/tensor.hpp"

#include <cmath>
#include <limits>

#include "runtime/device/memory.hpp"
#include "runtime/device/transfer.hpp"
#include "runtime/tensor/raw.hpp"
#include "tests/device/gate.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using ringsmith::test::Gate;

namespace {

Device first() { return Device::cuda(0); }
Device last() { return Device::cuda(device_count() - 1); }

Tensor counting(const Shape& sizes) {
  return arange(0, static_cast<double>(numel_of(sizes)), 1, {DType::f32}).view(sizes);
}

std::vector<float> values(const Tensor& t) { return t.to_vector<float>(); }

}  // namespace

TEST_CASE("a tensor goes to a device and back, of every dtype, strided or not") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i32, DType::i64,
                            DType::u8, DType::boolean}) {
    const Tensor here = counting({3, 5}).to(dtype);
    const Tensor there = here.to(last());
    CHECK(there.device() == last());
    CHECK(there.dtype() == dtype);
    CHECK(there.sizes() == here.sizes());
    CHECK(there.to(last()).is_same(there));
    CHECK(values(there.cpu().to(DType::f32)) == values(here.to(DType::f32)));
    CHECK(values(here.transpose(0, 1).to(first()).to(last()).cpu().to(DType::f32)) ==
          values(here.transpose(0, 1).to(DType::f32)));
  }
  CHECK(Tensor::empty({0, 3}, {DType::f32, first()}).cpu().sizes() == Shape{0, 3});
  CHECK(scalar(2.5).cuda().item<float>() == 2.5F);
}

TEST_CASE("views of a device tensor share its memory and show what those on the CPU show") {
  const Tensor here = counting({4, 6}), there = here.to(first());
  const auto same = [](const Tensor& a, const Tensor& b) {
    CHECK(a.strides() == b.strides());
    CHECK(b.device().is_cuda());
    CHECK(values(a) == values(b));
  };
  same(here.transpose(0, 1), there.transpose(0, 1));
  same(here.slice(1, 1, 6, 2), there.slice(1, 1, 6, 2));
  same(here.select(0, 2), there.select(0, 2));
  same(here.view({2, 12}).permute({1, 0}), there.view({2, 12}).permute({1, 0}));
  same(here.select(1, 3).unsqueeze(1).expand({4, 3}),
       there.select(1, 3).unsqueeze(1).expand({4, 3}));
  CHECK(there.transpose(0, 1).storage() == there.storage());
  there.slice(0, 1, 3).zero_();
  here.slice(0, 1, 3).zero_();
  same(here, there);
}

TEST_CASE("the host does not reach into device memory") {
  const Tensor there = counting({3}).cuda();
  CHECK_THROWS_WITH(there.data<float>(), ContainsSubstring("this tensor is on cuda:0"));
  CHECK_THROWS_WITH(there.span<float>(), ContainsSubstring("copy it with cpu() first"));
  CHECK_THROWS_AS(there.data<double>(), UsageError);
  CHECK(there.kernel_data<float>() != nullptr);
  CHECK(there.str() == "[0, 1, 2] f32 [3] cuda:0");
}

TEST_CASE("copy_ broadcasts and converts across devices") {
  const Tensor target = Tensor::empty({2, 3}, {DType::f64, first()});
  target.copy_(from_vector<std::int64_t>({7, 8, 9}));
  CHECK(target.to_vector<double>() == std::vector<double>{7, 8, 9, 7, 8, 9});
  target.transpose(0, 1).copy_(counting({3, 2}).to(last()));
  CHECK(target.to_vector<double>() == std::vector<double>{0, 2, 4, 1, 3, 5});
  const Tensor host = Tensor::empty({2, 3}, {DType::f16});
  host.copy_(target);
  CHECK(host.to(DType::f32).to_vector<float>() == std::vector<float>{0, 2, 4, 1, 3, 5});
  const std::uint32_t version = target.version();
  target.copy_(host);
  CHECK(target.version() == version + 1);
  target.fill_(std::numeric_limits<double>::quiet_NaN());
  CHECK(std::isnan(target.to_vector<double>()[5]));
  const Tensor overlap = counting({6}).to(first());
  overlap.slice(0, 1, 6).copy_(overlap.slice(0, 0, 5));
  CHECK(values(overlap) == std::vector<float>{0, 0, 1, 2, 3, 4});
}

TEST_CASE("factories make their values on the device that is asked for") {
  CHECK(zeros({3}, {DType::f32, last()}).device() == last());
  CHECK(values(ones_like(zeros({2}, {DType::f32, last()}))) == std::vector<float>{1, 1});
  CHECK(full({2}, 1.5, {DType::f64, first()}).to_vector<double>() == std::vector<double>{1.5, 1.5});
  const Tensor counted = arange(2, 5, 1, {DType::i64, first()});
  CHECK(counted.device() == first());
  CHECK(counted.to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 3, 4});
  CHECK_THROWS_WITH(zeros({1}, {DType::f32, Device::cuda(999)}),
                    ContainsSubstring("there is no device cuda:999"));
}

TEST_CASE("operands on different devices are refused, by name") {
  const Tensor a = counting({3}), b = a.to(first());
  CHECK_THROWS_WITH(raw::binary(raw::Binary::add, a, b, "add"),
                    ContainsSubstring("add: operands are on cpu and on cuda:0"));
  CHECK_THROWS_AS(raw::add_into(b, a), UsageError);
  CHECK_THROWS_AS(raw::masked_fill(b, a.to(DType::boolean), 0, "masked_fill"), UsageError);
  if (device_count() > 1)
    CHECK_THROWS_WITH(raw::binary(raw::Binary::mul, b, a.to(last()), "mul"),
                      ContainsSubstring("on cuda:0 and on " + last().str()));
}

TEST_CASE("work between tensors does not make the host wait") {
  const Tensor a = counting({1000}).to(first());
  Gate gate(Stream::current(first()));
  Tensor sum = a;
  for (int i = 0; i < 5; ++i) sum = raw::binary(raw::Binary::add, sum, a, "add");
  const Tensor moved = sum.to(last());
  const Tensor converted = moved.to(DType::f64).transpose(0, 0).contiguous();
  CHECK_FALSE(Stream::current(first()).is_idle());
  gate.open();
  CHECK(converted.to_vector<double>()[999] == 6 * 999.0);
}

TEST_CASE("record_stream keeps memory that another stream still uses") {
  const Stream user = Stream::create(first());
  Tensor a = Tensor::empty({777}, {DType::f32, first()});
  const float* where = a.kernel_data<float>();
  Gate gate(user);
  a.record_stream(user);
  a = Tensor();
  const Tensor b = Tensor::empty({777}, {DType::f32, first()});
  CHECK(b.kernel_data<float>() != where);
  gate.open();
  user.synchronize();
  const Tensor c = Tensor::empty({777}, {DType::f32, first()});
  CHECK(c.kernel_data<float>() == where);
  counting({3}).record_stream(user);  // has no effect on the CPU
}

TEST_CASE("memory of tensors goes back when the last handle goes") {
  const Bytes before = device_allocator::stats(first()).current;
  {
    const Tensor a = zeros({1000}, {DType::f32, first()});
    const Tensor view = a.slice(0, 0, 10);
    CHECK(device_allocator::stats(first()).current == before + Bytes(4000));
  }
  CHECK(device_allocator::stats(first()).current == before);
}

TEST_CASE("a pinned tensor goes to a device from where it lies") {
  const Tensor plain = counting({700, 3});
  CHECK_FALSE(plain.is_pinned());
  const Tensor pinned = plain.transpose(0, 1).pin_memory();
  CHECK(pinned.is_pinned());
  CHECK(pinned.sizes() == Shape{3, 700});
  CHECK(pinned.pin_memory().is_same(pinned));
  CHECK(pinned.slice(1, 5, 9).is_pinned());
  CHECK(values(pinned) == values(plain.transpose(0, 1)));

  const auto blocks = [] { return pinned_allocator::stats().allocations; };
  const std::uint64_t before = blocks();
  const Tensor there = pinned.to(first());
  CHECK(blocks() == before);  // no staging buffer was used
  CHECK(values(there) == values(pinned));
  const std::uint64_t staged = blocks();
  CHECK(values(plain.to(first())) == values(plain));
  CHECK(blocks() >= staged + 2);  // to the device, and back
  CHECK(values(pinned.select(0, 1).to(last())) == values(pinned.select(0, 1)));

  CHECK(Tensor::empty({0, 2}).pin_memory().to(first()).sizes() == Shape{0, 2});
  CHECK_THROWS_WITH(there.pin_memory(), ContainsSubstring("only memory of the host can be pinned"));
}

TEST_CASE("pinned memory is not used again before all streams that read it are done") {
  const Stream one = Stream::create(first()), two = Stream::create(last());
  Tensor a, b;
  const std::byte* place = nullptr;
  {
    Gate gate(one);
    {
      const Tensor pinned = counting({25'000}).pin_memory();
      place = data_of(pinned);
      const StreamGuard on_one(one), on_two(two);
      a = pinned.to(first());
      b = pinned.to(last());
    }
    const Tensor other = full({25'000}, -1).pin_memory();
    CHECK(data_of(other) != place);
  }
  one.synchronize();
  two.synchronize();
  CHECK(values(a) == values(counting({25'000})));
  CHECK(values(b) == values(counting({25'000})));
}
