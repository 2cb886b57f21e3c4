// The key that seals the elements of kit::Counted. As in loads.cpp, no object of a student's
// program contains it.
#include "labs/kit/counted.hpp"

#include <algorithm>
#include <array>
#include <random>

namespace kit {
namespace {

// Drawn before main, so that all forked processes have the same.
const std::uint64_t key = std::random_device()() | std::uint64_t{std::random_device()()} << 32;

}  // namespace

// The finalizer of SplitMix64 (Steele et al., OOPSLA 2014).
std::uint32_t Counted::seal() const {
  std::uint64_t z = (times_ | std::uint64_t{home_} << 32) + key;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  z += key >> 7;
  z = (z ^ z >> 33) * 0xFF51AFD7ED558CCD;
  return std::uint32_t(z >> 32);
}

// Memory that was set to zero is a zero without a position.
bool Counted::is_genuine() const {
  return seal_ == seal() || (times_ == 0 && home_ == 0 && seal_ == 0);
}

Counted::Counted() : seal_(seal()) {}

Counted& Counted::operator+=(const Counted& other) {
  const bool genuine =
      is_genuine() && other.is_genuine() && home_ != forged && other.home_ != forged;
  std::uint32_t sum = 0;
  for (int r = 0; r < max_world; ++r) sum |= std::min(times(r) + other.times(r), most) << 4 * r;
  times_ = sum;
  if (!genuine)
    home_ = forged;
  else if (home_ == blank)
    home_ = other.home_;
  else if (other.home_ != blank && other.home_ != home_)
    home_ = mixed;
  seal_ = seal();
  return *this;
}

Counted counted(int rank, std::size_t index) {
  Counted one;
  one.times_ = 1U << 4 * rank;
  one.home_ = std::uint32_t(index);
  one.seal_ = one.seal();
  return one;
}

std::vector<std::int64_t> runs_of(std::span<const Counted> buffer) {
  constexpr std::size_t width = 3 + Counted::max_world;
  using Row = std::array<std::int64_t, width - 2>;
  const auto row_of = [&](std::size_t i) {
    const Counted& one = buffer[i];
    Row row{};
    const bool unwritten =
        (one.times_ & one.home_ & one.seal_) == 0xFFFFFFFF;  // labs/kit/guarded.hpp
    if (!one.is_genuine() || one.home_ == Counted::forged)
      row[0] = std::int64_t{3} << 40;
    else if (one.home_ == Counted::blank || one.home_ == Counted::mixed)
      row[0] = std::int64_t{one.home_ == Counted::blank ? 1 : 2} << 40;
    else
      row[0] = std::int64_t(one.home_) - std::int64_t(i);
    for (int r = 0; r < Counted::max_world; ++r)
      row[std::size_t(r) + 1] = unwritten ? 255 : one.times(r);
    return row;
  };
  std::vector<std::int64_t> runs;
  Row last{};
  for (std::size_t i = 0; i < buffer.size(); ++i) {
    const Row row = row_of(i);
    if (i > 0 && row == last) {
      ++runs[runs.size() - width + 1];
      continue;
    }
    if (runs.size() >= 200 * width) break;  // wrong everywhere, so these runs are enough
    runs.insert(runs.end(), {std::int64_t(i), 1});
    runs.insert(runs.end(), row.begin(), row.end());
    last = row;
  }
  return runs;
}

}  // namespace kit
