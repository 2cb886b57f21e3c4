#include "labs/kit/nodes/whereabouts.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <sys/mman.h>

namespace kit {
namespace {

constexpr int most = 512;  // processes in one run

struct Shared {
  std::atomic<int> taken;
  Whereabouts all[most];
};

template <std::size_t size>
void copy_text(char (&to)[size], const std::string& text) {
  std::strncpy(to, text.c_str(), size - 1);
  to[size - 1] = '\0';
}

// Mapped in the driver before the first fork, so all processes share it.
Shared& shared() {
  static Shared& one = [&]() -> Shared& {
    void* at =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return *static_cast<Shared*>(at);
  }();
  return one;
}

Whereabouts*& own() {
  static Whereabouts* one = &new_whereabouts("the driver");
  return one;
}

int taken() { return std::min(shared().taken.load(), most); }

}  // namespace

Whereabouts& new_whereabouts(const std::string& who) {
  const int index = shared().taken++;
  if (index >= most) throw std::runtime_error("more than 512 processes in one run");
  copy_text(shared().all[index].who, who);
  return shared().all[index];
}

Whereabouts& whereabouts() { return *own(); }
void be_at(Whereabouts& mine) { own() = &mine; }

Doing::Doing(const std::string& what) { copy_text(whereabouts().what, what); }
Doing::~Doing() { copy_text(whereabouts().what, ""); }

std::string describe_whereabouts() {
  std::string text;
  for (int i = 0; i < taken(); ++i) {
    const Whereabouts& one = shared().all[i];
    if (one.ended) continue;
    text += "  " + std::string(one.who) + ": " +
            (one.what[0] ? one.what : "running, not in a call of the kit") + '\n';
  }
  return text;
}

int processes_that_asked(const std::string& but) {
  int found = 0;
  for (int i = 0; i < taken(); ++i) {
    const Whereabouts& one = shared().all[i];
    found += one.requests > 0 && std::string(one.who).find(but) == std::string::npos;
  }
  return found;
}

}  // namespace kit
