// Tests the documented order of every sum, with data for which any other order gives other bits.
// Also compares all_reduce with Open MPI's, with data for which all orders agree.
#include <cmath>
#include <mpi.h>
#include <random>

#include "runtime/comm/schedule/ring.hpp"
#include "tests/multi/data.hpp"
#include "tests/multi/group.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

// Values of different magnitudes: almost every reordering of a sum of three changes its last bit.
std::vector<float> wide_values(int rank, std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(rank) * 7919U + static_cast<unsigned>(n));
  std::vector<float> x(n);
  for (float& v : x)
    v = std::ldexp(static_cast<float>(random() % 2000) - 1000.0F, static_cast<int>(random() % 20));
  return x;
}

using Inputs = std::vector<std::vector<float>>;

// The sum that starts with rank `first` and proceeds in steps of +1 or -1.
float sum_from(const Inputs& x, std::size_t i, int first, int direction) {
  const int world = static_cast<int>(x.size());
  float acc = x[static_cast<std::size_t>(first)][i];
  for (int k = 1; k < world; ++k)
    acc = x[static_cast<std::size_t>(wrap(first + direction * k, world))][i] + acc;
  return acc;
}

float tree_sum(const Inputs& x, std::size_t i, std::size_t first, std::size_t span) {
  if (span == 1) return x[first][i];
  const float left = tree_sum(x, i, first, span / 2);
  return first + span / 2 < x.size() ? tree_sum(x, i, first + span / 2, span / 2) + left : left;
}

std::vector<float> documented(Algorithm algorithm, const Inputs& x, std::size_t n) {
  const int world = static_cast<int>(x.size());
  std::vector<float> result(n);
  const bool gloo = algorithm == Algorithm::gloo_ring;
  const auto chunks = gloo ? gloo_chunks(world, n, sizeof(float)) : split_evenly(n, world);
  std::size_t span = 1;
  while (span < x.size()) span *= 2;
  for (int c = 0; c < world; ++c) {
    const Chunk& chunk = chunks[static_cast<std::size_t>(c)];
    for (std::size_t i = chunk.offset; i < chunk.offset + chunk.count; ++i) switch (algorithm) {
        case Algorithm::ring:
        case Algorithm::plain_ring:
          result[i] = sum_from(x, i, wrap(c + 1, world), +1);
          break;
        case Algorithm::gloo_ring:
          result[i] = sum_from(x, i, wrap(c - 1, world), -1);
          break;
        case Algorithm::tree:
          result[i] = tree_sum(x, i, 0, span);
          break;
        default:
          result[i] = sum_from(x, i, c, +1);
      }
  }
  return result;
}

}  // namespace

TEST_CASE("every algorithm adds in its documented order, in every kind of memory",
          "[multi][comm]") {
  ProcessGroup& g = group();
  for (const std::size_t n : {10, 6007, 300'007}) {
    Inputs x;
    for (int r = 0; r < g.size(); ++r) x.push_back(wide_values(r, n));
    for (const auto algorithm : {Algorithm::ring, Algorithm::plain_ring, Algorithm::gloo_ring,
                                 Algorithm::direct, Algorithm::tree}) {
      const std::vector<float> answer = documented(algorithm, x, n);
      g.set_algorithm(algorithm);
      for (const bool own : {false, true}) {
        INFO(name_of(algorithm) << ", " << n << (own ? ", own memory" : ", user memory"));
        Guarded<float> data(g, own, n);
        data.fill([&](std::size_t i) { return x[static_cast<std::size_t>(g.rank())][i]; });
        g.all_reduce(data.buffer());
        CHECK(data.wrong([&](std::size_t i) { return answer[i]; }) == 0);
      }
    }
  }
  g.set_algorithm(Algorithm::automatic);
}

TEST_CASE("small messages are added in rank order, larger ones as direct or ring, by default",
          "[multi][comm]") {
  ProcessGroup& g = group();
  const bool on_host = g.device().is_cpu() || g.options().transport == Transport::tcp;  // staged
  for (const std::size_t n : {10, 8191, 300'007, 2'100'003}) {  // 32 KiB - 4, 1.1 MiB, 8.01 MiB
    Inputs x;
    for (int r = 0; r < g.size(); ++r) x.push_back(wide_values(r, n));
    for (const bool own : {false, true}) {
      INFO(n << (own ? ", own memory" : ", user memory"));
      const bool direct = on_host || (own && n == 300'007);
      const auto large = documented(direct ? Algorithm::direct : Algorithm::ring, x, n);
      Guarded<float> data(g, own, n);
      data.fill([&](std::size_t i) { return x[static_cast<std::size_t>(g.rank())][i]; });
      g.all_reduce(data.buffer());
      CHECK(data.wrong([&](std::size_t i) { return n == 10 ? sum_from(x, i, 0, +1) : large[i]; }) ==
            0);
    }
  }
}

namespace {

template <class T>
void compare_with_mpi(MPI_Datatype type, ReduceOp op, MPI_Op mpi_op) {
  ProcessGroup& g = group();
  for (const std::size_t n : {1, 1031, 100'003}) {
    std::vector<T> mine(n), theirs(n);
    for (std::size_t i = 0; i < n; ++i) {
      mine[i] = contribution<T>(op, g.size(), g.rank(), i, 77);
      // Open MPI's vectorised u8 sum saturates at 255, but ours wraps, so values are small.
      if constexpr (std::is_same_v<T, std::uint8_t>)
        mine[i] = op == ReduceOp::sum ? mine[i] % 16 : mine[i];
    }
    MPI_Allreduce(mine.data(), theirs.data(), static_cast<int>(n), type, mpi_op, MPI_COMM_WORLD);
    g.all_reduce(std::span(mine), op);
    INFO(name_of(dtype_of<T>()) << ", " << n << " elements");
    CHECK(mine == theirs);
  }
}

}  // namespace

TEST_CASE("all_reduce gives the bits of MPI_Allreduce where the sum is exact", "[multi][comm]") {
  const std::pair<ReduceOp, MPI_Op> ops[] = {{ReduceOp::sum, MPI_SUM},
                                             {ReduceOp::prod, MPI_PROD},
                                             {ReduceOp::min, MPI_MIN},
                                             {ReduceOp::max, MPI_MAX}};
  for (const auto& [op, mpi_op] : ops) {
    INFO(name_of(op));
    compare_with_mpi<float>(MPI_FLOAT, op, mpi_op);
    compare_with_mpi<double>(MPI_DOUBLE, op, mpi_op);
    compare_with_mpi<std::int32_t>(MPI_INT32_T, op, mpi_op);
    compare_with_mpi<std::int64_t>(MPI_INT64_T, op, mpi_op);
    compare_with_mpi<std::uint8_t>(MPI_UINT8_T, op, mpi_op);
  }
}
