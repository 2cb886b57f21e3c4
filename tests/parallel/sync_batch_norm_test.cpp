// Compares SyncBatchNorm with one process that normalises all ranks' batches together. Also tests
// BatchNorm under DDP, which normalises each rank's batch alone. tests/reference/features_test.cpp
// compares with PyTorch.
#include "runtime/parallel/beyond/sync_batch_norm.hpp"

#include <cmath>
#include <numeric>

#include "runtime/nn/layers.hpp"
#include "tests/parallel/ranks.hpp"
#include "tests/support/device.hpp"

using namespace ringsmith;
using namespace ringsmith::test;

namespace {

constexpr std::int64_t kChannels = 3;

struct Layer {
  Tensor weight, bias, mean, var;
  explicit Layer(DType dtype, Device device) {
    const auto make = [&](std::vector<float> values) {
      return from_vector(values).to(dtype).to(device);
    };
    weight = make({1.5, -0.5, 2}).requires_grad_();
    bias = make({0.25, 1, -3}).requires_grad_();
    mean = make({0.5, -1, 0});
    var = make({2, 1, 0.5});
  }
};

// A rank's results: y, gradients of x, weight and bias, and the running statistics.
struct Seen {
  std::vector<double> y, dx, dweight, dbias, mean, var;
};
std::vector<double> doubles(const Tensor& t) { return t.to(DType::f64).to_vector<double>(); }

Seen look(const Layer& layer, const Tensor& x, const Tensor& y, const Tensor& seed) {
  y.backward(seed);
  return {doubles(y),
          doubles(x.grad()),
          doubles(layer.weight.grad()),
          doubles(layer.bias.grad()),
          doubles(layer.mean),
          doubles(layer.var)};
}

// Returns the rows of all ranks: normal values with mean 3 and variance 1.
Tensor samples(const std::vector<std::int64_t>& rows, bool images, std::uint64_t seed,
               DType dtype) {
  const std::int64_t n = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  Generator g(seed);
  const Tensor t = randn(images ? Shape{n, kChannels, 2, 3} : Shape{n, kChannels}, g);
  return add(t, 3.0).to(dtype);
}

double worst(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(a[i] - b[i]);
    if (!(d <= most)) most = std::isnan(d) ? HUGE_VAL : d;  // a NaN must not be lost
  }
  return most;
}

void compare(const std::vector<std::int64_t>& rows, bool images, DType dtype, Device device,
             double tolerance) {
  const int world = static_cast<int>(rows.size());
  const Tensor all = samples(rows, images, 1, dtype), seeds = samples(rows, images, 2, dtype);
  const Layer one(DType::f64, Device::cpu());
  const Tensor x = all.to(DType::f64).clone().requires_grad_();
  const Seen want =
      look(one, x, batch_norm(x, one.weight, one.bias, one.mean, one.var, true, 0.1, 1e-5),
           seeds.to(DType::f64));
  std::vector<Seen> got(rows.size());
  (void)run_threads<int>(
      world,
      [&](comm::ProcessGroup& ranks) {
        const Group group(std::shared_ptr<void>(), &ranks);
        const auto r = static_cast<std::size_t>(group->rank());
        const std::int64_t begin =
            std::accumulate(rows.begin(), rows.begin() + group->rank(), std::int64_t{0});
        const auto part = [&](const Tensor& t) {
          return t.slice(0, begin, begin + rows[r]).clone().to(device);
        };
        const Layer layer(dtype, device);
        const Tensor mine = part(all).requires_grad_();
        got[r] = look(layer, mine,
                      sync_batch_norm(group, mine, layer.weight, layer.bias, layer.mean, layer.var,
                                      true, 0.1, 1e-5),
                      part(seeds));
        return 0;
      },
      {},
      [&](comm::GroupOptions& options, int) {
        if (device.is_cuda()) options.device = device;
      });
  // Rows are concatenated; gradients of parameters are summed.
  Seen together;
  for (const Seen& s : got) {
    together.y.insert(together.y.end(), s.y.begin(), s.y.end());
    together.dx.insert(together.dx.end(), s.dx.begin(), s.dx.end());
    together.dweight.resize(kChannels);
    together.dbias.resize(kChannels);
    for (std::size_t c = 0; c < kChannels; ++c) {
      together.dweight[c] += s.dweight.at(c);
      together.dbias[c] += s.dbias.at(c);
    }
    CHECK(s.mean == got[0].mean);  // bit for bit the same on every rank
    CHECK(s.var == got[0].var);
    CHECK(worst(s.mean, want.mean) <= tolerance);
    CHECK(worst(s.var, want.var) <= tolerance);
  }
  CHECK(worst(together.y, want.y) <= tolerance);
  CHECK(worst(together.dx, want.dx) <= tolerance);
  CHECK(worst(together.dweight, want.dweight) <= 10 * tolerance);
  CHECK(worst(together.dbias, want.dbias) <= 10 * tolerance);
}

const std::vector<std::vector<std::int64_t>> kBatches{
    {4}, {3, 3}, {5, 1}, {0, 4}, {2, 0, 3}, {4, 3, 2, 1}, {0, 0, 6, 0, 0}, {1, 1, 1}};

}  // namespace

TEST_CASE("batches of all ranks are normalised as one, also uneven and empty ones", "[on_device]") {
  for (const auto& rows : kBatches)
    for (const bool images : {false, true}) {
      INFO("ranks " << rows.size() << ", first has " << rows[0] << (images ? " images" : " rows"));
      compare(rows, images, DType::f64, test::device(), 1e-12);
      compare(rows, images, DType::f32, test::device(), 1e-5);
    }
}

TEST_CASE(
    "evaluation uses the running statistics, and a rank that is alone has batch_norm's bits") {
  const auto got = run_ranks<Values>(2, [](const Group& group) {
    const Layer a(DType::f32, Device::cpu());
    // Evaluation is not a collective.
    if (group->rank() == 1) return Values{};
    const Tensor x = samples({4}, true, 1, DType::f32);
    return Values{
        sync_batch_norm(group, x, a.weight, a.bias, a.mean, a.var, false).to_vector<float>(),
        batch_norm(x, a.weight, a.bias, a.mean, a.var, false).to_vector<float>()};
  });
  CHECK(got[0][0] == got[0][1]);
  const auto alone = run_ranks<Values>(1, [](const Group& group) {
    const Layer a(DType::f32, Device::cpu()), b(DType::f32, Device::cpu());
    const Tensor x = samples({4}, true, 1, DType::f32);
    return Values{
        sync_batch_norm(group, x, a.weight, a.bias, a.mean, a.var, true).to_vector<float>(),
        batch_norm(x, b.weight, b.bias, b.mean, b.var, true).to_vector<float>()};
  });
  CHECK(alone[0][0] == alone[0][1]);
}

TEST_CASE("one value per channel on all ranks together is an error on all of them") {
  const auto said = run_ranks<std::string>(3, [](const Group& group) {
    const Layer layer(DType::f32, Device::cpu());
    const Tensor x = zeros({group->rank() == 1 ? 1 : 0, kChannels});
    return complaint_of([&] {
      (void)sync_batch_norm(group, x, layer.weight, layer.bias, layer.mean, layer.var, true);
    });
  });
  for (const std::string& each : said)
    CHECK(each ==
          "sync_batch_norm: training needs more than one value per channel on all ranks together; "
          "give larger batches, or call eval()");
}

TEST_CASE("convert_sync_batchnorm converts every BatchNorm2d, in place") {
  const auto got = run_ranks<Values>(2, [](const Group& group) {
    Sequential net;
    net.add<BatchNorm2d>(kChannels);
    Sequential& inner = net.add<Sequential>();
    inner.add<ReLU>();
    inner.add<BatchNorm2d>(kChannels);
    const NamedTensors before = net.named_parameters();
    const int converted = convert_sync_batchnorm(net, group);
    const NamedTensors after = net.named_parameters();
    for (std::size_t i = 0; i < before.size(); ++i)
      if (!before[i].second.is_same(after[i].second)) throw Error("another parameter");
    const Tensor all = samples({2, 2}, true, 4, DType::f32);
    const Tensor y = net(all.slice(0, 2 * group->rank(), 2 * group->rank() + 2).contiguous());
    Sequential alone;
    alone.add<BatchNorm2d>(kChannels);
    Sequential& below = alone.add<Sequential>();
    below.add<ReLU>();
    below.add<BatchNorm2d>(kChannels);
    const Tensor want = alone(all).slice(0, 2 * group->rank(), 2 * group->rank() + 2);
    float off = 0;
    const auto a = y.to_vector<float>(), b = want.to_vector<float>();
    for (std::size_t i = 0; i < a.size(); ++i) {
      const float d = std::abs(a[i] - b[i]);
      if (!(d <= off)) off = std::isnan(d) ? HUGE_VALF : d;  // a NaN must not be lost
    }
    return Values{{static_cast<float>(converted), off}};
  });
  for (const Values& v : got) {
    CHECK(v[0][0] == 2);
    CHECK(v[0][1] < 1e-5F);
  }
}

TEST_CASE("under DDP a BatchNorm's statistics are rank 0's, not an average of the ranks'") {
  for (const bool synchronised : {false, true}) {
    const auto got = run_ranks<Values>(3, [&](const Group& group) {
      BatchNorm2d norm(1);
      if (synchronised) convert_sync_batchnorm(norm, group);
      DistributedDataParallel ddp(norm, group);
      Values seen;
      for (int step = 0; step < 3; ++step) {
        norm.zero_grad();
        // The batch has mean 10 r + step and variance 1.
        const Tensor x =
            add(from_vector<float>({-1, 1}, {2, 1, 1, 1}), 10.0 * group->rank() + step);
        sum(mul(ddp.forward(x), x)).backward();
        seen.push_back(norm.running_mean.to_vector<float>());
        seen.push_back(norm.num_batches_tracked.to(DType::f32).to_vector<float>());
      }
      return seen;
    });
    float rank0 = 0;
    for (std::size_t step = 0; step < 3; ++step) {
      for (std::size_t r = 0; r < 3; ++r) {
        // Each rank updates rank 0's statistics of the previous step.
        const float mean =
            synchronised ? 10 + static_cast<float>(step) : static_cast<float>(10 * r + step);
        const float want = 0.1F * mean + 0.9F * rank0;
        CHECK(std::abs(got[r][2 * step][0] - want) < 1e-5F);
        CHECK(got[r][2 * step + 1][0] == static_cast<float>(step + 1));
      }
      rank0 = got[0][2 * step][0];
    }
  }
}
