// Declares to ThreadSanitizer the order of operations that CUDA promises.
//
// In the tsan build, host, streams and CUDA threads must be ordered only as CUDA promises: launch
// after the host's earlier writes, stream order, events, synchronisation, barriers, atomics. The
// emulator's own mutexes would order far more and hide the very errors that it is meant to find.
// Therefore its code runs Quiet, i.e. invisible to the detector. Each promised order is declared
// outside of Quiet, by happens_before(object) on one side and happens_after(object) on the other.
#pragma once

#if defined(VGPU_TSAN)
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_set_fiber_name(void* fiber, const char* name);
}
namespace vgpu {
// Flags of a switch: the accesses of the new fiber are ordered after those of the old one, or not.
inline constexpr unsigned kInOrder = 0, kWithoutOrder = 1;
}  // namespace vgpu
#endif

namespace vgpu {

#if defined(VGPU_TSAN)
inline constexpr bool kTsan = true;
inline void look_away() {
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
inline void look_again() {
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
}
inline void happens_before(void* object) { __tsan_release(object); }
inline void happens_after(void* object) { __tsan_acquire(object); }
#else
inline constexpr bool kTsan = false;
inline void look_away() {}
inline void look_again() {}
inline void happens_before(void*) {}
inline void happens_after(void*) {}
#endif

// The detector ignores the thread while this object exists.
class Quiet {
 public:
  Quiet() { look_away(); }
  ~Quiet() { look_again(); }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

// Suspends the thread's innermost Quiet while this object exists, e.g. to call the user's code.
class Loud {
 public:
  Loud() { look_again(); }
  ~Loud() { look_away(); }
  Loud(const Loud&) = delete;
  Loud& operator=(const Loud&) = delete;
};

// happens_before() and happens_after() for code that is Quiet. With two nested Quiets they declare
// nothing.
inline void declare_before(void* object) {
  const Loud loud;
  happens_before(object);
}
inline void declare_after(void* object) {
  const Loud loud;
  happens_after(object);
}

}  // namespace vgpu
