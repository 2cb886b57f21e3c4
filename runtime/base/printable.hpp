// Text that others wrote, for a terminal: what would move its cursor or change its colours is shown
// as \x1b instead.
#pragma once

#include <string>
#include <string_view>

namespace ringsmith {

// Characters of UTF-8 stay; control characters, and bytes that are no UTF-8, become \xHH.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace ringsmith
