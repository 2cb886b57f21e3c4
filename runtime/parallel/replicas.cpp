#include "runtime/parallel/replicas.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <thread>

#include "runtime/autograd/autocast.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/device/stream.hpp"

namespace ringsmith {

namespace {

std::int64_t rows_of(const Tensor& part) { return part.dim() == 0 ? 1 : part.size(0); }

// Returns all sizes except the first.
Shape below_rows(const Tensor& part) {
  return part.dim() == 0 ? Shape{} : Shape(part.sizes().begin() + 1, part.sizes().end());
}

[[noreturn]] void throw_on(std::size_t replica, Device device, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& cause) {
    throw ReplicaError(replica, device, cause.what(), cause.exit_code());
  } catch (const std::exception& cause) {
    throw ReplicaError(replica, device, cause.what(), ExitCode::internal);
  } catch (...) {
    throw ReplicaError(replica, device, "threw something that is not an exception",
                       ExitCode::internal);
  }
}

}  // namespace

std::vector<std::int64_t> chunk_starts(std::int64_t rows, std::size_t replicas) {
  const auto n = static_cast<std::int64_t>(replicas);
  const std::int64_t each = std::max<std::int64_t>((rows + n - 1) / n, 1);
  std::vector<std::int64_t> starts{0};
  do starts.push_back(std::min(starts.back() + each, rows));
  while (starts.back() < rows);
  return starts;
}

Tensor copy_to(const Tensor& t, Device device) {
  return t.device() == device ? t.clone() : t.to(device);
}

std::vector<Tensor> scatter(const Tensor& batch, const std::vector<std::int64_t>& starts,
                            const std::vector<Device>& devices) {
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    const Tensor rows = batch.slice(0, starts[i], starts[i + 1]);
    parts.push_back(i == 0 ? rows : copy_to(rows, devices[i]));
  }
  return parts;
}

std::vector<std::int64_t> part_starts(const std::vector<Tensor>& parts) {
  std::vector<std::int64_t> starts{0};
  for (const Tensor& part : parts) starts.push_back(starts.back() + rows_of(part));
  return starts;
}

Tensor gather(const std::vector<Tensor>& parts, Device root) {
  const Tensor& first = parts.at(0);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const bool fits = parts[i].dim() == first.dim() && parts[i].dtype() == first.dtype() &&
                      below_rows(parts[i]) == below_rows(first);
    require(fits, "the outputs of the replicas do not fit together: replica 0 returned " +
                      to_string(first.sizes()) + " of " + std::string(name_of(first.dtype())) +
                      ", replica " + std::to_string(i) + " " + to_string(parts[i].sizes()) +
                      " of " + std::string(name_of(parts[i].dtype())));
  }
  const std::vector<std::int64_t> starts = part_starts(parts);
  Shape sizes = below_rows(first);
  sizes.insert(sizes.begin(), starts.back());
  Tensor whole = Tensor::empty(sizes, {first.dtype(), root});
  for (std::size_t i = 0; i < parts.size(); ++i)
    whole.slice(0, starts[i], starts[i + 1]).copy_(parts[i]);
  return whole;
}

void parallel_apply(const std::vector<Device>& devices,
                    const std::function<void(std::size_t replica)>& body, std::mutex* turn) {
  std::vector<std::exception_ptr> errors(devices.size());
  const bool recording = grad_enabled();
  const AutocastState autocast = autocast_state();
  std::vector<std::jthread> threads;  // always joined, even if a later thread fails to start
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const Stream stream = devices[i].is_cuda() ? Stream::current(devices[i]) : Stream();
    threads.emplace_back([&, i, stream] {
      try {
        const DeviceGuard on(devices[i]);
        const StreamGuard in(stream);
        std::optional<NoGradGuard> no_grad;
        if (!recording) no_grad.emplace();
        const Autocast as_in_the_caller(autocast);
        std::unique_lock<std::mutex> held;
        if (turn != nullptr) held = std::unique_lock(*turn);
        body(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  threads.clear();
  for (std::size_t i = 0; i < errors.size(); ++i)
    if (errors[i]) throw_on(i, devices[i], errors[i]);
}

}  // namespace ringsmith
