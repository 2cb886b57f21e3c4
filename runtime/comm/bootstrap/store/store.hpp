// The store: a small table of texts that all processes of a job can read and write, and wait for.
//
// It is what ranks have in common before they can talk to each other: they leave their addresses
// here and find those of the others. Nothing large and nothing frequent goes through it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ringsmith::comm {

inline constexpr std::size_t kMostKey = 512;                          // bytes
inline constexpr std::size_t kMostValue = std::size_t{256} << 10;     // bytes
inline constexpr std::size_t kMostKeysAtOnce = std::size_t{1} << 14;  // of one wait

class Store {
 public:
  using Milliseconds = std::chrono::milliseconds;
  virtual ~Store() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits until the key exists. TimeoutError naming it when the time is over.
  [[nodiscard]] virtual std::string get(const std::string& key, Milliseconds timeout) = 0;
  // A counter, kept as a decimal text; a missing key counts as 0. The new value. UsageError if the
  // key holds something that is not a number, or the sum does not fit 64 bits.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  // Waits until all keys exist; those that are still missing when the time is over (0: look once).
  [[nodiscard]] virtual std::vector<std::string> wait(const std::vector<std::string>& keys,
                                                      Milliseconds timeout) = 0;
  // Writes `desired` if the key holds `expected`, where a missing key holds "". What it holds
  // afterwards: `desired` for the one who was first, the first one's text for all others.
  virtual std::string compare_and_swap(const std::string& key, const std::string& expected,
                                       const std::string& desired) = 0;
  virtual bool remove(const std::string& key) = 0;  // was it there?
  // What the store is to write when this client's connection ends, however it ends: `value` into
  // the first of the keys that holds nothing. Replaces an earlier will. This is how the death of a
  // process becomes a word to those that wait for it.
  virtual void leave_will(const std::vector<std::string>& keys, const std::string& value) = 0;

  // For messages: "the store at 10.0.0.1:29500".
  [[nodiscard]] virtual std::string name() const = 0;
};

}  // namespace ringsmith::comm
