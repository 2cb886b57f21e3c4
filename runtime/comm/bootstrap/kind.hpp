// The ways in which the ranks of a job find each other.
#pragma once

#include <cstdint>
#include <string_view>

namespace ringsmith::comm {

enum class BootstrapKind : std::uint8_t { automatic, mpi, env, slurm, file, self };
[[nodiscard]] std::string_view name_of(BootstrapKind kind);          // automatic: "auto"
[[nodiscard]] BootstrapKind parse_bootstrap(std::string_view name);  // UsageError: the choices

}  // namespace ringsmith::comm
