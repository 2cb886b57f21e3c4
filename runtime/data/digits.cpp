#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <numbers>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/data/images.hpp"

namespace ringsmith {
namespace {

constexpr std::int64_t kDigitSide = 28;
constexpr double kGlyph = 19;       // pixels per side of a glyph's unit square
constexpr int kPiecesPerCurve = 6;  // line segments between two points of a smooth stroke
constexpr std::size_t kDigits = 10;

struct Point2d {
  double x, y;  // y increases downwards
};

struct Stroke {
  bool smooth;  // true: a curve through the points; false: straight lines
  std::vector<Point2d> points;
};
using Glyph = std::vector<Stroke>;

// The variants of each digit; a sample picks one.
const std::array<std::vector<Glyph>, kDigits>& alphabet() {
  // clang-format off
  static const std::array<std::vector<Glyph>, kDigits> glyphs = {{
      {{{true, {{.52, .06}, {.30, .18}, {.21, .50}, {.30, .82}, {.50, .94}, {.71, .82},
                {.79, .50}, {.70, .18}, {.50, .06}}}}},
      {{{false, {{.52, .06}, {.48, .94}}}},
       {{false, {{.34, .26}, {.54, .06}, {.54, .94}}}},
       {{false, {{.34, .26}, {.54, .06}, {.54, .94}}},
        {false, {{.34, .94}, {.74, .94}}}}},
      {{{true, {{.24, .28}, {.34, .11}, {.54, .06}, {.74, .18}, {.72, .40}, {.50, .66},
                {.23, .92}}},
        {false, {{.23, .92}, {.80, .92}}}},
       {{true, {{.24, .26}, {.38, .08}, {.62, .08}, {.73, .28}, {.58, .58}, {.32, .86},
                {.24, .80}, {.36, .76}, {.60, .90}, {.82, .84}}}}},
      {{{true, {{.25, .16}, {.48, .06}, {.71, .17}, {.67, .38}, {.43, .47}}},
        {true, {{.43, .47}, {.70, .54}, {.77, .74}, {.56, .93}, {.24, .85}}}},
       {{false, {{.24, .08}, {.74, .08}, {.45, .42}}},
        {true, {{.45, .42}, {.74, .52}, {.75, .78}, {.52, .94}, {.24, .86}}}}},
      {{{false, {{.60, .06}, {.20, .64}, {.84, .64}}},
        {false, {{.62, .40}, {.60, .95}}}},
       {{false, {{.28, .08}, {.23, .52}, {.78, .52}}},
        {false, {{.70, .06}, {.66, .95}}}}},
      {{{false, {{.76, .08}, {.33, .08}, {.29, .44}}},
        {true, {{.29, .44}, {.54, .38}, {.77, .54}, {.73, .81}, {.48, .94}, {.23, .85}}}}},
      {{{true, {{.68, .06}, {.44, .22}, {.28, .52}, {.28, .78}, {.48, .94}, {.71, .82},
                {.71, .62}, {.52, .52}, {.29, .66}}}}},
      {{{false, {{.22, .08}, {.79, .08}, {.42, .95}}}},
       {{false, {{.22, .08}, {.79, .08}, {.44, .95}}},
        {false, {{.38, .50}, {.72, .50}}}}},
      {{{true, {{.62, .12}, {.44, .06}, {.28, .20}, {.36, .40}, {.62, .54}, {.76, .74},
                {.60, .92}, {.38, .92}, {.25, .74}, {.40, .54}, {.64, .40}, {.72, .20},
                {.58, .09}}}},
       {{true, {{.50, .06}, {.32, .14}, {.32, .36}, {.50, .46}, {.68, .36}, {.68, .14},
                {.50, .06}}},
        {true, {{.50, .46}, {.27, .58}, {.27, .84}, {.50, .94}, {.73, .84}, {.73, .58},
                {.50, .46}}}}},
      {{{true, {{.70, .16}, {.50, .06}, {.29, .18}, {.30, .40}, {.50, .49}, {.69, .38},
                {.72, .18}}},
        {true, {{.72, .18}, {.71, .52}, {.64, .76}, {.52, .95}}}},
       {{true, {{.70, .16}, {.50, .06}, {.29, .18}, {.30, .40}, {.50, .49}, {.69, .38},
                {.72, .18}}},
        {false, {{.72, .16}, {.68, .95}}}}},
  }};
  // clang-format on
  return glyphs;
}

// Catmull-Rom: a smooth curve that passes through every point.
Point2d on_curve(Point2d a, Point2d b, Point2d c, Point2d d, double t) {
  const auto blend = [t](double p0, double p1, double p2, double p3) {
    return 0.5 * (2 * p1 + (p2 - p0) * t + (2 * p0 - 5 * p1 + 4 * p2 - p3) * t * t +
                  (3 * p1 - p0 - 3 * p2 + p3) * t * t * t);
  };
  return {blend(a.x, b.x, c.x, d.x), blend(a.y, b.y, c.y, d.y)};
}

std::vector<Point2d> flatten(const Stroke& stroke) {
  const std::vector<Point2d>& p = stroke.points;
  if (!stroke.smooth) return p;
  std::vector<Point2d> line{p.front()};
  for (std::size_t i = 0; i + 1 < p.size(); ++i) {
    const Point2d before = p[i == 0 ? 0 : i - 1];
    const Point2d after = p[std::min(i + 2, p.size() - 1)];
    for (int k = 1; k <= kPiecesPerCurve; ++k)
      line.push_back(on_curve(before, p[i], p[i + 1], after, double(k) / kPiecesPerCurve));
  }
  return line;
}

double distance(Point2d p, Point2d a, Point2d b) {
  const double dx = b.x - a.x;
  const double dy = b.y - a.y;
  const double length2 = dx * dx + dy * dy;
  const double t =
      length2 == 0 ? 0 : std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / length2, 0.0, 1.0);
  const double ex = p.x - a.x - t * dx;
  const double ey = p.y - a.y - t * dy;
  return std::sqrt(ex * ex + ey * ey);
}

// Draws one line segment: full ink within the pen's radius, fading to 0 over the next pixel.
void draw(std::vector<double>& ink, Point2d a, Point2d b, double radius) {
  const double reach = radius + 1;
  const auto first = [&](double u, double v) {
    return std::max<std::int64_t>(0, std::llround(std::floor(std::min(u, v) - reach)));
  };
  const auto last = [&](double u, double v) {
    return std::min<std::int64_t>(kDigitSide - 1, std::llround(std::ceil(std::max(u, v) + reach)));
  };
  for (std::int64_t y = first(a.y, b.y); y <= last(a.y, b.y); ++y)
    for (std::int64_t x = first(a.x, b.x); x <= last(a.x, b.x); ++x) {
      const Point2d pixel{static_cast<double>(x), static_cast<double>(y)};
      double& old = ink[static_cast<std::size_t>(y * kDigitSide + x)];
      old = std::max(old, std::clamp(reach - distance(pixel, a, b), 0.0, 1.0));
    }
}

void draw_digit(std::size_t digit, Generator& g, std::uint8_t* pixels) {
  const auto between = [&g](double low, double high) {
    return low + (high - low) * g.uniform_double();
  };
  const std::vector<Glyph>& ways = alphabet()[digit];
  Glyph glyph = ways[static_cast<std::size_t>(randint(0, std::ssize(ways), g))];

  const double angle = between(-14, 14) * std::numbers::pi / 180;
  const double slant = between(-0.25, 0.15);
  const double width = kGlyph * between(0.75, 1.1);
  const double height = kGlyph * between(0.85, 1.1);
  const Point2d centre{(kDigitSide - 1) / 2.0 + between(-2, 2),
                       (kDigitSide - 1) / 2.0 + between(-2, 2)};
  const double radius = between(0.5, 1.4);
  const double shake = 0.025;

  std::vector<double> ink(kDigitSide * kDigitSide, 0.0);
  for (Stroke& stroke : glyph) {
    for (Point2d& p : stroke.points) {
      const double x = (p.x + between(-shake, shake) - 0.5) * width;
      const double y = (p.y + between(-shake, shake) - 0.5) * height;
      const double leaning = x - slant * y;
      p = {centre.x + std::cos(angle) * leaning - std::sin(angle) * y,
           centre.y + std::sin(angle) * leaning + std::cos(angle) * y};
    }
    const std::vector<Point2d> line = flatten(stroke);
    for (std::size_t i = 0; i + 1 < line.size(); ++i) draw(ink, line[i], line[i + 1], radius);
  }
  const double pressure = between(200, 255);
  for (std::size_t i = 0; i < ink.size(); ++i) {
    const double noise = between(-24, 24) * (ink[i] > 0 ? 1 : 0.5);
    pixels[i] =
        static_cast<std::uint8_t>(std::clamp(std::round(ink[i] * pressure + noise), 0.0, 255.0));
  }
}

}  // namespace

GreyImages draw_digits(std::int64_t n, std::uint64_t seed) {
  require(n >= 0, "cannot draw " + std::to_string(n) + " digits");
  GreyImages images{
      kDigitSide, kDigitSide,
      std::vector<std::uint8_t>(static_cast<std::size_t>(n * kDigitSide * kDigitSide)),
      std::vector<std::uint8_t>(static_cast<std::size_t>(n))};
  for (std::int64_t i = 0; i < n; ++i) {
    // Seeding mixes its input, so neighbouring seeds give independent samples.
    Generator g(seed * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(i));
    const auto digit = static_cast<std::size_t>(randint(0, kDigits, g));
    images.labels[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(digit);
    draw_digit(digit, g, images.pixels.data() + i * kDigitSide * kDigitSide);
  }
  return images;
}

}  // namespace ringsmith
