// Curves over the number of devices, side by side in one SVG: measurements solid with dots,
// predictions dashed. Both axes are logarithmic, so that power laws are straight lines.
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
  enum class Role : std::uint8_t { first, first_pale, second };  // selects the colour
  std::string name;
  Role role = Role::first;
  std::vector<ChartPoint> measured, predicted;  // increasing; predicted begins at the last measured
                                                // number of devices
};

struct Panel {
  enum class Unit : std::uint8_t { bytes, seconds };
  std::string title;
  Unit unit = Unit::bytes;
  std::vector<Curve> curves;  // at most three
};

// Formats a value with its unit, rounded to three digits or to a whole number: "1.5 KiB", "12 ms".
[[nodiscard]] std::string in_unit(double value, Panel::Unit unit);

[[nodiscard]] std::string escape_xml(const std::string& text);

[[nodiscard]] std::string render_panels(const std::string& title, const std::string& subtitle,
                                        const std::vector<Panel>& panels);

}  // namespace ringsmith::apps
