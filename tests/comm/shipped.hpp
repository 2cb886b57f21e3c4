// Every schedule that ships, in every small shape.
#pragma once

#include "runtime/comm/schedule/select.hpp"

namespace ringsmith::comm::testing {

// Calls f(schedule) for every shipped schedule of every world up to 8, root and count 0..3N+1.
template <class F>
void for_each_shipped(F f) {
  for (int world = 1; world <= 8; ++world)
    for (const Collective collective : all_collectives())
      for (const std::string& algorithm : algorithms_of(collective))
        for (int root = 0; root < (is_rooted(collective) ? world : 1); ++root)
          for (int count = 0; count <= 3 * world + 1; ++count)
            if (collective != Collective::all_to_all || count % world == 0)
              f(make_schedule(collective, algorithm, world, static_cast<std::size_t>(count), 4,
                              root));
}

}  // namespace ringsmith::comm::testing
