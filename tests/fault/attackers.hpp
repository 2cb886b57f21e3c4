// Processes that attack a job through its sockets, as another user or as ours without the word.
#pragma once

#include <atomic>
#include <cstdint>
#include <sys/types.h>

namespace ringsmith::test {

enum class Attack : std::uint8_t {
  silence,       // connects and says nothing
  junk,          // says what is of no protocol, and stops in the middle
  old_greeting,  // what let everybody in when there was no word
  greeting,      // well formed, the right rank, a descriptor of its own; but the word is guessed
  flood          // as many connections as the queue holds, again and again
};
inline constexpr Attack kAttacks[] = {Attack::silence, Attack::junk, Attack::old_greeting,
                                      Attack::greeting, Attack::flood};
[[nodiscard]] const char* name_of(Attack attack);

// Shared by the ranks of a job, its attackers and the test.
struct Scene {
  static constexpr int kMost = 8;
  static Scene* make();  // in memory that children share
  std::atomic<pid_t> pids[kMost];
  std::atomic<std::uint64_t> sums[kMost];              // of what the ranks have computed
  std::atomic<int> world, present;                     // ranks whose pid is there
  std::atomic<int> attacked_meeting, attacked_memory;  // by so many attackers, every rank's socket
  std::atomic<int> connections, loot;                  // descriptors that attackers were given
  std::atomic<bool> over;

  // Until the counter is there; false: 20 s have passed.
  static bool wait_for(const std::atomic<int>& counter, int value);
};

class Attacker {
 public:
  Attacker(Scene& scene, Attack attack, bool as_nobody);
  Attacker(const Attacker&) = delete;
  Attacker& operator=(const Attacker&) = delete;
  ~Attacker();  // kills it
  // After scene.over: did it do all that it was to do?
  [[nodiscard]] bool ended_well();

 private:
  pid_t pid_;
};

}  // namespace ringsmith::test
