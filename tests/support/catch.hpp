// Includes the system's Catch2: Debian 12 has 2.13, newer systems have 3.
#pragma once

#include <string>

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_session.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
using Catch::Approx;  // global in version 2
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>
namespace Catch::Matchers {
inline auto ContainsSubstring(const std::string& s) { return Catch::Matchers::Contains(s); }
}  // namespace Catch::Matchers
using Catch::Matchers::ContainsSubstring;
#endif
