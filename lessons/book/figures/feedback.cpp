// book_feedback: two ranks send only the k largest of eight gradients; the others wait, or are
// forgotten.
//
//     book_feedback --k 1 --rate 0.02 --steps 200
//
// A live figure of the book. Each rank's loss is the sum of (w_i - c_i)^2 / 2 with its own centres
// c; the ranks' centres differ strongly in the first elements, whose large gradients cancel in the
// average.
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <vector>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"

using namespace ringsmith;
using nlohmann::json;

namespace {

constexpr std::size_t kElements = 8;
using Row = std::array<double, kElements>;
constexpr std::array<Row, 2> kCentres = {Row{9, -8, 7, 2, 1, -1, 1, -2},
                                         Row{-9, 8, -7, 1, 2, -2, -1, 1}};

enum class Rest { travels, waits, is_forgotten };
constexpr std::array kNames = {"all travel", "the rest waits", "the rest is forgotten"};

double loss_of(const Row& w) {
  double sum = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    const double mean = (kCentres[0][i] + kCentres[1][i]) / 2;
    sum += (w[i] - mean) * (w[i] - mean) / 2;
  }
  return sum;  // above the smallest loss that one w can have
}

// Keeps the k elements of largest magnitude, the first ones among equals.
void choose(Row& gradient, Row& error, std::size_t k, Rest rest) {
  if (rest == Rest::travels) return;
  for (std::size_t i = 0; i < kElements; ++i) gradient[i] += error[i];
  std::array<std::size_t, kElements> order{};
  for (std::size_t i = 0; i < kElements; ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::fabs(gradient[a]) > std::fabs(gradient[b]);
  });
  for (std::size_t i = 0; i < kElements; ++i) error[i] = 0;
  for (std::size_t n = k; n < kElements; ++n) {
    if (rest == Rest::waits) error[order[n]] = gradient[order[n]];
    gradient[order[n]] = 0;
  }
}

std::vector<double> train(std::size_t k, double rate, int steps, Rest rest) {
  Row w{};
  std::array<Row, 2> errors{};
  std::vector<double> losses;
  for (int step = 0; step <= steps; ++step) {
    losses.push_back(std::round(loss_of(w) * 1e4) / 1e4);
    Row sum{};
    for (std::size_t rank = 0; rank < 2; ++rank) {
      Row gradient{};
      for (std::size_t i = 0; i < kElements; ++i) gradient[i] = w[i] - kCentres[rank][i];
      choose(gradient, errors[rank], k, rest);
      for (std::size_t i = 0; i < kElements; ++i) sum[i] += gradient[i];
    }
    for (std::size_t i = 0; i < kElements; ++i) w[i] -= rate * sum[i] / 2;
  }
  return losses;
}

int run(int argc, char** argv) {
  int k = 1, steps = 300;
  double rate = 0.02;
  bool as_data = false;
  apps::CommandLine app("Two ranks send only the k largest of eight gradients.", "book_feedback");
  app.add_option("--k", k, "elements that travel")->check(apps::whole(1, kElements));
  app.add_option("--rate", rate, "learning rate")->check(apps::real(0, 10));
  app.add_option("--steps", steps, "")->check(apps::whole(1, 2000));
  app.add_flag("--json", as_data, "print JSON");
  if (!app.parse(argc, argv)) return 0;
  json curves = json::array();
  std::string text =
      fmt::format("loss above the best, after steps 0, {}, {}, {}\n", steps / 10, steps / 2, steps);
  for (const Rest rest : {Rest::travels, Rest::waits, Rest::is_forgotten}) {
    const std::vector<double> losses = train(std::size_t(k), rate, steps, rest);
    const auto at = [&](int step) { return losses[std::size_t(step)]; };
    curves.push_back({{"name", kNames[std::size_t(rest)]}, {"losses", losses}});
    text += fmt::format("{:<22} {:>9.4f} {:>9.4f} {:>9.4f} {:>9.4f}\n", kNames[std::size_t(rest)],
                        at(0), at(steps / 10), at(steps / 2), at(steps));
  }
  fmt::print("{}",
             as_data ? json{{"k", k}, {"rate", rate}, {"curves", curves}}.dump() + "\n" : text);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program("book_feedback", [&] { return run(argc, argv); });
}
