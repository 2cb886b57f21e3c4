#include "runtime/tensor/tensor.hpp"

#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/support/catch.hpp"

using namespace ringsmith;

namespace {

Tensor counted(const Shape& shape) { return arange(numel_of(shape)).view(shape); }
std::vector<std::int64_t> values(const Tensor& t) { return t.to_vector<std::int64_t>(); }
using I = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("views share storage and show it under their strides", "[tensor]") {
  const Tensor t = counted({2, 3});
  REQUIRE(values(t.transpose(0, 1)) == I{0, 3, 1, 4, 2, 5});
  REQUIRE(values(t.permute({1, 0})) == I{0, 3, 1, 4, 2, 5});
  REQUIRE(values(t.slice(1, 0, 3, 2)) == I{0, 2, 3, 5});
  REQUIRE(values(t.slice(1, -2, 100)) == I{1, 2, 4, 5});
  REQUIRE(t.slice(0, 2, 1).sizes() == Shape{0, 3});
  REQUIRE(values(t.select(-1, -1)) == I{2, 5});
  REQUIRE(values(t.view({3, -1})) == I{0, 1, 2, 3, 4, 5});
  REQUIRE(values(t.select(0, 1).unsqueeze(0).expand({2, 3})) == I{3, 4, 5, 3, 4, 5});
  REQUIRE(t.unsqueeze(-1).sizes() == Shape{2, 3, 1});
  REQUIRE(t.unsqueeze(1).squeeze(1).sizes() == t.sizes());
  REQUIRE(t.squeeze(0).sizes() == t.sizes());
  t.transpose(0, 1).select(0, 1).fill_(9);
  REQUIRE(values(t) == I{0, 9, 2, 3, 9, 5});
  REQUIRE(values(t.as_strided({2, 2}, {1, 2}, 1)) == I{9, 3, 2, 9});
}

TEST_CASE("view() accepts every layout that needs no copy and refuses the others", "[tensor]") {
  const Tensor t = counted({4, 3, 2});
  const Tensor gap = t.slice(0, 0, 4, 2);  // {2,3,2}, strides {12,2,1}: the inner two are one chunk
  REQUIRE(values(gap.view({2, 6})) == I{0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17});
  REQUIRE(values(gap.view({1, 2, 2, 1, 3})) == values(gap));
  REQUIRE_THROWS_WITH(gap.view({12}), ContainsSubstring("without a copy"));
  REQUIRE_THROWS_AS(t.transpose(1, 2).view({4, 6}), UsageError);
  REQUIRE(values(t.transpose(0, 1).view({3, 2, 2, 2})) == values(t.transpose(0, 1)));
  REQUIRE_FALSE(t.transpose(0, 1).view({3, 2, 2, 2}).is_contiguous());
  REQUIRE(values(gap.reshape({12})) == values(gap));
  REQUIRE(gap.reshape({2, 6}).storage() == t.storage());
  REQUIRE_FALSE(gap.reshape({12}).storage() == t.storage());
}

TEST_CASE("tensors without elements, and without dimensions, pass through everything", "[tensor]") {
  for (const Shape& shape : {Shape{0}, Shape{0, 3}, Shape{3, 0, 2}}) {
    const Tensor t = Tensor::empty(shape);
    REQUIRE(t.numel() == 0);
    REQUIRE(t.is_contiguous());
    REQUIRE(t.clone().sizes() == shape);
    REQUIRE(t.transpose(0, -1).contiguous().numel() == 0);
    REQUIRE(t.to(DType::f64).to_vector<double>().empty());
    REQUIRE(t.view({0, 7}).sizes() == Shape{0, 7});
    t.fill_(1);
  }
  const Tensor s = scalar(3.5);
  REQUIRE(s.item<float>() == 3.5F);
  REQUIRE(s.view({1, 1}).expand({2, 3}).to_vector<float>() == std::vector<float>(6, 3.5F));
  REQUIRE(s.str() == "3.5 f32 []");
}

TEST_CASE("is_contiguous ignores the strides of single elements", "[tensor]") {
  const Tensor t = counted({3, 1, 2});
  REQUIRE(t.transpose(0, 1).is_contiguous());
  REQUIRE_FALSE(t.transpose(0, 2).is_contiguous());
  REQUIRE_FALSE(counted({1, 3}).expand({2, 3}).is_contiguous());
}

TEST_CASE("copy_ broadcasts, converts, and survives overlap", "[tensor]") {
  const Tensor t = zeros({2, 3});
  t.copy_(from_vector<std::int64_t>({1, 2, 3}));
  REQUIRE(t.to_vector<float>() == std::vector<float>{1, 2, 3, 1, 2, 3});
  const Tensor row = counted({6});
  row.slice(0, 1, 6).copy_(row.slice(0, 0, 5));
  REQUIRE(values(row) == I{0, 0, 1, 2, 3, 4});
  const Tensor square = counted({3, 3});
  square.copy_(square.transpose(0, 1));
  REQUIRE(values(square) == I{0, 3, 6, 1, 4, 7, 2, 5, 8});
  REQUIRE_THROWS_WITH(t.copy_(zeros({2, 2})), ContainsSubstring("[2, 2]"));
}

TEST_CASE("conversions between all dtypes keep small integers", "[tensor]") {
  const std::vector<DType> all{DType::f32, DType::f16, DType::bf16, DType::f64,
                               DType::i32, DType::i64, DType::u8,   DType::boolean};
  const Tensor t = from_vector<std::int64_t>({0, 1, 1, 0, 1, 0}, {2, 3}).transpose(0, 1);
  for (const DType a : all)
    for (const DType b : all) {
      const Tensor there = t.to(a).to(b);
      REQUIRE(there.dtype() == b);
      REQUIRE(values(there.to(DType::i64)) == values(t));
    }
  const Tensor odd = from_vector<float>({-2.75F, 1e10F, NAN});
  REQUIRE(odd.to(DType::boolean).to_vector<bool>() == std::vector<bool>{true, true, true});
  REQUIRE(odd.slice(0, 0, 2).to(DType::i64).to_vector<std::int64_t>() == I{-2, 10000000000});
  REQUIRE(std::isnan(odd.to(DType::bf16).to(DType::f64).to_vector<double>()[2]));
}

TEST_CASE("misuse is answered with the shape and the remedy", "[tensor]") {
  const Tensor t = counted({2, 3});
  REQUIRE_THROWS_WITH(t.view({4}), ContainsSubstring("[2, 3]") && ContainsSubstring("[4]"));
  REQUIRE_THROWS_WITH(t.data<float>(), ContainsSubstring("i64") && ContainsSubstring("f32"));
  REQUIRE_THROWS_WITH((t.transpose(0, 1).span<std::int64_t>()), ContainsSubstring("contiguous()"));
  REQUIRE_THROWS_WITH(t.item<std::int64_t>(), ContainsSubstring("one element"));
  REQUIRE_THROWS_AS(t.size(2), UsageError);
  REQUIRE_THROWS_AS(t.expand({3, 3}), UsageError);
  REQUIRE_THROWS_AS(t.expand({3}), UsageError);
  REQUIRE_THROWS_AS(t.permute({0, 0}), UsageError);
  REQUIRE_THROWS_AS(t.permute({0}), UsageError);
  REQUIRE_THROWS_AS(t.select(0, 2), UsageError);
  REQUIRE_THROWS_AS(t.slice(0, 0, 2, 0), UsageError);
  REQUIRE_THROWS_AS(t.as_strided({7}, {1}, 0), UsageError);
  REQUIRE_THROWS_AS(t.as_strided({2}, {1}, -1), UsageError);
  REQUIRE_THROWS_AS(Tensor::empty({-1}), UsageError);
  REQUIRE_THROWS_AS(Tensor::empty({1LL << 40, 1LL << 40}), UsageError);
  REQUIRE_THROWS_AS(Tensor::empty({1}, {DType::f32, Device::cuda(99)}), UsageError);
  REQUIRE_THROWS_AS(Tensor().sizes(), UsageError);
  REQUIRE_THROWS_AS(from_vector<float>({1, 2}, {3}), UsageError);
}

TEST_CASE("writes through any view are counted for the whole storage", "[tensor]") {
  const Tensor t = zeros({2, 3});
  const std::uint32_t before = t.version();
  t.transpose(0, 1).select(0, 0).fill_(1);
  t.detach().copy_(t.clone());
  REQUIRE(t.version() == before + 2);
}

TEST_CASE("adopted memory is used in place, and kept until the last view is gone", "[tensor]") {
  auto memory = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3, 4});
  const std::weak_ptr<void> alive = memory;
  Tensor part;
  {
    const auto storage = Storage::adopt(reinterpret_cast<std::byte*>(memory->data()),
                                        Bytes(4 * sizeof(float)), memory);
    part = Tensor::from_storage(storage, {2}, {1}, 2, DType::f32);
    REQUIRE(part.data<float>() == memory->data() + 2);
  }
  memory.reset();
  REQUIRE(part.to_vector<float>() == std::vector<float>{3, 4});
  part = Tensor();
  REQUIRE(alive.expired());
}

TEST_CASE("is_sole_owner is false as soon as anything else holds the memory", "[tensor]") {
  Tensor t = zeros({4});
  REQUIRE(t.is_sole_owner());
  {
    const Tensor same = t;
    REQUIRE_FALSE(t.is_sole_owner());
  }
  {
    const Tensor other = t.detach();
    REQUIRE_FALSE(t.is_sole_owner());
  }
  REQUIRE(t.is_sole_owner());
  REQUIRE_FALSE(zeros({4}).slice(0, 0, 2).is_sole_owner());
  std::array<float, 4> memory{};  // adopted: its real owner may read it
  auto storage =
      Storage::adopt(reinterpret_cast<std::byte*>(memory.data()), Bytes(sizeof memory), nullptr);
  const Tensor over = Tensor::from_storage(std::move(storage), {4}, {1}, 0, DType::f32);
  REQUIRE_FALSE(over.is_sole_owner());
}

TEST_CASE("large tensors print their edges only", "[tensor]") {
  REQUIRE(counted({2, 2}).str() == "[[0, 1], [2, 3]] i64 [2, 2]");
  REQUIRE(counted({2000}).str() == "[0, 1, 2, ..., 1997, 1998, 1999] i64 [2000]");
}

TEST_CASE("sizes, strides and steps whose products do not fit are refused, not wrapped around") {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62,
                         kEnd = std::numeric_limits<std::int64_t>::max();
  const Tensor one = ones({1}), three = ones({3});
  const auto refused = [](const std::function<void()>& body) {
    CHECK_THROWS_AS(body(), UsageError);
    CHECK_THROWS_WITH(body(),
                      ContainsSubstring("too large") || ContainsSubstring("cannot allocate"));
  };
  const Tensor wide = one.expand({kHuge});
  CHECK(wide.numel() == kHuge);
  refused([&] { (void)wide.contiguous(); });
  refused([&] { (void)wide.clone(); });
  refused([&] { (void)wide.to(DType::f64); });
  refused([&] { (void)one.expand({kHuge, 4}); });
  refused([&] { (void)size_in_bytes(wide); });
  for (const DType dtype : {DType::u8, DType::boolean, DType::f16, DType::f32, DType::f64})
    for (const Shape& shape : {Shape{kHuge}, Shape{kEnd}, Shape{kHuge / 4, 4}, Shape{kHuge, 4},
                               Shape{std::int64_t{1} << 32, std::int64_t{1} << 31}})
      refused([&] { (void)Tensor::empty(shape, {dtype}); });
  refused([&] { (void)Tensor::empty({0, kHuge, 4}); });
  refused([&] { (void)one.view({kHuge, 4, -1}); });
  refused([&] { (void)one.reshape({kHuge, 4}); });
  refused([&] { (void)three.as_strided({3}, {kHuge}, 0); });
  refused([&] { (void)three.as_strided({3}, {1}, kEnd); });
  refused([&] { (void)arange(0, 1e300); });
  refused([&] { (void)arange(0, 1, 1e-300); });
  CHECK(three.slice(0, 0, 3, kEnd).to_vector<float>() == std::vector<float>{1});
  CHECK(three.slice(0, -kEnd, kEnd, 1).numel() == 3);
  CHECK(three.slice(0, kEnd, -kEnd, 1).numel() == 0);
}
