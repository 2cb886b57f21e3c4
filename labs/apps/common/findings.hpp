// What doctor says: a fact, how good it is, and what to do about it.
//
//   ok    cores       2, all for this process
//   warn  memlock     8 MiB: RDMA registers more than that
//                     remedy: ulimit -l unlimited
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringsmith::apps {

struct Finding {
  // note: something is not there that is not needed; warn: it will be slow or limited; fail: what
  // was asked for does not work.
  enum class Verdict : std::uint8_t { ok, note, warn, fail };
  Verdict verdict = Verdict::ok;
  std::string subject;
  std::string fact;
  std::string remedy = {};  // empty for ok
};

using Findings = std::vector<Finding>;

// Words in lines of at most `width` characters: the first begins with `head`, the others with
// `indent` blanks.
[[nodiscard]] std::string fill_line(const std::string& head, const std::string& text,
                                    std::size_t indent, std::size_t width);
// Lines of at most `width` characters, each with its newline.
[[nodiscard]] std::string render(const Findings& findings, std::size_t width);
[[nodiscard]] Finding::Verdict worst_of(const Findings& findings);

// What this machine has, and what it lets a job do. Nothing is changed; takes a few milliseconds.
[[nodiscard]] Findings examine_machine();

}  // namespace ringsmith::apps
