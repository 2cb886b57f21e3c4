// The nine measuring programs, one row each (main.cpp).
#include <string_view>

#include "labs/apps/perf/perf.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::apps {
namespace {

using comm::Collective;

// Bytes that a link carries per byte of the table's size, with n ranks; the factors of nccl-tests.
constexpr auto kTwice = [](double n) { return 2.0 * (n - 1) / n; };
constexpr auto kOthersParts = [](double n) { return 1.0 * (n - 1) / n; };
constexpr auto kWhole = [](double n) { return n > 1 ? 1.0 : 0.0; };

Expected the_sum(std::size_t i) { return {-1, i}; }
Expected of_rank(int rank, std::size_t i) { return {rank, i}; }
std::size_t own_part(const Element& p) { return static_cast<std::size_t>(p.rank) * p.part; }

// Even ranks send first and odd ranks receive first, so the sends cannot form a cycle.
void shift(const Call& c) {
  const int rank = c.group.rank(), world = c.group.size();
  const int next = comm::wrap(rank + 1, world), previous = comm::wrap(rank - 1, world);
  if (rank % 2 == 0) c.group.send(c.in, next);
  c.group.recv(c.out, previous);
  if (rank % 2 == 1) c.group.send(c.in, next);
}

constexpr Benchmark kBenchmarks[] = {
    {.name = "all_reduce_perf",
     .description = "Measures all_reduce: every rank ends with the sum over all ranks.",
     .collective = Collective::all_reduce,
     .bus_factor = kTwice,
     .run = [](const Call& c) { c.group.all_reduce(c.in, c.out, c.op); },
     .expected = [](const Element& p) { return the_sum(p.i); }},
    {.name = "reduce_scatter_perf",
     .description = "Measures reduce_scatter: rank r ends with part r of the sum over all ranks.",
     .collective = Collective::reduce_scatter,
     .bus_factor = kOthersParts,
     .run = [](const Call& c) { c.group.reduce_scatter(c.in, c.out, c.op); },
     .expected = [](const Element& p) { return the_sum(own_part(p) + p.i); }},
    {.name = "all_gather_perf",
     .description = "Measures all_gather: every rank ends with the parts of all ranks.",
     .collective = Collective::all_gather,
     .bus_factor = kOthersParts,
     .run = [](const Call& c) { c.group.all_gather(c.in, c.out); },
     .expected =
         [](const Element& p) { return of_rank(static_cast<int>(p.i / p.part), p.i % p.part); }},
    {.name = "alltoall_perf",
     .description = "Measures all_to_all: part p of rank r goes to part r of rank p.",
     .collective = Collective::all_to_all,
     .bus_factor = kOthersParts,
     .run = [](const Call& c) { c.group.all_to_all(c.in, c.out); },
     .expected =
         [](const Element& p) {
           return of_rank(static_cast<int>(p.i / p.part), own_part(p) + p.i % p.part);
         }},
    {.name = "broadcast_perf",  // always in place
     .description = "Measures broadcast: every rank ends with the values of root.",
     .collective = Collective::broadcast,
     .bus_factor = kWhole,
     .run = [](const Call& c) { c.group.broadcast(c.out, c.root); },
     .expected = [](const Element& p) { return of_rank(p.root, p.i); },
     .out_of_place = false},
    {.name = "reduce_perf",
     .description = "Measures reduce: root ends with the sum over all ranks.",
     .collective = Collective::reduce,
     .bus_factor = kWhole,
     .run = [](const Call& c) { c.group.reduce(c.in, c.out, c.op, c.root); },
     .expected = [](const Element& p) { return the_sum(p.i); }},
    {.name = "gather_perf",
     .description = "Measures gather: root ends with the parts of all ranks.",
     .collective = Collective::gather,
     .bus_factor = kOthersParts,
     .run = [](const Call& c) { c.group.gather(c.in, c.out, c.root); },
     .expected =
         [](const Element& p) { return of_rank(static_cast<int>(p.i / p.part), p.i % p.part); }},
    {.name = "scatter_perf",
     .description = "Measures scatter: rank r ends with part r of root.",
     .collective = Collective::scatter,
     .bus_factor = kOthersParts,
     .run = [](const Call& c) { c.group.scatter(c.in, c.out, c.root); },
     .expected = [](const Element& p) { return of_rank(p.root, own_part(p) + p.i); }},
    {.name = "sendrecv_perf",
     .description = "Measures send and recv: every rank sends to the next one and receives from "
                    "the one before.",
     .bus_factor = kWhole,
     .run = shift,
     .expected = [](const Element& p) { return of_rank(comm::wrap(p.rank - 1, p.world), p.i); },
     .in_place = false,
     .least_world = 2}};

}  // namespace

int run_benchmark(std::string_view name, int argc, char** argv) {
  for (const Benchmark& b : kBenchmarks)
    if (b.name == name) return run_benchmark(b, argc, argv);
  return static_cast<int>(ExitCode::not_implemented);
}

}  // namespace ringsmith::apps
