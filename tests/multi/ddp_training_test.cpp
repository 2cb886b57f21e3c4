// With the same global batch, training gives the same result on any number of ranks. Each rank also
// trains serially and compares.
#include <cmath>

#include "runtime/optim/optimizer.hpp"
#include "tests/multi/ddp_support.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

constexpr std::int64_t kGlobalBatch = 12;  // divisible by 1, 2, 3 and 4 ranks
constexpr int kSteps = 20;

bool shares_equally() { return kGlobalBatch % group().size() == 0; }

// Returns |x|. Its slope at 0 is 0, because relu has slope 0 there.
Tensor absolute(const Tensor& x) { return add(relu(x), relu(neg(x))); }

// All values are whole numbers far below 2^24. Gradients are bounded whole numbers, because only a
// frozen layer of whole numbers and an absolute error follow the trained layer; lr is 1.
struct Dyadic {
  Tensor w1 = trained(integers({8, 5}, 21)), b1 = trained(integers({8}, 22));
  Tensor w2 = integers({4, 8}, 23, 1), b2 = trained(integers({4}, 24));
  NamedTensors parameters{{"w1", w1}, {"b1", b1}, {"w2", w2}, {"b2", b2}};

  // Returns 12 times the mean over rows of the summed absolute error. This is W times a whole
  // number.
  [[nodiscard]] Tensor loss(const Tensor& x, const Tensor& y) const {
    const Tensor error = sum(absolute(sub(linear(relu(linear(x, w1, b1)), w2, b2), y)), {1});
    return mul(mean(error), static_cast<double>(kGlobalBatch));
  }
  [[nodiscard]] Tensor batch_x(int step) const {
    return integers({kGlobalBatch, 5}, 300 + static_cast<std::uint32_t>(step), 3);
  }
  [[nodiscard]] Tensor batch_y(int step) const {
    return integers({kGlobalBatch, 4}, 400 + static_cast<std::uint32_t>(step), 100);
  }
  [[nodiscard]] std::vector<Tensor> trained_parameters() const { return {w1, b1, b2}; }
  [[nodiscard]] std::string bits() const { return bits_of(w1) + bits_of(b1) + bits_of(b2); }
};

struct Classifier {
  Tensor w1, b1, w2, b2;
  NamedTensors parameters;

  explicit Classifier(std::uint64_t seed) {
    Generator g(seed);
    w1 = trained(mul(randn({32, 16}, g), 0.25));
    b1 = trained(mul(randn({32}, g), 0.1));
    w2 = trained(mul(randn({10, 32}, g), 0.2));
    b2 = trained(mul(randn({10}, g), 0.1));
    parameters = {{"w1", w1}, {"b1", b1}, {"w2", w2}, {"b2", b2}};
  }
  [[nodiscard]] Tensor loss(const Tensor& x, const Tensor& y) const {
    return cross_entropy(linear(relu(linear(x, w1, b1)), w2, b2), y);
  }
  [[nodiscard]] std::vector<Tensor> trained_parameters() const { return {w1, b1, w2, b2}; }
  static Tensor batch_x(int step) {
    Generator g(500 + static_cast<std::uint64_t>(step));
    return randn({kGlobalBatch, 16}, g);
  }
  static Tensor batch_y(int step) {
    std::vector<std::int64_t> labels;
    for (int i = 0; i < kGlobalBatch; ++i) labels.push_back((7 * step + 3 * i) % 10);
    return from_vector(labels);
  }
  [[nodiscard]] std::string bits() const {
    return bits_of(w1) + bits_of(b1) + bits_of(w2) + bits_of(b2);
  }
};

// Called with the step's number after every step.
using After = std::function<void(int)>;

template <class Model>
void train_serially(const Model& model, const SGDOptions& options, const After& after) {
  SGD optimizer(model.trained_parameters(), options);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    model.loss(model.batch_x(step), model.batch_y(step)).backward();
    optimizer.step();
    after(step);
  }
}

template <class Model>
void train_in_parallel(const Model& model, const SGDOptions& options, const After& after) {
  const int rank = group().rank(), world = group().size();
  DistributedDataParallel ddp(model.parameters, {}, shared_group(),
                              {.bucket_cap_mb = 0.0002, .first_bucket_mb = 0.0001});
  SGD optimizer(model.trained_parameters(), options);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    ddp.forward([&] {
         return model.loss(rows_of_rank(model.batch_x(step), rank, world),
                           rows_of_rank(model.batch_y(step), rank, world));
       })
        .backward();
    optimizer.step();
    after(step);
  }
}

}  // namespace

TEST_CASE("dyadic training of 20 steps has the serial bits after every step", "[ddp][training]") {
  if (!shares_equally()) return;
  const Dyadic serial, parallel;
  std::vector<std::string> expected{serial.bits()};
  train_serially(serial, {.lr = 1.0}, [&](int) {
    // Every parameter changes in every step, and f32 represents its whole values exactly.
    for (const Tensor& p : serial.trained_parameters()) {
      REQUIRE(bits_of(p.grad()) != bits_of(zeros_like(p)));
      for (const float v : p.to_vector<float>()) {
        REQUIRE(v == std::round(v));
        REQUIRE(std::abs(v) < 65536.0F);
      }
    }
    expected.push_back(serial.bits());
    REQUIRE(expected.back() != expected[expected.size() - 2]);
  });
  train_in_parallel(parallel, {.lr = 1.0}, [&](int step) {
    INFO("step " << step);
    REQUIRE(parallel.bits() == expected[static_cast<std::size_t>(step) + 1]);
  });
}

TEST_CASE("ordinary training of 20 steps stays within 1e-5 of the serial one", "[ddp][training]") {
  if (!shares_equally()) return;
  const SGDOptions options{.lr = 0.1, .momentum = 0.9};
  const Classifier serial(3), parallel(3), untrained(3);
  train_serially(serial, options, [](int) {});
  train_in_parallel(parallel, options, [](int) {});
  REQUIRE(variants(parallel.bits()) == 1);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto a = serial.parameters[i].second.to_vector<float>();
    const auto b = parallel.parameters[i].second.to_vector<float>();
    REQUIRE(a != untrained.parameters[i].second.to_vector<float>());
    for (std::size_t k = 0; k < a.size(); ++k)
      REQUIRE(std::abs(a[k] - b[k]) <= 1e-5F * std::max(1.0F, std::abs(a[k])));
  }
}

TEST_CASE("two runs with one seed have the same bits, on any number of ranks", "[ddp][training]") {
  const SGDOptions options{.lr = 0.1, .momentum = 0.9};
  const Classifier once(9), again(9);
  std::vector<std::string> bits;
  for (const Classifier* model : {&once, &again}) {
    DistributedDataParallel ddp(model->parameters, {}, shared_group());
    SGD optimizer(model->trained_parameters(), options);
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      const int mine = step * group().size() + group().rank();
      ddp.forward([&] { return model->loss(Classifier::batch_x(mine), Classifier::batch_y(mine)); })
          .backward();
      optimizer.step();
    }
    bits.push_back(model->bits());
  }
  REQUIRE(bits[0] == bits[1]);
  REQUIRE(bits[0] != Classifier(9).bits());
  REQUIRE(variants(bits[0]) == 1);
}
