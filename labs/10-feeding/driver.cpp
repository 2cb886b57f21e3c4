// Runs the student's sampler and loader.
#include LAB10_SAMPLER
#include LAB10_LOADER

#include "labs/kit/driver.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>

#include "labs/kit/granted.hpp"
#include "labs/kit/races/races.hpp"

namespace {

// If a test asks for it, a thread sleeps after it has notified, so that the woken threads check
// their conditions first. Therefore a program that notifies too early deadlocks every time.
std::atomic<bool> slow_to_go_on = false;
void pause_of_notifier() {
  if (slow_to_go_on) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace

// These replace the standard library's functions.
void std::condition_variable::notify_one() noexcept {
  pthread_cond_signal(native_handle());
  pause_of_notifier();
}
void std::condition_variable::notify_all() noexcept {
  pthread_cond_broadcast(native_handle());
  pause_of_notifier();
}

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

struct Unreadable {  // not a std::exception
  std::int64_t sample;
};

struct CannotBeRead : std::runtime_error {
  explicit CannotBeRead(std::int64_t sample)
      : std::runtime_error("sample " + std::to_string(sample) + " cannot be read") {}
};

// A data set that counts the fetches that have begun and ended, and can delay them or make a batch
// wait for others.
class Shelf {
 public:
  struct Batch {  // movable, but not copyable
    std::unique_ptr<std::vector<std::int64_t>> ids;
  };
  explicit Shelf(const kit::Request& in)
      : order_(in.integers("order")),
        batch_(in.integer("batch")),
        late_(in.integer("late", -1)),
        late_for_(in.integer("late_for", 0)),
        awaited_(in.integer("awaited", -1)),
        together_(in.integer("together", 0)),
        meeting_(in.integer("meeting", -1)),
        guests_(in.integer("guests", 0)),
        slow_us_(in.integer("slow_us", 0)),
        seed_(std::uint64_t(in.integer("seed"))),
        throws_(in.integers("throws")),
        throws_plain_(in.integer("throws_plain", 0) != 0) {}

  Batch fetch(std::span<const std::int64_t> ids) {
    if (closed) ++after_the_end;
    const std::int64_t number = number_of(ids);
    const std::int64_t now = ++running;
    for (std::int64_t seen = most_running; seen < now;)
      if (most_running.compare_exchange_weak(seen, now)) break;
    const std::int64_t ahead = ++begun - asked;
    for (std::int64_t seen = most_ahead; seen < ahead;)
      if (most_ahead.compare_exchange_weak(seen, ahead)) break;
    if (number == late_) wait_for([&] { return ended >= late_for_; });
    if (number == awaited_) {  // while next() waits for this batch, workers may fetch too far ahead
      wait_for([&] { return asked > number; });
      kit::let_others_run(milliseconds(30));
      begun_while_awaited = std::int64_t(begun);
    }
    if (together_ > 0 && number < together_) wait_for([&] { return most_running >= together_; });
    if (number >= meeting_ && number < meeting_ + guests_) {  // these batches, and no others
      ++arrived;
      kit::wait_at_most(milliseconds(1000), [&] { return arrived >= guests_; });
      if (arrived >= guests_) ++met;
    }
    if (slow_us_ > 0) {
      std::mt19937_64 random(seed_ + std::uint64_t(number));
      std::this_thread::sleep_for(microseconds(random() % std::uint64_t(slow_us_)));
    }
    --running;
    ++ended;
    const bool fails = std::find(throws_.begin(), throws_.end(), number) != throws_.end();
    if (fails && throws_plain_) throw Unreadable{ids[0]};
    if (fails) throw CannotBeRead(ids[0]);
    return {std::make_unique<std::vector<std::int64_t>>(ids.begin(), ids.end())};
  }

  template <class Condition>
  void wait_for(Condition done) const {  // at most 4 s: a wrong loader must not hang the test
    kit::wait_at_most(milliseconds(4000), done);
  }

  std::atomic<std::int64_t> begun = 0, ended = 0, asked = 0, running = 0, most_running = 0,
                            most_ahead = 0, after_the_end = 0, begun_while_awaited = 0, arrived = 0,
                            met = 0;
  std::atomic<bool> closed = false;

 private:
  std::int64_t number_of(std::span<const std::int64_t> ids) const {
    if (ids.empty()) throw kit::Misuse{"fetch was called with no samples at all"};
    const auto at = std::find(order_.begin(), order_.end(), ids[0]);
    return at == order_.end() ? -1 : (at - order_.begin()) / batch_;
  }
  std::vector<std::int64_t> order_;
  std::int64_t batch_, late_, late_for_, awaited_, together_, meeting_, guests_, slow_us_;
  std::uint64_t seed_;
  std::vector<std::int64_t> throws_;
  bool throws_plain_;
};

Shelf* watched = nullptr;  // for the report of a hang

std::string where_it_stands() {
  if (!watched) return "";
  char text[160];
  std::snprintf(
      text, sizeof text, "  next() was called %d times; fetches: %d begun, %d ended, %d running\n",
      int(watched->asked), int(watched->begun), int(watched->ended), int(watched->running));
  return text;
}

lab10::SamplerOptions options_of(const kit::Request& in, int rank) {
  return {int(in.integer("world")), rank, in.integer("shuffle") != 0,
          std::uint64_t(in.integer("sampler_seed")), in.integer("drop_last") != 0};
}

}  // namespace

KIT_SCENARIO(permutations) {
  const std::vector<std::int64_t> sizes = in.integers("n"), seeds = in.integers("seeds");
  for (std::size_t i = 0; i < sizes.size(); ++i)
    out.put("order." + std::to_string(i), lab10::randperm(sizes[i], std::uint64_t(seeds[i])));
}

// Reports, for each rank (or each of `ranks`), the indices of each epoch in turn, from one sampler
// object per rank.
KIT_SCENARIO(shares) {
  const std::vector<std::int64_t> epochs = in.integers("epochs"), used = in.integers("used");
  // Two other samplers must not affect the observed ones: `other`, of a data set with one sample,
  // and a sampler with another seed.
  lab10::DistributedSampler other(1, {.shuffle = false});
  (void)other.indices();
  if (in.integer("samples") < 1 << 20) {
    const std::uint64_t seed = std::uint64_t(in.integer("sampler_seed")) + 77;
    (void)lab10::DistributedSampler(in.integer("samples"), {.seed = seed}).indices();
  }
  std::vector<std::int64_t> ranks(std::size_t(in.integer("world")));
  std::iota(ranks.begin(), ranks.end(), 0);
  if (in.has("ranks")) ranks = in.integers("ranks");
  for (const std::int64_t rank : ranks) {
    lab10::DistributedSampler sampler(in.integer("samples"), options_of(in, int(rank)));
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i < epochs.size(); ++i) {
      // For epoch -1, set_epoch is not called. If nothing is used, set_epoch gets only the epoch,
      // as in the usual loop.
      if (epochs[i] >= 0 && used[i] == 0)
        sampler.set_epoch(epochs[i]);
      else if (epochs[i] >= 0)
        sampler.set_epoch(epochs[i], used[i]);
      other.set_epoch(5, 1);  // must not affect `sampler`
      const std::string name = "share." + std::to_string(i) + "." + std::to_string(rank);
      sizes.push_back(sampler.size());
      out.put(name, sampler.indices());
    }
    out.put("size." + std::to_string(rank), sizes);
  }
}

KIT_SCENARIO(seeds) {
  std::vector<std::int64_t> found;
  for (const std::int64_t seed : in.integers("seeds"))
    for (const std::int64_t epoch : in.integers("epochs"))
      for (const std::int64_t id : in.integers("samples"))
        found.push_back(std::int64_t(lab10::sample_seed(std::uint64_t(seed), epoch, id)));
  out.put("seeds", found);
}

KIT_SCENARIO(load) {
  static Shelf shelf(in);
  watched = &shelf;
  kit::describe_hangs_with(where_it_stands);
  const lab10::LoaderOptions options{in.integer("batch"), int(in.integer("workers")),
                                     int(in.integer("ahead")), in.integer("drop_last", 0) != 0};
  const std::int64_t takes = in.integer("takes", -1);  // calls of next(); -1: until the end
  const std::int64_t ahead = options.ahead;
  const std::int64_t rest_after = in.integer("rest_after", -1), rest = in.integer("rest", 0);
  const std::int64_t batches = in.integer("rest_always", 0);  // rests before this many batches
  std::vector<std::int64_t> ids, lengths, begun_at;
  std::string errors;
  {
    lab10::Loader<Shelf::Batch> loader(
        in.integers("order"), options,
        [](std::span<const std::int64_t> wanted) { return shelf.fetch(wanted); });
    for (std::int64_t take = 0; takes < 0 || take < takes; ++take) {
      if (take == rest_after) {  // the training step, in which workers may fetch too far ahead
        shelf.wait_for([&] { return shelf.begun >= rest; });
        kit::let_others_run(milliseconds(20));
        out.put("begun_at_rest", std::int64_t(shelf.begun));
      }
      if (take < batches && (take == 0 || begun_at.back() == std::min(take - 1 + ahead, batches))) {
        shelf.wait_for([&] { return shelf.begun >= std::min(take + ahead, batches); });
        kit::let_others_run(milliseconds(2));
        begun_at.push_back(shelf.begun);
      }
      ++shelf.asked;
      try {
        std::optional<Shelf::Batch> batch = loader.next();
        if (!batch) break;
        ids.insert(ids.end(), batch->ids->begin(), batch->ids->end());
        lengths.push_back(std::int64_t(batch->ids->size()));
      } catch (const CannotBeRead& error) {
        errors += std::to_string(take) + ": " + error.what() + "\n";
        lengths.push_back(-1);
      } catch (const std::runtime_error& error) {
        errors +=
            std::to_string(take) + ": " + error.what() + " (not of the type that fetch threw)\n";
        lengths.push_back(-1);
      } catch (const Unreadable& error) {
        errors +=
            std::to_string(take) + ": sample " + std::to_string(error.sample) + " cannot be read\n";
        lengths.push_back(-1);
      }
    }
    if (takes < 0) {
      const bool first = loader.next().has_value(), second = loader.next().has_value();
      out.put("again", first || second);
    }
    if (in.has("idle_at")) {  // the loader is destroyed while its workers sleep
      shelf.wait_for([&] { return shelf.ended >= in.integer("idle_at"); });
      kit::let_others_run(milliseconds(10));
      slow_to_go_on = true;
    }
  }
  slow_to_go_on = false;
  shelf.closed = true;
  const std::int64_t begun = shelf.begun;
  kit::let_others_run(milliseconds(in.integer("linger_ms", 0)));
  out.put("ids", ids);
  out.put("lengths", lengths);
  out.put("errors", errors);
  out.put("begun_at", begun_at);
  out.put("begun", begun);
  out.put("most_running", std::int64_t(shelf.most_running));
  out.put("met", std::int64_t(shelf.met));
  out.put("most_ahead", std::int64_t(shelf.most_ahead));
  out.put("begun_while_awaited", std::int64_t(shelf.begun_while_awaited));
  out.put("still_running", std::int64_t(shelf.running));
  out.put("after_the_end", std::int64_t(shelf.after_the_end));
}

// Runs two loaders simultaneously, each in its own thread, with batches of different lengths.
KIT_SCENARIO(two_loaders) {
  const std::vector<std::int64_t> order = in.integers("order"), batch = in.integers("batch");
  std::vector<std::int64_t> ids[2];
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i)
    threads.emplace_back([&, i] {
      lab10::Loader<std::vector<std::int64_t>> loader(
          order, {batch[i], 2, 4, false}, [](std::span<const std::int64_t> wanted) {
            return std::vector<std::int64_t>(wanted.begin(), wanted.end());
          });
      while (const auto one = loader.next()) {
        ids[i].push_back(-std::int64_t(one->size()));
        ids[i].insert(ids[i].end(), one->begin(), one->end());
      }
    });
  for (std::thread& reader : threads) reader.join();
  out.put("first", ids[0]);
  out.put("second", ids[1]);
}

// Runs a loader whose memory is watched. Fetches take some time, so that next() is called before a
// batch is ready. Some fetches throw.
KIT_SCENARIO(races) {
  using Batch = std::vector<std::int64_t>;
  using Loader = lab10::Loader<Batch>;
  const lab10::LoaderOptions options{2, int(in.integer("workers")), int(in.integer("ahead")),
                                     false};
  alignas(Loader) std::byte place[sizeof(Loader)];
  kit::races::begin(place, sizeof place);
  auto* const loader =
      new (place) Loader(in.integers("order"), options, [](std::span<const std::int64_t> wanted) {
        std::this_thread::sleep_for(milliseconds(1));
        if (wanted[0] % 5 == 0) throw std::runtime_error("cannot be read");
        return Batch(wanted.begin(), wanted.end());
      });
  kit::races::end_of_allocations();
  std::int64_t given = 0;
  for (bool more = true; more && given != in.integer("takes");) {
    try {
      more = loader->next().has_value();
    } catch (const std::runtime_error&) {
    }
    given += more;
  }
  std::destroy_at(loader);
  out.put("race", kit::races::end());
  out.put("given", given);
}
