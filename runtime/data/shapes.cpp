#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "runtime/base/error.hpp"
#include "runtime/base/rng.hpp"
#include "runtime/data/images.hpp"

namespace ringsmith {
namespace {

constexpr std::int64_t kShapeSide = 32;
constexpr int kSamples = 3;  // per pixel and dimension, for soft edges

// True if the point is inside the shape, which roughly fills the unit circle. y points down.
using Shape2D = bool (*)(double x, double y);

bool in_box(double x, double y, double half) { return std::abs(x) < half && std::abs(y) < half; }

constexpr std::array<Shape2D, 10> kShapes = {
    [](double x, double y) { return x * x + y * y < 0.8; },
    [](double x, double y) { return x * x + y * y < 1 && x * x + y * y > 0.36; },
    [](double x, double y) { return in_box(x, y, 0.75); },
    [](double x, double y) { return in_box(x, y, 0.85) && !in_box(x, y, 0.5); },
    [](double x, double y) { return y < 0.7 && y > 2 * std::abs(x) - 1; },
    [](double x, double y) {
      return std::min(std::abs(x), std::abs(y)) < 0.28 && in_box(x, y, 0.95);
    },
    [](double x, double y) {  // five rays: the radius oscillates with the angle
      const double turn = 5 * std::atan2(x, -y) / (2 * std::numbers::pi);
      const double swing = std::abs(turn - std::round(turn));  // 0 on a ray, 1/2 between two
      return std::hypot(x, y) < 1 - 1.2 * swing;
    },
    [](double x, double y) { return x * x + y * y < 1 && y > 0; },
    [](double x, double y) { return x * x + y * y < 1 && (x - 0.45) * (x - 0.45) + y * y > 0.6; },
    [](double x, double y) { return in_box(x, y, 0.9) && std::fmod(y + 0.9, 0.72) < 0.36; },
};

using Colour = std::array<double, 3>;

void draw_shape(Shape2D inside, Generator& g, std::uint8_t* pixels) {
  const auto between = [&g](double low, double high) {
    return low + (high - low) * g.uniform_double();
  };
  const auto any_colour = [&] { return Colour{between(0, 255), between(0, 255), between(0, 255)}; };
  const auto apart = [](const Colour& a, const Colour& b) {
    double sum = 0;
    for (std::size_t c = 0; c < a.size(); ++c) sum += std::abs(a[c] - b[c]);
    return sum;
  };
  const Colour ground = any_colour();
  Colour colour = any_colour();
  while (apart(colour, ground) < 250) colour = any_colour();
  const Colour light = {between(-20, 20), between(-20, 20), between(-20, 20)};  // top to bottom

  const double angle = between(-15, 15) * std::numbers::pi / 180;
  const double radius = kShapeSide * between(0.33, 0.45), stretch = between(0.85, 1.1);
  const double room = kShapeSide / 2.0 - radius;
  const double left = kShapeSide / 2.0 + between(-room, room),
               top = kShapeSide / 2.0 + between(-room, room);
  const double cosine = std::cos(angle), sine = std::sin(angle);
  for (std::int64_t y = 0; y < kShapeSide; ++y)
    for (std::int64_t x = 0; x < kShapeSide; ++x) {
      int hits = 0;
      for (int k = 0; k < kSamples * kSamples; ++k) {
        const double u = (static_cast<double>(x) + (k % kSamples + 0.5) / kSamples - left) / radius;
        const double v =
            (static_cast<double>(y) + (k / kSamples + 0.5) / kSamples - top) / (radius * stretch);
        hits += inside(cosine * u + sine * v, cosine * v - sine * u) ? 1 : 0;
      }
      const double share = static_cast<double>(hits) / (kSamples * kSamples);
      const double height = static_cast<double>(y) / kShapeSide - 0.5;
      for (std::size_t c = 0; c < colour.size(); ++c) {
        const double value =
            ground[c] + share * (colour[c] - ground[c]) + height * light[c] + between(-10, 10);
        pixels[static_cast<std::int64_t>(c) * kShapeSide * kShapeSide + y * kShapeSide + x] =
            static_cast<std::uint8_t>(std::clamp(std::round(value), 0.0, 255.0));
      }
    }
}

}  // namespace

Images draw_shapes(std::int64_t n, std::uint64_t seed) {
  require(n >= 0, "cannot draw " + std::to_string(n) + " shapes");
  constexpr std::int64_t kBytes = 3 * kShapeSide * kShapeSide;  // per image
  Images images{kShapeSide, kShapeSide,
                std::vector<std::uint8_t>(static_cast<std::size_t>(n * kBytes)),
                std::vector<std::uint8_t>(static_cast<std::size_t>(n)), 3};
  for (std::int64_t i = 0; i < n; ++i) {
    // Neighbouring seeds give independent samples, as in draw_digits().
    Generator g(seed * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(i));
    const auto kind = static_cast<std::size_t>(randint(0, std::ssize(kShapes), g));
    images.labels[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(kind);
    draw_shape(kShapes[kind], g, images.pixels.data() + i * kBytes);
  }
  return images;
}

}  // namespace ringsmith
