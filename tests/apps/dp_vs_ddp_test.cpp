#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <map>

#include "labs/apps/compare/chart.hpp"
#include "labs/apps/compare/comparison.hpp"
#include "tests/apps/programs.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith::apps;
using namespace ringsmith::testing;

namespace {

std::string test_device() {
  const std::string name = variable("RINGSMITH_TEST_DEVICE");
  return name.empty() ? "cpu" : name.substr(0, name.find(':'));
}

// Returns true if tags are nested and closed, and attributes quoted.
bool is_well_formed(const std::string& text) {
  std::vector<std::string> open;
  std::size_t at = 0;
  while ((at = text.find('<', at)) != std::string::npos) {
    const std::size_t end = text.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = text.substr(at + 1, end - at - 1);
    at = end;
    if (tag.empty()) return false;
    if (tag[0] == '!' || tag[0] == '?') continue;
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return false;
    const std::string name = tag.substr(0, tag.find_first_of(" \n/", 1));
    if (tag[0] == '/') {
      if (open.empty() || "/" + open.back() != tag) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
  }
  return open.empty();
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++n;
  return n;
}

}  // namespace

TEST_CASE("dp_vs_ddp on 2 and 3 devices: results, counters, table, pictures", "[dp_vs_ddp]") {
  const TemporaryFolder folder;
  const std::string device = test_device();
  const ProgramResult run = run_app(
      0, "dp_vs_ddp",
      {"--device", device, "-n", "2,3", "--steps", "2", "--rows", "2", "--inputs", "16", "--hidden",
       "16", "--classes", "16", "--svg", folder / "p.svg", "--html", folder / "p.html"});
  INFO(run.out << run.err);
  REQUIRE(run.exit_code == 0);
  CHECK_THAT(run.out, ContainsSubstring("results   agree"));
  CHECK_THAT(run.out, ContainsSubstring("counters  agree"));
  for (std::istringstream lines(run.out); !lines.eof();) {
    std::string line;
    std::getline(lines, line);
    if (line.rfind("MLP", 0) != 0 && line.rfind("wrote", 0) != 0 && line.rfind("Times", 0) != 0)
      CHECK(line.size() <= 80);
  }
  // P = 4 (16 * 16 + 16) * 3 = 3264 bytes, or 816 floats, divides into 2 and 3 equal chunks, so the
  // counters equal the formulas. In each step, a rank of 3 sends its usage map (the step's number
  // and one word of bits) to two peers.
  CHECK_THAT(run.out, ContainsSubstring("P = 3 KiB"));
  CHECK_THAT(run.out, ContainsSubstring("off by at most 0.000 %"));
  CHECK_THAT(run.out, ContainsSubstring(fmt::format("usage map of a DDP rank {}\n", 2 * 16)));
  const std::string svg = read_text(folder / "p.svg"), html = read_text(folder / "p.html");
  CHECK(is_well_formed(svg));
  CHECK(is_well_formed(html));
  CHECK_THAT(svg, ContainsSubstring("2 devices: 6.38 KiB"));
  CHECK_THAT(svg, ContainsSubstring("3 devices: 12.8 KiB"));
  CHECK_THAT(svg, ContainsSubstring("2 devices: 3.19 KiB"));  // DDP: 2 P / 2
  CHECK_THAT(svg, ContainsSubstring("3 devices: 4.25 KiB"));  // 2 P 2/3
  const std::size_t curves = device == "cpu" ? 4 : 7;
  CHECK(count(svg, "<circle") == 2 * curves);
  CHECK(count(svg, " predicted\"") == curves);
  CHECK(count(html, "<svg") == 1);
  CHECK(html.find("http://") == html.find("http://www.w3.org/2000/svg"));  // nothing is fetched
  CHECK(html.find("https://") == std::string::npos);
  CHECK((html.find("simulated") != std::string::npos) == (device != "cpu"));
}

TEST_CASE("dp_vs_ddp refuses what it cannot do in one line", "[dp_vs_ddp]") {
  const std::vector<std::vector<std::string>> all = {{"--device", "gpu"},
                                                     {"-n", "0"},
                                                     {"--device", "cuda", "-n", "64"},
                                                     {"--classes", "1"},
                                                     {"--rows", "0"},
                                                     {"--svg", "/nowhere/p.svg"},
                                                     {"--html", "/nowhere/p.html"},
                                                     {"--predict", "no"},
                                                     {"surplus"}};
  for (const auto& options : all) {
    const ProgramResult run = run_app(0, "dp_vs_ddp", options);
    INFO(options.back() << ": " << run.err);
    CHECK(run.exit_code == 6);
    CHECK(count(run.err, "\n") == 1);
    CHECK(run.out.empty());
  }
}

TEST_CASE("the report notices counters that are off, and NaN", "[dp_vs_ddp]") {
  Comparison c;
  c.devices = 4;
  c.parameter_bytes = 1000;
  c.dp.sent = c.dp.received = 3000;
  c.ddp.sent = 1500;
  CHECK(deviation_from_formulas({c}) == 0);
  c.ddp.sent = 1530;
  CHECK(deviation_from_formulas({c}) == Approx(0.02));
  c.ddp.sent = 1500;
  c.dp.received = 2000;
  CHECK(deviation_from_formulas({c}) == Approx(1.0 / 6));
  c.dp.received = std::nan("");
  CHECK(std::isinf(deviation_from_formulas({c})));
  c.devices = 1;
  c.dp.received = c.dp.sent = 0;
  c.ddp.sent = 0;
  CHECK(deviation_from_formulas({c}) == 0);
  c.ddp.sent = 1;  // one device has no peer to send to
  CHECK(std::isinf(deviation_from_formulas({c})));
}

TEST_CASE("fitted constants are found again, and never negative", "[dp_vs_ddp]") {
  std::vector<std::vector<double>> terms;
  std::vector<double> exact, falling;
  for (const double n : {1.0, 2.0, 4.0, 8.0}) {
    terms.push_back({1, n - 1, (n - 1) / n});
    exact.push_back(3e-3 + 2e-4 * (n - 1) + 5e-3 * (n - 1) / n);
    falling.push_back(1 / n);
  }
  const std::vector<double> found = fit_non_negative(terms, exact);
  CHECK(found[0] == Approx(3e-3));
  CHECK(found[1] == Approx(2e-4));
  CHECK(found[2] == Approx(5e-3));
  for (const double c : fit_non_negative(terms, falling)) CHECK(c >= 0);
  CHECK(predict(found, {1, 0, 0}) == Approx(3e-3));
  CHECK(fit_non_negative({{1, 0, 0}}, {2.0})[0] == Approx(2));
}

TEST_CASE("numbers in units", "[dp_vs_ddp]") {
  const auto bytes = [](double v) { return in_unit(v, Panel::Unit::bytes); };
  CHECK(bytes(1) == "1 B");
  CHECK(bytes(1023) == "1023 B");
  CHECK(bytes(1024) == "1 KiB");
  CHECK(bytes(1536) == "1.5 KiB");
  CHECK(bytes(128 * 1024) == "128 KiB");
  CHECK(bytes(3.14159 * 1048576) == "3.14 MiB");
  const auto time = [](double v) { return in_unit(v, Panel::Unit::seconds); };
  CHECK(time(1e-6) == "1 µs");
  CHECK(time(0.01) == "10 ms");
  CHECK(time(0.0123) == "12.3 ms");
  CHECK(time(2) == "2 s");
  CHECK(escape_xml("a<b & \"c\">") == "a&lt;b &amp; &quot;c&quot;&gt;");
}

TEST_CASE("a chart of anything is a picture", "[dp_vs_ddp]") {
  const std::vector<std::vector<ChartPoint>> all = {
      {}, {{1, 0}}, {{1, 5}}, {{1, 1e-9}, {2, 1e12}}, {{3, 7}, {5, 7}}, {{1, 1023}, {2, 1025}}};
  for (const Panel::Unit unit : {Panel::Unit::bytes, Panel::Unit::seconds})
    for (const auto& points : all) {
      const std::string svg = render_panels(
          "<&>", "\"", {{"panel", unit, {{"curve", Curve::Role::first, points, {}}}}});
      CHECK(is_well_formed(svg));
      CHECK(svg.find("nan") == std::string::npos);
      CHECK(svg.find("inf") == std::string::npos);
    }
}
