// Part 2 of the driver: mailboxes and the ring between processes. No verdicts here.
#include LAB06_RING
#include LAB06_MAILBOX

#include "labs/kit/processes.hpp"

#include "labs/kit/driver.hpp"
#include "labs/kit/guarded.hpp"

namespace {

kit::ProcessOptions options_of(const kit::Request& in) {
  kit::ProcessOptions options;
  options.world = int(in.integer("world"));
  options.bytes = lab06::SharedLink::bytes(options.world);
  options.seed = std::uint64_t(in.integer("seed", 1));
  options.pauses = in.integer("pauses", 0) != 0;
  return options;
}

}  // namespace

// Pieces from rank 0 to rank 1 through one mailbox: piece i holds sizes[i] bytes of value i + 1.
// The receiver says what it got: the first and the last byte of each.
KIT_SCENARIO(pieces) {
  const std::vector<std::int64_t> sizes = in.integers("sizes");
  kit::ProcessOptions options = options_of(in);
  options.bytes = sizeof(lab06::Mailbox);
  kit::Processes processes(options);
  processes.run(
      [&](kit::Member& self, kit::Observation& seen) {
        auto& box = *reinterpret_cast<lab06::Mailbox*>(self.memory().data());
        kit::begin_operation("pieces");
        std::vector<std::int64_t> got;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
          const std::byte value{self.rank() == 0 ? static_cast<unsigned char>(i + 1)
                                                 : static_cast<unsigned char>(0)};
          std::vector<std::byte> piece(static_cast<std::size_t>(sizes[i]), value);
          if (self.rank() == 0)
            lab06::put_piece(box, piece, 1);
          else
            lab06::take_piece(box, piece, 0);
          got.push_back(std::int64_t(piece.front()));
          got.push_back(std::int64_t(piece.back()));
        }
        seen.put("got", got);
      },
      out);
}

// calls all-reduces one after the other, with no barrier. Element i of rank r at call k is
// table[r * period + (i + k) % period]; the outputs of all calls come back, one behind the other.
KIT_SCENARIO(processes) {
  const std::vector<float> table = in.floats("table");
  const auto period = std::size_t(in.integer("period"));
  const auto count = std::size_t(in.integer("count")),
             offset = std::size_t(in.integer("offset", 0));
  const auto calls = std::size_t(in.integer("calls", 1));
  const bool in_place = in.integer("in_place", 0) != 0;
  kit::Processes processes(options_of(in));
  processes.run(
      [&](kit::Member& self, kit::Observation& seen) {
        lab06::SharedLink link(self);
        std::vector<float> results;
        std::int64_t guards = 0;
        for (std::size_t call = 0; call < calls; ++call) {
          kit::Guarded<float> input(count, offset), output(count, offset);
          const std::span<float> from = in_place ? output.span() : input.span();
          for (std::size_t i = 0; i < count; ++i)
            from[i] = table[std::size_t(self.rank()) * period + (i + call) % period];
          kit::begin_operation("all_reduce");
          lab06::all_reduce<float>(link, std::span<const float>(from), output.span());
          guards += input.broken() + output.broken();
          results.insert(results.end(), output.span().begin(), output.span().end());
        }
        seen.put("out", results);
        seen.put("guards", guards);
      },
      out);
}
