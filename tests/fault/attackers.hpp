// Processes that attack a job's sockets, as another or the same user, without its secret word.
#pragma once

#include <atomic>
#include <cstdint>
#include <sys/types.h>

namespace ringsmith::test {

enum class Attack : std::uint8_t {
  silence,       // connects and sends nothing
  junk,          // sends bytes of no protocol, and stops in the middle
  old_greeting,  // from before the secret word was added
  greeting,      // well-formed, but with a guessed word
  flood          // repeatedly opens as many connections as the queue holds
};
inline constexpr Attack kAttacks[] = {Attack::silence, Attack::junk, Attack::old_greeting,
                                      Attack::greeting, Attack::flood};
[[nodiscard]] const char* name_of(Attack attack);

struct Scene {
  static constexpr int kMost = 8;
  static Scene* make();  // shared with child processes
  std::atomic<pid_t> pids[kMost];
  std::atomic<std::uint64_t> sums[kMost];  // computed by the ranks
  std::atomic<int> world, present;         // present: ranks that have set their pid
  std::atomic<int> attacked_meeting, attacked_memory;
  std::atomic<int> connections, loot;  // loot: descriptors that attackers received
  std::atomic<bool> over;

  // Returns false if the counter does not reach the value within 20 s.
  static bool wait_for(const std::atomic<int>& counter, int value);
};

class Attacker {
 public:
  Attacker(Scene& scene, Attack attack, bool as_nobody);
  Attacker(const Attacker&) = delete;
  Attacker& operator=(const Attacker&) = delete;
  ~Attacker();  // kills the attacker
  // True if the attacker completed its attack. Call after setting scene.over.
  [[nodiscard]] bool ended_well();

 private:
  pid_t pid_;
};

}  // namespace ringsmith::test
