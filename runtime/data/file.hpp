// Whole files into memory, with an error that names the file and the reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringsmith {

// UsageError "cannot read WHAT 'PATH': reason" if it is missing, a directory or unreadable.
[[nodiscard]] std::vector<std::uint8_t> read_file(const std::string& path, const std::string& what);

}  // namespace ringsmith
