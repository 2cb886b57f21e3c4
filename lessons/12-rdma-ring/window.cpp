// window SLOTS SLOT_BYTES: sends 64 MiB through slots with credits, over a link of 10 GB/s on which
// each message and each credit takes 5 us to arrive. Simulated message by message.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "lessons/arguments.hpp"

int main(int argc, char** argv) {
  const ringsmith::lessons::Arguments given(argc, argv, "window [SLOTS [SLOT_BYTES]]", 2);
  const auto slots = static_cast<std::size_t>(given.whole(1, 4, 1, 1'000'000));
  const double bytes = given.real(2, 65536, 1, 64 << 20);
  const double delay = 5, per_byte = 1e-4;  // microseconds
  const auto messages = static_cast<std::size_t>((64 << 20) / bytes);
  std::vector<double> credit(slots, 0);  // when the sender may write the slot again
  double link = 0, waited = 0;
  for (std::size_t m = 0; m < messages; ++m) {
    const double start = std::max(link, credit[m % slots]);
    waited += start - link;
    link = start + bytes * per_byte;
    credit[m % slots] = link + delay + delay;  // the message there, the credit back
  }
  std::printf("%3zu slots of %7.0f bytes: %5.2f GB/s, the link is idle %2.0f %% of the time\n",
              slots, bytes, (64 << 20) / (link + delay) * 1e-3, 100 * waited / link);
}
