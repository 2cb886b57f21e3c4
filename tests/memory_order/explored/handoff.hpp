// Checks a hand-off: in every execution each message must arrive once, complete and in order. Each
// memory order must be needed, i.e. weakening it must make some execution fail.
#pragma once

#include <cstdio>

#include "tests/memory_order/instrumented.hpp"
#include "tests/support/catch.hpp"

namespace explorer {

struct Row {
  Weakening weakened;
  std::string seen;  // text in the failure
};

inline std::string described(const Weakening& w) {
  constexpr const char* kAccesses[] = {"load", "store", "update", "fence"};
  constexpr const char* kOrders[] = {"relaxed", "acquire", "release", "acq_rel", "seq_cst"};
  return w.location + ", " + kAccesses[std::size_t(w.access)] + ": " +
         (w.torn ? "in two halves" : kOrders[std::size_t(w.order)]);
}

inline void expect_right(const char* what, const std::function<Program()>& make) {
  const Result found = explore(make);
  INFO(found.failure << "\n" << found.execution);
  CHECK(found.failure.empty());
  CHECK(found.complete);
  CHECK(found.executions > 0);
  std::printf("%-44s right in %7llu executions (%llu runs, up to %zu operations), %.2f s\n", what,
              static_cast<unsigned long long>(found.executions),
              static_cast<unsigned long long>(found.runs), found.events, found.seconds);
}

inline void expect_wrong(const char* what, const std::function<Program()>& make, const Row& row) {
  const Result found = explore(make, {.weakened = {row.weakened}});
  INFO(described(row.weakened) << "\n" << found.execution);
  CHECK(found.weakened > 0);
  CHECK_THAT(found.failure, ContainsSubstring(row.seen));
  CHECK_THAT(found.execution, ContainsSubstring("  1  "));
  std::printf("%s; %s\n  %s\n%s\n", what, described(row.weakened).c_str(), found.failure.c_str(),
              found.execution.c_str());
}

}  // namespace explorer
