#include "runtime/parallel/beyond/power_sgd.hpp"

#include <algorithm>
#include <fmt/core.h>
#include <limits>
#include <utility>

#include "runtime/autograd/functions.hpp"
#include "runtime/tensor/raw.hpp"

namespace ringsmith {

namespace {

// Orthonormalises the columns of m in place (Gram-Schmidt). A zero column stays zero.
void orthogonalise(const Tensor& m, double epsilon) {
  constexpr double kNotZero = std::numeric_limits<float>::min();
  const std::int64_t columns = m.size(1);
  for (std::int64_t i = 0; i < columns; ++i) {
    const Tensor column = m.slice(1, i, i + 1);
    const Tensor norm = sqrt(sum(mul(column, column), {0}, true));
    column.copy_(div(column, add(norm, std::max(epsilon, kNotZero))));
    if (i + 1 == columns) break;
    const Tensor rest = m.slice(1, i + 1, columns);
    rest.copy_(sub(rest, mul(sum(mul(column, rest), {0}, true), column)));
  }
}

// Equals numpy.random.RandomState.randint(10^9), from which PyTorch takes the seed of each Q.
std::uint64_t next_seed(Generator& g) {
  constexpr std::uint32_t kBelow = 1'000'000'000, kMask = (1U << 30) - 1;
  std::uint32_t seed = kBelow;
  while (seed >= kBelow) seed = g.random32() & kMask;
  return seed;
}

Tensor take(const Tensor& flat, std::int64_t& place, const Shape& sizes) {
  const std::int64_t begin = place;
  place += numel_of(sizes);
  return flat.slice(0, begin, place).view(sizes);
}

}  // namespace

struct PowerSgdState::ExchangeState {
  struct Factors {
    Tensor matrix;  // (n, m), a view of the bucket
    std::int64_t rank;
    Tensor p, q;  // (n, rank), (m, rank), views of ps and qs
  };
  std::vector<Factors> factors;
  std::vector<Tensor> whole;  // gradients that are not compressed
  Tensor ps, qs, rest;        // the send buffers: all P, all Q, all of `whole`
  Tensor local;               // the bucket before the exchange, for the error
};

PowerSgdState::PowerSgdState(std::shared_ptr<comm::ProcessGroup> group,
                             const PowerSgdOptions& options)
    : group_(std::move(group)),
      options_(options),
      plain_(allreduce_hook(group_)),
      ps_(group_),
      qs_(group_),
      rest_(group_),
      now_{.errors = {}, .qs = {}, .loss_scale = 0, .seeds = Generator(options.random_seed)},
      last_(now_) {
  const auto check = [](bool good, const char* rule, double got) {
    require(good, fmt::format("PowerSGD: {}, got {}", rule, got));
  };
  check(options.matrix_approximation_rank >= 1, "matrix_approximation_rank must be at least 1",
        options.matrix_approximation_rank);
  check(options.min_compression_rate > 0, "min_compression_rate must be above 0",
        options.min_compression_rate);
  check(options.orthogonalization_epsilon >= 0, "orthogonalization_epsilon must not be negative",
        options.orthogonalization_epsilon);
  check(options.start_powersgd_iter >= 0, "start_powersgd_iter must not be negative",
        static_cast<double>(options.start_powersgd_iter));
  const bool remembers = options.use_error_feedback || options.warm_start;
  check(options.start_powersgd_iter >= 2 || !remembers,
        "start_powersgd_iter must be at least 2 with error feedback or warm start",
        static_cast<double>(options.start_powersgd_iter));
}

Future PowerSgdState::exchange(const GradBucket& bucket) {
  if (bucket.index == 0) last_ = now_;  // copies handles; the tensors are never modified
  if (now_.iteration < options_.start_powersgd_iter) {
    if (bucket.is_last) ++now_.iteration;
    return plain_.call(bucket);
  }
  if (bucket.index == 0) rescale(bucket.loss_scale);
  const std::shared_ptr<ExchangeState> state = prepare(bucket);
  for (const ExchangeState::Factors& f : state->factors) {
    orthogonalise(f.q, options_.orthogonalization_epsilon);
    f.p.copy_(matmul(f.matrix, f.q));
  }
  const Future whole = all_reduce(group_, state->rest, comm::ReduceOp::sum);
  const Future ps = all_reduce(group_, state->ps, comm::ReduceOp::sum);
  return whole.then([ps](const Tensor&) { return ps; })
      .then([this, state](const Tensor&) {
        for (const ExchangeState::Factors& f : state->factors) {
          orthogonalise(f.p, options_.orthogonalization_epsilon);
          f.q.copy_(matmul(f.matrix.transpose(0, 1), f.p));
        }
        return all_reduce(group_, state->qs, comm::ReduceOp::sum);
      })
      .then([this, state, bucket](const Tensor&) { return finish(bucket, *state); });
}

void PowerSgdState::rescale(double loss_scale) {
  if (now_.loss_scale > 0 && loss_scale > 0 && loss_scale != now_.loss_scale)
    for (auto& [bucket, error] : now_.errors) error = mul(error, loss_scale / now_.loss_scale);
  now_.loss_scale = loss_scale;
}

std::shared_ptr<PowerSgdState::ExchangeState> PowerSgdState::prepare(const GradBucket& bucket) {
  auto state = std::make_shared<ExchangeState>();
  if (options_.use_error_feedback) {
    if (const auto error = now_.errors.find(bucket.index); error != now_.errors.end())
      raw::add_into(bucket.buffer, error->second);
    state->local = bucket.buffer.clone();
  }
  std::int64_t ps = 0, qs = 0, rest = 0;  // elements
  for (const Tensor& gradient : bucket.gradients) {
    const std::int64_t n = gradient.dim() == 0 ? 1 : gradient.size(0);
    const std::int64_t m = n == 0 ? 0 : gradient.numel() / n;
    const std::int64_t rank =
        std::min({n, m, static_cast<std::int64_t>(options_.matrix_approximation_rank)});
    const auto compressed = static_cast<double>((n + m) * rank);
    if (compressed * options_.min_compression_rate < static_cast<double>(n * m)) {
      state->factors.push_back({gradient.view({n, m}), rank, {}, {}});
      ps += n * rank;
      qs += m * rank;
    } else {
      state->whole.push_back(gradient);
      rest += n * m;
    }
  }
  now_.before += bucket.buffer.numel();
  now_.after += ps + qs + rest;

  const TensorOptions options = bucket.buffer.options();
  state->ps = ps_.get(bucket.index, ps, options);
  state->qs = qs_.get(bucket.index, qs, options);
  state->rest = rest_.get(bucket.index, rest, options);
  std::int64_t p = 0, q = 0, r = 0;
  for (ExchangeState::Factors& f : state->factors) {
    f.p = take(state->ps, p, {f.matrix.size(0), f.rank});
    f.q = take(state->qs, q, {f.matrix.size(1), f.rank});
  }
  for (const Tensor& t : state->whole) take(state->rest, r, t.sizes()).copy_(t);

  if (const auto q_before = now_.qs.find(bucket.index); q_before != now_.qs.end())
    state->qs.copy_(q_before->second);
  else
    draw(*state);
  return state;
}

// Draws on the host, so that a seed gives the same numbers on every device.
void PowerSgdState::draw(const ExchangeState& state) {
  Generator g(next_seed(now_.seeds));
  for (const ExchangeState::Factors& f : state.factors) f.q.copy_(randn(f.q.sizes(), g));
}

Tensor PowerSgdState::finish(const GradBucket& bucket, ExchangeState& state) {
  const int world = group_->size();
  raw::scalar_into(raw::Scalar::div, state.rest, world, "power_sgd_hook");
  raw::scalar_into(raw::Scalar::div, state.qs, world, "power_sgd_hook");
  std::int64_t r = 0;
  for (const Tensor& t : state.whole) t.copy_(take(state.rest, r, t.sizes()));
  for (const ExchangeState::Factors& f : state.factors)
    f.matrix.copy_(matmul(f.p, f.q.transpose(0, 1)));
  if (options_.use_error_feedback)
    now_.errors[bucket.index] =
        raw::binary(raw::Binary::sub, std::move(state.local), bucket.buffer, "power_sgd_hook");
  if (options_.warm_start) now_.qs[bucket.index] = state.qs.clone();
  if (bucket.is_last) ++now_.iteration;
  return bucket.buffer;
}

void PowerSgdState::forget() { now_ = last_; }

CommHook power_sgd_hook(std::shared_ptr<PowerSgdState> state) {
  return {"power_sgd", [state](const GradBucket& bucket) { return state->exchange(bucket); },
          [state] { state->forget(); }};
}

}  // namespace ringsmith
