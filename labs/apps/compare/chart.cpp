#include "labs/apps/compare/chart.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <map>

namespace ringsmith::apps {

namespace {

// Plain rules come first, for renderers without variables and media queries; dark mode follows.
constexpr const char* kStyle = R"(<style>
  text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2430; }
  .paper { fill: #ffffff; }
  .title { font-size: 18px; font-weight: 600; }
  .panel { font-size: 15px; font-weight: 600; }
  .note { font-size: 13px; fill: #5b6372; }
  .tick { font-size: 12px; fill: #5b6372; }
  .name { font-size: 13px; }
  .value { font-size: 12px; font-weight: 600; }
  .grid { stroke: #e3e6ec; stroke-width: 1; }
  .axis { stroke: #8a92a3; stroke-width: 1; }
  .curve { fill: none; stroke-width: 2.4; }
  .predicted { stroke-dasharray: 6 5; }
  .first { stroke: #d1540a; } .dot.first, .value.first { fill: #d1540a; stroke: none; }
  .first_pale { stroke: #e9a56b; } .dot.first_pale, .value.first_pale { fill: #c98344; stroke: none; }
  .second { stroke: #1f6fd0; } .dot.second, .value.second { fill: #1f6fd0; stroke: none; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e8ebf2; }
    .paper { fill: #15181f; }
    .note, .tick { fill: #99a2b3; }
    .grid { stroke: #2a303c; }
  }
</style>
)";

constexpr double kMargin = 24, kTop = 70, kPanelWidth = 396, kPlotLeft = 62, kPlotWidth = 250;
constexpr double kPlotTop = 92, kPlotHeight = 270;  // from the panel's top
constexpr std::size_t kMostTicks = 8;
constexpr int kMostDeviceLabels = 8;

const char* name_of(Curve::Role role) {
  constexpr std::array<const char*, 3> kNames{"first", "first_pale", "second"};
  return kNames.at(static_cast<std::size_t>(role));
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  void include(double v) {
    if (!(v > 0)) return;
    low = std::min(low, v);
    high = std::max(high, v);
  }
  [[nodiscard]] bool empty() const { return high == 0; }
};

// Returns at most kMostTicks round values that enclose the range: powers of two for bytes, and for
// seconds 1, 2, 5, 10, ... or, for a wide range, powers of ten.
std::vector<double> ticks_for(Range range, Panel::Unit unit) {
  const auto frame = [&](auto&& value_of, int finest) {
    for (int stride = finest;; ++stride) {
      std::vector<double> ticks;
      int k = -60;
      while (value_of((k + 1) * stride) <= range.low * 1.0001) ++k;
      ticks.push_back(value_of(k * stride));
      while (ticks.back() < range.high * 0.9999) ticks.push_back(value_of(++k * stride));
      if (ticks.size() == 1) ticks.push_back(value_of(++k * stride));
      if (ticks.size() <= kMostTicks) return ticks;
    }
  };
  if (unit == Panel::Unit::bytes) return frame([](int k) { return std::exp2(k); }, 1);
  const auto one_two_five = [](int k) {
    const int decade = k >= 0 ? k / 3 : -((2 - k) / 3);
    constexpr std::array<double, 3> kSteps{1, 2, 5};
    return kSteps.at(static_cast<std::size_t>(k - 3 * decade)) * std::pow(10.0, decade);
  };
  const std::vector<double> fine = frame(one_two_five, 1);
  if (fine[1] / fine[0] < 3) return fine;
  return frame([](int k) { return std::pow(10.0, k); }, 1);
}

class Plot {
 public:
  Plot(const Panel& panel, double left, std::string& out) : panel_(panel), left_(left), out_(out) {
    Range x, y;
    for (const Curve& curve : panel.curves)
      for (const auto* points : {&curve.measured, &curve.predicted})
        for (const ChartPoint& p : *points) {
          x.include(p.devices);
          y.include(p.value);
        }
    if (y.empty()) y = {1, 2};
    ticks_ = ticks_for(y, panel.unit);
    last_ = std::max(2.0, x.high);
  }

  void draw() {
    text("panel", left_, kTop + 12, panel_.title);
    double y = kTop + 33;
    for (const Curve& curve : panel_.curves) {
      line(std::string("curve ") + name_of(curve.role), left_, y - 4, left_ + 22, y - 4);
      text("name", left_ + 30, y, curve.name);
      y += 17;
    }
    axes();
    for (const Curve& curve : panel_.curves) draw(curve);
    labels();
  }

 private:
  double x_of(double devices) const {
    return left_ + kPlotLeft + kPlotWidth * std::log2(devices) / std::log2(last_);
  }
  double y_of(double value) const {
    const double part = std::log(value / ticks_.front()) / std::log(ticks_.back() / ticks_.front());
    return kTop + kPlotTop + kPlotHeight * (1 - part);
  }
  void text(const std::string& style, double x, double y, const std::string& words,
            const char* anchor = "start") {
    out_ +=
        fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
                    style, x, y, anchor, escape_xml(words));
  }
  void line(const std::string& style, double x1, double y1, double x2, double y2) {
    out_ += fmt::format(
        "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", style, x1,
        y1, x2, y2);
  }

  void axes() {
    const double left = left_ + kPlotLeft, right = left + kPlotWidth;
    const double top = kTop + kPlotTop, bottom = top + kPlotHeight;
    for (const double tick : ticks_) {
      line("grid", left, y_of(tick), right, y_of(tick));
      text("tick", left - 8, y_of(tick) + 4, in_unit(tick, panel_.unit), "end");
    }
    const int stride = 1 + static_cast<int>(std::log2(last_)) / kMostDeviceLabels;
    int power = 0;
    for (double n = 1; n <= last_; n *= 2) {
      line("axis", x_of(n), bottom, x_of(n), bottom + 5);
      if (power++ % stride == 0)
        text("tick", x_of(n), bottom + 19,
             n < 1024 ? fmt::format("{:.0f}", n) : fmt::format("{:.0f}K", n / 1024), "middle");
    }
    line("axis", left, bottom, right, bottom);
    text("note", (left + right) / 2, bottom + 38, "devices", "middle");
  }

  void draw(const Curve& curve) {
    path(curve.measured, curve, "");
    path(curve.predicted, curve, " predicted");
    for (const ChartPoint& p : curve.measured)
      if (p.value > 0)
        out_ += fmt::format(
            "<circle class=\"dot {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{:.0f} devices: "
            "{}</title></circle>\n",
            name_of(curve.role), x_of(p.devices), y_of(p.value), p.devices,
            in_unit(p.value, panel_.unit));
  }

  void path(const std::vector<ChartPoint>& points, const Curve& curve, const char* style) {
    std::string way;
    for (const ChartPoint& p : points)
      if (p.value > 0)
        way += fmt::format("{}{:.1f} {:.1f}", way.empty() ? "M" : " L", x_of(p.devices),
                           y_of(p.value));
    if (!way.empty())
      out_ +=
          fmt::format("<path class=\"curve {}{}\" d=\"{}\"/>\n", name_of(curve.role), style, way);
  }

  // Prints each curve's last value next to the end of the curve. Moves down labels that would
  // overlap.
  void labels() {
    struct Label {
      const Curve* curve;
      ChartPoint end;
    };
    std::vector<Label> all;
    for (const Curve& curve : panel_.curves) {
      const auto& points = curve.predicted.empty() ? curve.measured : curve.predicted;
      if (!points.empty() && points.back().value > 0) all.push_back({&curve, points.back()});
    }
    std::ranges::stable_sort(all, std::greater(),
                             [](const Label& label) { return label.end.value; });
    double free_from = 0;
    for (const Label& label : all) {
      const double y = std::max(y_of(label.end.value) + 4, free_from);
      free_from = y + 16;
      text(fmt::format("value {}", name_of(label.curve->role)), x_of(label.end.devices) + 8, y,
           in_unit(label.end.value, panel_.unit));
    }
  }

  const Panel& panel_;
  double left_;
  std::string& out_;
  std::vector<double> ticks_;
  double last_ = 2;
};

}  // namespace

std::string in_unit(double value, Panel::Unit unit) {
  struct Scale {
    double size;
    const char* name;
  };
  const std::vector<Scale> scales = unit == Panel::Unit::bytes
                                        ? std::vector<Scale>{{1, "B"},
                                                             {0x1p10, "KiB"},
                                                             {0x1p20, "MiB"},
                                                             {0x1p30, "GiB"},
                                                             {0x1p40, "TiB"}}
                                        : std::vector<Scale>{{1e-6, "µs"}, {1e-3, "ms"}, {1, "s"}};
  Scale scale = scales.front();
  for (const Scale& s : scales)
    if (value >= 0.9995 * s.size) scale = s;
  const double v = value / scale.size;
  std::string digits = fmt::format("{:.{}f}", v, v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2);
  if (digits.find('.') != std::string::npos) {
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.back() == '.') digits.pop_back();
  }
  return digits + " " + scale.name;
}

std::string escape_xml(const std::string& text) {
  static const std::map<char, const char*> kNames{
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}};
  std::string out;
  for (const char c : text) {
    const auto name = kNames.find(c);
    if (name != kNames.end())
      out += name->second;
    else
      out += c;
  }
  return out;
}

std::string render_panels(const std::string& title, const std::string& subtitle,
                          const std::vector<Panel>& panels) {
  const double width = 2 * kMargin + static_cast<double>(panels.size()) * kPanelWidth;
  const double height = kTop + kPlotTop + kPlotHeight + 84;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\">\n<title>{2}</title>\n{3}"
      "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
      width, height, escape_xml(title), kStyle);
  const auto text = [&](const char* style, double y, const std::string& words) {
    out += fmt::format("<text class=\"{}\" x=\"{:.0f}\" y=\"{:.1f}\">{}</text>\n", style, kMargin,
                       y, escape_xml(words));
  };
  text("title", 30, title);
  text("note", 51, subtitle);
  for (std::size_t i = 0; i < panels.size(); ++i)
    Plot(panels[i], kMargin + static_cast<double>(i) * kPanelWidth, out).draw();
  text("note", height - 16,
       "solid with dots: measured    •    dashed: predicted    •    both axes are logarithmic");
  return out + "</svg>\n";
}

}  // namespace ringsmith::apps
