// Part 1 of the driver: calls the student's formulas and statistics.
#include LAB18_FORMS

#include <limits>
#include <string>
#include <vector>

#include "labs/18-scale/refusing.hpp"
#include "labs/kit/driver.hpp"

KIT_SCENARIO(formula) {
  const std::string name = in.text("name");
  const std::vector<double> x = in.numbers("arguments");
  std::vector<double> results;
  const auto each = [&](std::size_t arity, auto call) {
    for (std::size_t i = 0; i + arity <= x.size(); i += arity) results.push_back(call(&x[i]));
  };
  if (name == "job_mtbf") {
    // Another job, which must not influence the next one.
    (void)lab18::job_mtbf(std::vector<double>{3, 6});
    results.push_back(lab18::job_mtbf(x));
  }
  if (name == "chance_of_failure")
    each(2, [](const double* a) { return lab18::chance_of_failure(a[0], a[1]); });
  if (name == "young") each(2, [](const double* a) { return lab18::young(a[0], a[1]); });
  if (name == "daly") each(2, [](const double* a) { return lab18::daly(a[0], a[1]); });
  if (name == "expected_time")
    each(5, [](const double* a) { return lab18::expected_time(a[0], a[1], a[2], a[3], a[4]); });
  if (name == "goodput")
    each(4, [](const double* a) { return lab18::goodput(a[0], a[1], a[2], a[3]); });
  if (name == "expected_slowest")
    each(3,
         [](const double* a) { return lab18::expected_slowest(a[0], a[1], std::int64_t(a[2])); });
  out.put("results", results);
}

KIT_SCENARIO(statistics) {
  const std::vector<double> a = in.numbers("a"), b = in.numbers("b");
  // Other samples, which must not influence the next ones.
  (void)lab18::estimate(std::vector<double>{1, 2, 4});
  const lab18::Estimate one = lab18::estimate(a);
  out.put("estimate", std::vector<double>{one.mean, one.error});
  if (a.size() == b.size()) {
    const lab18::Estimate both = lab18::difference(a, b);
    out.put("difference", std::vector<double>{both.mean, both.error});
  }
}

// Estimates from `count` samples, alternately 0 and 1.
KIT_SCENARIO(many_samples) {
  std::vector<double> samples(std::size_t(in.integer("count")));
  for (std::size_t i = 1; i < samples.size(); i += 2) samples[i] = 1;
  const lab18::Estimate one = lab18::estimate(samples);
  out.put("estimate", std::vector<double>{one.mean, one.error});
}

// questions: rows of mean, error, expected, errors.
KIT_SCENARIO(agreement) {
  const std::vector<double> x = in.numbers("questions");
  Integers answers;
  for (std::size_t i = 0; i + 4 <= x.size(); i += 4)
    answers.push_back(lab18::agrees({x[i], x[i + 1]}, x[i + 2], x[i + 3]));
  out.put("answers", answers);
}

KIT_SCENARIO(refused_formulas) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto mtbf = [](std::vector<double> ranks) {
    return std::int64_t(refuses([&] { (void)lab18::job_mtbf(ranks); }));
  };
  const std::vector<double> none, one{1}, two{1, 2};
  out.put("mtbf", Integers{mtbf({1, 0}), mtbf({-1, 1}), mtbf({1, nan}), mtbf({nan, 1})});
  out.put("estimate", refuses([&] { (void)lab18::estimate(none); }));
  out.put("difference", Integers{refuses([&] { (void)lab18::difference(one, two); }),
                                 refuses([&] { (void)lab18::difference(two, one); }),
                                 refuses([&] { (void)lab18::difference(none, none); })});
}
