// immediate: how the runtime puts "this counter now has this value" into 32 bits, and how the other
// end finds the whole value again.
#include <cstdio>

#include "runtime/comm/transport/rdma/connection.hpp"

using ringsmith::comm::rdma::Immediate;

int main() {
  std::printf("%8s %10s %10s   %-12s %8s %10s\n", "at", "was", "becomes", "immediate", "at",
              "becomes");
  struct Row {
    std::size_t at;
    std::uint64_t was, becomes;
  };
  for (const Row& row : {Row{64, 0, 1}, Row{128, 41, 42}, Row{128, 16383, 16384},
                         Row{4096, 1000000, 1000003}, Row{128, 0, 16384}}) {
    const std::uint32_t packed = Immediate::pack(row.at, row.becomes);
    const auto value = Immediate::value(packed, row.was);
    std::printf("%8zu %10llu %10llu   0x%08x   %8zu %10llu%s\n", row.at,
                static_cast<unsigned long long>(row.was),
                static_cast<unsigned long long>(row.becomes), packed, Immediate::offset(packed),
                static_cast<unsigned long long>(value), value == row.becomes ? "" : "   WRONG");
  }
}
