// The search for all executions (search.cpp), and one run of the program in it (run.cpp).
#pragma once

#include <optional>
#include <ucontext.h>

#include "labs/kit/explorer/execution.hpp"
#include "labs/kit/explorer/story.hpp"

namespace explorer {

enum class Standing : std::uint8_t { ready, at_frontier, waits, done };

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<std::byte[]> stack;
  Standing standing = Standing::ready;
  std::optional<Id> needs;  // the store that the fiber waits for
  bool in_wait = false;
  std::size_t wait_begins = 0;  // index of the first event of the wait's condition
  Site last_site = nullptr;     // call site of the last event, if it was a load
  Key last_key = 0;
  std::size_t last_begins = 0;  // index of the first event of that load
};

// For each byte of plain memory: the last store to it, and the loads since then.
struct Shadow {
  std::uint64_t run = 0;
  std::int16_t writer = -1;
  std::uint16_t written = 0;
  std::uint32_t step = 0;
  std::array<std::uint16_t, kMostThreads> read{};
  std::array<std::uint32_t, kMostThreads> read_step{};
};

class Search {
 public:
  Search(const std::function<Program()>& make, const Options& options)
      : make_(make), options_(options) {}
  Result all();

  // ---- for the threads of the program ----
  Key new_key() { return next_key_++; }
  void declare(Key key, const std::string& name, Value initial);
  [[nodiscard]] bool declared(Key key) const {
    const auto at = places_.find(key);
    return at != places_.end() && execution_.locations[at->second].declared;
  }
  Value load(Key key, Order order, Site site, int bytes);
  void store(Key key, Value value, Order order, int bytes);
  Value update(Key key, const char* name, const Next& next, Order order, Order if_not);
  void fence(Order order);
  void touch(Key first, std::size_t bytes, bool write, const char* name, std::int64_t index,
             const Value* shown);
  void begin_wait();
  void end_wait(bool ready);
  [[noreturn]] void fail(const std::string& what);
  void outcome(const std::string& text) { outcome_ = text; }
  [[nodiscard]] bool in_thread() const { return running_ >= 0 || after_; }

  std::function<void(std::size_t)> switched;

 private:
  void run();
  void follow();
  void extend();
  void conclude();
  void resume(std::size_t thread);
  static void enter();
  [[gnu::noinline]] static void prepare(Fiber& f);
  void give_way();           // switches to the scheduler; returns when the thread is resumed
  [[noreturn]] void drop();  // abandons this run: forbidden by the model, or redundant
  [[noreturn]] void stand_still();
  void await_turn();
  [[nodiscard]] std::size_t self() const { return std::size_t(running_); }
  [[nodiscard]] Fiber& fiber() { return fibers_[self()]; }
  [[nodiscard]] bool guided() const {
    return execution_.events(self()).size() < guide_.threads[self()].size();
  }
  [[nodiscard]] const Guide::Entry& entry() const {
    return guide_.threads[self()][execution_.events(self()).size()];
  }
  [[nodiscard]] std::uint32_t place_of(Key key);
  void end_update();
  [[nodiscard]] Order weakened(std::uint32_t place, Access access, Order order, bool* torn);

  Id choose(Event& load);
  void put(Event& store);
  void revisit(const Event& store);
  [[nodiscard]] bool maximal(const Event& e, const Event& store) const;
  void commit(const Event& event, const char* name);
  void push(Guide guide) { stack_.push_back(std::move(guide)); }
  void note_race(std::uint32_t one, std::uint32_t other);

  const std::function<Program()>& make_;
  const Options& options_;
  Result result_;
  std::vector<Guide> stack_;
  Program program_;
  std::vector<Fiber> fibers_;
  ucontext_t scheduler_{};
  int running_ = -1;
  static constexpr int kFollowing = -2, kNobodys = -1;
  int turn_ = kFollowing;  // the thread that may add events
  bool dropped_ = false, after_ = false;
  Guide guide_;
  Execution execution_;
  Story story_;
  std::unordered_map<Key, std::uint32_t> places_;
  std::unordered_map<Key, Shadow> shadows_;
  Key next_key_ = 1;
  std::string failure_;
  std::pair<std::uint32_t, std::uint32_t> race_;  // the two steps
  std::string outcome_;
};

}  // namespace explorer
