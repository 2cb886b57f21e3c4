// doctor's look at the processor and at the addresses that a process may have.
#include <fmt/format.h>
#include <sys/resource.h>

#include "labs/apps/common/examine.hpp"
#include "labs/apps/common/processor.hpp"

namespace ringsmith::apps {

using Verdict = Finding::Verdict;

void examine_processor(Findings& out) {
  const std::string text = processor_text();
  out.push_back({Verdict::ok, "processor", processor_name(text)});
#ifdef RINGSMITH_VGPU
  if (has_processor_flag(text, "ospke"))
    out.push_back(
        {Verdict::ok, "memory keys", "the emulator sees each access of the host to device memory"});
  else
    out.push_back({Verdict::note, "memory keys",
                   "no memory protection keys: the emulator does not see host access to device "
                   "memory unless VGPU_GUARD=pages",
                   "none needed for right programs; VGPU_GUARD=pages looks, and is slow"});
#endif
}

Finding judge_address_limit(std::uint64_t bytes) {
  if (bytes == RLIM_INFINITY) return {Verdict::ok, "addresses", "unlimited"};
  return {Verdict::warn, "addresses",
          fmt::format("limited to {:.1f} GiB: jobs may fail to reserve addresses, of which they "
                      "need many more than memory",
                      static_cast<double>(bytes) / static_cast<double>(std::uint64_t{1} << 30)),
          "ulimit -v unlimited"};
}

}  // namespace ringsmith::apps
