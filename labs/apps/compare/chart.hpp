// Curves over the number of devices, side by side in one SVG: measured solid with a dot for every
// measurement, predicted dashed. Both axes are logarithmic, so that a straight rising line is
// growth by a power, and a level one none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringsmith::apps {

struct ChartPoint {
  double devices = 1;
  double value = 0;  // values that are not positive are not drawn
};

struct Curve {
  enum class Role : std::uint8_t { first, first_pale, second };  // which colour
  std::string name;
  Role role = Role::first;
  std::vector<ChartPoint> measured, predicted;  // increasing; predicted begins at the last measured
};

struct Panel {
  enum class Unit : std::uint8_t { bytes, seconds };
  std::string title;
  Unit unit = Unit::bytes;
  std::vector<Curve> curves;  // at most three
};

// "1.5 KiB", "12 ms": three digits at most.
[[nodiscard]] std::string in_unit(double value, Panel::Unit unit);

// Text escaped for XML.
[[nodiscard]] std::string escape_xml(const std::string& text);

[[nodiscard]] std::string render_panels(const std::string& title, const std::string& subtitle,
                                        const std::vector<Panel>& panels);

}  // namespace ringsmith::apps
