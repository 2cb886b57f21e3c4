// Included before every source that is compiled for a page. Defines the parts of C++20 that the
// figures' sources use and this compiler's library (libc++ 13, in Debian's emscripten) lacks. The
// library has the namespace std::ranges, but none of the algorithms in it.
#pragma once

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <string>
#include <version>

#if !defined(__cpp_lib_bit_cast)
namespace std {
template <class To, class From>
constexpr To bit_cast(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}
}  // namespace std
#endif

#if !defined(__cpp_lib_to_chars)
namespace std {
// For options of the command line. Unlike strtod(), accepts no blanks, plus signs or hexadecimal
// numbers.
inline from_chars_result from_chars(const char* first, const char* last, double& value) {
  const string text(first, last);
  if (text.find_first_not_of("+-.0123456789Eeinfaty") != string::npos || text.rfind('+', 0) == 0)
    return {first, errc::invalid_argument};
  char* stop = nullptr;
  const double read = strtod(text.c_str(), &stop);
  if (stop == text.c_str()) return {first, errc::invalid_argument};
  value = read;
  return {first + (stop - text.c_str()), errc()};
}
}  // namespace std
#endif

#if !defined(__cpp_lib_ranges)
namespace std::ranges {

// Returns f, called with the projections of its arguments.
template <class F, class P>
constexpr auto seen_through(F& f, P& projection) {
  return
      [&](const auto&... elements) { return std::invoke(f, std::invoke(projection, elements)...); };
}

template <class R, class F, class P = std::identity>
constexpr auto find_if(R&& range, F fits, P projection = {}) {
  return std::find_if(std::begin(range), std::end(range), seen_through(fits, projection));
}
template <class R, class T, class P = std::identity>
constexpr auto find(R&& range, const T& value, P projection = {}) {
  return ranges::find_if(
      range, [&](const auto& element) { return element == value; }, projection);
}
template <class R, class F, class P = std::identity>
constexpr bool any_of(R&& range, F fits, P projection = {}) {
  return ranges::find_if(range, fits, projection) != std::end(range);
}
template <class R, class F, class P = std::identity>
constexpr bool all_of(R&& range, F fits, P projection = {}) {
  return std::all_of(std::begin(range), std::end(range), seen_through(fits, projection));
}
template <class A, class B, class F = std::equal_to<>, class PA = std::identity,
          class PB = std::identity>
constexpr bool equal(A&& a, B&& b, F same = {}, PA of_a = {}, PB of_b = {}) {
  return std::equal(std::begin(a), std::end(a), std::begin(b), std::end(b),
                    [&](const auto& x, const auto& y) {
                      return std::invoke(same, std::invoke(of_a, x), std::invoke(of_b, y));
                    });
}
template <class A, class B>
constexpr auto mismatch(A&& a, B&& b) {
  struct Places {
    decltype(std::begin(a)) in1;
    decltype(std::begin(b)) in2;
  };
  const auto [first, second] =
      std::mismatch(std::begin(a), std::end(a), std::begin(b), std::end(b));
  return Places{first, second};
}
template <class R>
constexpr auto max(R&& range) {
  return *std::max_element(std::begin(range), std::end(range));
}
template <class R>
constexpr auto min(R&& range) {
  return *std::min_element(std::begin(range), std::end(range));
}
template <class R>
constexpr auto minmax_element(R&& range) {
  return std::minmax_element(std::begin(range), std::end(range));
}
template <class R>
constexpr void reverse(R&& range) {
  std::reverse(std::begin(range), std::end(range));
}
template <class R, class F = std::less<>, class P = std::identity>
constexpr void sort(R&& range, F before = {}, P projection = {}) {
  std::sort(std::begin(range), std::end(range), seen_through(before, projection));
}
template <class R, class F = std::less<>, class P = std::identity>
void stable_sort(R&& range, F before = {}, P projection = {}) {
  std::stable_sort(std::begin(range), std::end(range), seen_through(before, projection));
}

}  // namespace std::ranges
#endif
