#include "kernels/vgpu/counters.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/order.hpp"
#include "kernels/vgpu/settings.hpp"

namespace vgpu {

namespace {

// By the kernel's address, because finding its name reads the program's file; by name if that is
// all there is. Never destroyed: streams run until the process ends.
struct Counters {
  std::mutex mutex;
  std::map<const void*, Count> of_function;
  std::map<std::string, Count> of_name;
  Counters() {
    if (Settings::get().counters) std::atexit(print);
  }
  static void print();
};
Counters& counters() {
  static auto* const all = new Counters;
  return *all;
}

void Counters::print() {
  std::string text = "vgpu: launches, copies and fills of this process\n";
  std::uint64_t runs = 0, bytes = 0;
  const auto line = [&](const Count& c) {
    char numbers[64];
    std::snprintf(numbers, sizeof numbers, "%10llu %14llu  ",
                  static_cast<unsigned long long>(c.runs),
                  static_cast<unsigned long long>(c.bytes));
    text += numbers + c.name + "\n";
  };
  for (const Count& c : take_counts()) {
    line(c);
    runs += c.runs;
    bytes += c.bytes;
  }
  line({"all", runs, bytes});
  std::fputs(text.c_str(), stderr);
}

void add_launches(Count& count, std::uint64_t runs, std::uint64_t blocks) {
  count.blocks = count.runs == 0 ? blocks : std::min(count.blocks, blocks);
  count.runs += runs;
}

}  // namespace

void count_launch(const Call& call, std::uint64_t blocks) {
  const Quiet quiet;
  Counters& all = counters();
  const std::scoped_lock lock(all.mutex);
  add_launches(call.name != nullptr ? all.of_name[call.name] : all.of_function[call.function], 1,
               blocks);
}

void count_bytes(const char* operation, std::size_t bytes) {
  const Quiet quiet;
  Counters& all = counters();
  const std::scoped_lock lock(all.mutex);
  Count& count = all.of_name[operation];
  ++count.runs;
  count.bytes += bytes;
}

CallCounters& call_counters() {
  static auto* const all = new CallCounters;
  return *all;
}

Calls take_calls() {
  CallCounters& all = call_counters();
  return {all.kernels.exchange(0), all.copies.exchange(0), all.graphs.exchange(0)};
}

std::vector<Count> take_counts() {
  const Quiet quiet;
  std::map<const void*, Count> of_function;
  std::map<std::string, Count> by_name;  // instances of a template may have one name
  {
    Counters& all = counters();
    const std::scoped_lock lock(all.mutex);
    of_function.swap(all.of_function);
    by_name.swap(all.of_name);
  }
  for (const auto& [function, count] : of_function)
    add_launches(by_name[describe_function(function)], count.runs, count.blocks);
  std::vector<Count> counts;
  for (auto& [name, count] : by_name) {
    count.name = name;
    counts.push_back(count);
  }
  std::ranges::stable_sort(counts, std::ranges::greater(), &Count::runs);
  return counts;
}

}  // namespace vgpu
