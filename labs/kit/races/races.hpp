// Finds data races in a student's objects: two accesses to the same byte by two threads, at least
// one of them a write, of which neither happens before the other. That is undefined behaviour in
// C++, even where this processor and this compiler happen to give the right bytes.
//
//     thread A                          thread B             a thread's clock is the latest time
//     slot = batch;   A's time 7                             that it knows of every thread.
//     mutex.lock() .. unlock()   -----> mutex.lock()         A mutex passes clocks on.
//                                       read slot: B knows A's time 7, so the write was before
//
// A lab whose lab.toml has flags = ["-fsanitize=thread"] and links this library is compiled with a
// call before every access. The calls are ThreadSanitizer's (Serebryany et al., 2009), whose own
// runtime needs more memory than a driver may have; the clocks are FastTrack's (Flanagan and
// Freund, 2009), for every byte. Mutexes, condition variables, the start and end of threads, and
// atomics pass clocks on. Atomic loads count as acquire, stores as release, and updates as both, so
// memory orders that are too weak are not detected here; lab 19 covers them.
#pragma once

#include <cstddef>
#include <string>

namespace kit::races {

// Starts watching the objects that this thread allocates with new from now on, and the bytes
// [first, first + bytes).
void begin(const void* first, std::size_t bytes);

// Stops watching objects that this thread allocates from now on.
void end_of_allocations();

// Stops watching. Returns a description of the first race, without addresses; empty if none.
std::string end();

}  // namespace kit::races
