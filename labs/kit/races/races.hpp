// Finds data races in a student's objects: two accesses of the same byte by two threads, one of
// them a write, of which neither happens before the other. That is undefined in C++, also where
// this processor and this compiler happen to give the right bytes.
//
//     thread A                          thread B             each thread has a clock: how far it
//     slot = batch;   A's 7th part                           knows every thread to have come.
//     mutex.lock() .. unlock()   -----> mutex.lock()         A mutex carries clocks along.
//                                       read slot: B knows A's 7th part, so the write was before
//
// A lab whose lab.toml has flags = ["-fsanitize=thread"] and links this library is compiled with a
// call before every access. The calls are those of ThreadSanitizer (Serebryany et al., 2009), whose
// own runtime wants more memory than a driver may have; the clocks are those of FastTrack (Flanagan
// and Freund, 2009), for every byte. What carries clocks: mutexes, condition variables, the
// beginning and the end of a thread, and atomics, of which every order counts as acquire and
// release. So an order that is too weak is not found here: lab 19 is about those.
#pragma once

#include <cstddef>
#include <string>

namespace kit::races {

// From now on: objects that this thread allocates by new are watched, and so is [first, first +
// bytes).
void begin(const void* first, std::size_t bytes);

// What this thread allocates from now on is not watched.
void end_of_allocations();

// Ends the watch. The first race, in words without addresses; empty if there was none.
std::string end();

}  // namespace kit::races
