// ringsmith in one file: data-parallel training, from the tape to the bytes between the ranks.
//
//   g++ -std=c++20 -O2 -pthread ringsmith.cpp -o one && ./one 2
//
// N processes, the ranks, train copies of one network on different parts of the data. Each rank
// computes gradients from its own samples. The ranks average their gradients, and each applies the
// same update, so the copies stay equal bit for bit. The result is, up to rounding, the training of
// one process whose batch is N times as large. "Runtime:" names the file that has the full version.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <numbers>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kSamples = 2000, kBatch = 16, kHidden = 64, kMaxRanks = 16;  // batch: per rank
constexpr double kPeakRate = 0.2;
constexpr int kBucketFloats = 512;  // a bucket of this size takes no more; PyTorch's: 25 MiB
constexpr int kCacheLine = 64, kLine = kCacheLine / sizeof(float);  // bytes; floats
constexpr std::chrono::seconds kTimeout{10};                        // limit of each wait for a rank

// ---- 1. Errors: one line with the reason, and an exit code that scripts can test ----------------
enum ExitCode { kDone = 0, kFailed = 1, kRankLost = 3, kTimedOut = 4, kUsage = 6, kResources = 7 };

// Ends the process. The kernel frees its memory, and the parent tells the other ranks (section 10).
template <class... Parts>
[[noreturn]] void fail(ExitCode code, const Parts&... parts) {
  std::ostringstream text;
  ((text << "ringsmith: error: ") << ... << parts) << "\n";
  std::fputs(text.str().c_str(), stderr);
  _exit(code);
}

// ---- 2. Data: digits of 5 x 7 pixels under noise ------------------------------------------------
// Runtime: runtime/data/images.hpp reads MNIST and CIFAR-10.
constexpr int kRows = 7, kColumns = 5, kPixels = kRows * kColumns, kClasses = 10;
constexpr std::array<const char*, kRows> kGlyphs = {
    " ###    #    ###   ###     #  #####  ###  #####  ###   ### ",
    "#   #  ##   #   # #   #   ##  #     #   #     # #   # #   #",
    "#   #   #       #     #  # #  #     #        #  #   # #   #",
    "#   #   #      #    ##  #  #  ####  ####    #    ###   ####",
    "#   #   #     #       # #####     # #   #   #   #   #     #",
    "#   #   #    #    #   #    #  #   # #   #   #   #   # #   #",
    " ###   ###  #####  ###     #   ###   ###    #    ###   ### "};

// Image i shows the digit i % kClasses. std::mt19937 is specified bit for bit, so every standard
// library draws the same images.
std::vector<float> draw_digits() {
  std::mt19937 random(1);
  std::vector<float> pixels;
  for (int i = 0; i < kSamples; ++i)
    for (int p = 0; p < kPixels; ++p) {
      const int column = i % kClasses * (kColumns + 1) + p % kColumns;
      const bool ink = kGlyphs[p / kColumns][column] == '#';
      const auto byte = static_cast<float>((ink ? 120 : 0) + random() % 136);
      pixels.push_back((byte / 255 - 0.1307F) / 0.3081F);  // MNIST's mean and deviation
    }
  return pixels;
}

// ---- 3. The tape: each operation records how its gradients flow back ----------------------------
// A forward operation computes its value and records a function. backward() calls the functions in
// reverse order, and each adds to the gradients of its inputs. A gradient is complete when the
// functions of all operations that used the tensor have run. grad_ready is called at that moment,
// while backward still has to compute the gradients of earlier layers. Section 7 depends on it.
// Runtime: runtime/autograd/engine.cpp walks a graph; functions.hpp next to it has the operations.
struct Tensor {
  Tensor(int r, int c) : rows(r), columns(c), value(r * c), own_grad(r * c), grad(own_grad) {}
  int rows, columns;  // row-major
  std::vector<float> value, own_grad;
  std::span<float> grad;             // own_grad, or a parameter's place in a bucket
  std::function<void()> grad_ready;  // only for parameters: called when grad is complete
  int uses = 0;                      // during backward: operations that have yet to add to grad
};
using TensorPtr = std::shared_ptr<Tensor>;

class Tape {
 public:
  void record(std::vector<TensorPtr> inputs, std::function<void()> backward) {
    operations_.emplace_back(std::move(inputs), std::move(backward));
  }
  void backward(const TensorPtr& loss) {
    for (const auto& [inputs, run] : operations_)
      for (const TensorPtr& input : inputs) ++input->uses;
    loss->grad[0] = 1;
    for (; !operations_.empty(); operations_.pop_back()) {
      const auto& [inputs, run] = operations_.back();
      run();
      for (const TensorPtr& input : inputs)
        if (--input->uses == 0 && input->grad_ready) input->grad_ready();
    }
  }

 private:
  std::vector<std::pair<std::vector<TensorPtr>, std::function<void()>>> operations_;
};

// y = x weight^T + bias for x (batch, in), weight (out, in), bias (out, 1).
TensorPtr linear(Tape& tape, const TensorPtr& x, const TensorPtr& weight, const TensorPtr& bias) {
  const int batch = x->rows, in = x->columns, out = weight->rows;
  const auto y = std::make_shared<Tensor>(batch, out);
  for (int i = 0; i < batch; ++i)
    for (int j = 0; j < out; ++j) {
      float sum = 0;
      for (int k = 0; k < in; ++k) sum += x->value[i * in + k] * weight->value[j * in + k];
      y->value[i * out + j] = sum + bias->value[j];
    }
  tape.record({x, weight, bias}, [=] {
    for (int i = 0; i < batch; ++i)
      for (int j = 0; j < out; ++j) {
        const float g = y->grad[i * out + j];
        bias->grad[j] += g;
        for (int k = 0; k < in; ++k) {
          weight->grad[j * in + k] += g * x->value[i * in + k];
          x->grad[i * in + k] += g * weight->value[j * in + k];  // unused if x is the images
        }
      }
  });
  return y;
}

TensorPtr relu(Tape& tape, const TensorPtr& x) {
  const auto y = std::make_shared<Tensor>(x->rows, x->columns);
  for (std::size_t i = 0; i < x->value.size(); ++i)
    y->value[i] = x->value[i] <= 0 ? 0 : x->value[i];  // not x > 0 ? x : 0, which would hide NaN
  tape.record({x}, [=] {
    for (std::size_t i = 0; i < x->value.size(); ++i)
      if (y->value[i] != 0) x->grad[i] += y->grad[i];
  });
  return y;
}

// The mean over the rows of -log softmax(row)[label].
TensorPtr cross_entropy(Tape& tape, const TensorPtr& x, const std::vector<int>& labels) {
  const auto loss = std::make_shared<Tensor>(1, 1);
  const float scale = 1.0F / static_cast<float>(x->rows);
  std::vector<float> softmax = x->value;
  for (int i = 0; i < x->rows; ++i) {
    const std::span row(&softmax[i * x->columns], x->columns);
    const float largest = *std::max_element(row.begin(), row.end());  // exp() must not overflow
    float sum = 0;
    for (float& v : row) sum += v = std::exp(v - largest);
    for (float& v : row) v /= sum;
    loss->value[0] += (std::log(sum) + largest - x->value[i * x->columns + labels[i]]) * scale;
  }
  tape.record({x}, [=] {
    for (int i = 0; i < x->rows; ++i)
      for (int j = i * x->columns; j < (i + 1) * x->columns; ++j)
        x->grad[j] += (softmax[j] - (j % x->columns == labels[i] ? 1.0F : 0.0F)) * scale;
  });
  return loss;
}

// ---- 4. The model: a multilayer perceptron ------------------------------------------------------
// Runtime: runtime/nn/layers.cpp, and gpt.cpp next to it.
struct Mlp {
  // Values of torch.nn.Linear: U(-1/sqrt(in), 1/sqrt(in)) from PyTorch's generator, in its order.
  explicit Mlp(std::uint32_t seed) {
    std::mt19937 random(seed);
    constexpr std::array<int, 4> kWidths = {kPixels, kHidden, kHidden, kClasses};
    for (std::size_t layer = 0; layer + 1 < kWidths.size(); ++layer) {
      const auto bound = static_cast<float>(1 / std::sqrt(static_cast<double>(kWidths[layer])));
      for (const int columns : {kWidths[layer], 1}) {  // weight, then bias
        parameters.push_back(std::make_shared<Tensor>(kWidths[layer + 1], columns));
        for (float& v : parameters.back()->value)
          v = static_cast<float>(random() & 0xffffff) * 0x1p-24F * (bound + bound) - bound;
      }
    }
  }

  TensorPtr forward(Tape& tape, TensorPtr x) const {
    for (std::size_t i = 0; i < parameters.size(); i += 2)
      x = linear(tape, i > 0 ? relu(tape, x) : x, parameters[i], parameters[i + 1]);
    return x;
  }

  std::vector<TensorPtr> parameters;  // weight, bias, weight, bias, ...
};

// ---- 5. Shared memory: each rank can read the gradients of all ranks ----------------------------
// Runtime: runtime/comm/transport/shm needs no common parent; tcp and rdma connect hosts.
constexpr int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

// All gradients, a line for the loss, and padding: each of at most 7 buckets begins on a new line.
constexpr int kFloats = (kPixels + 1) * kHidden + (kHidden + 1) * (kHidden + kClasses) + 7 * kLine;

// Each rank writes only to its own RankMemory. The counter has its own cache line: a line with the
// counters of two ranks would move between their cores at every step (false sharing).
struct RankMemory {
  alignas(kCacheLine) std::atomic<std::uint64_t> steps_done{0};  // per call: 1 + 2(N-1)
  alignas(kCacheLine) std::array<float, kFloats> gradients{};
};
struct SharedMemory {
  std::array<RankMemory, kMaxRanks> ranks;
  std::atomic<int> lost{-1};  // the rank that failed first; the parent writes it
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);  // a lock would be per process

// ---- 6. The ring: an all-reduce in which each rank reads only from the previous rank ------------
// The array is cut into N chunks. In N-1 steps of reduce-scatter each chunk collects the values of
// all ranks; in N-1 steps of all-gather the complete chunks go round once more. Chunk 0 of 4 ranks,
// where x1 is the value of rank 1:
//
//    rank 1 ──► rank 2 ──► rank 3 ──────► rank 0                                 reduce-scatter
//    x1         x1+x2      (x1+x2)+x3     ((x1+x2)+x3)+x0
//                                         rank 0 ──► rank 1 ──► rank 2 ──► rank 3    all-gather
//
// Each rank reads 2(N-1)/N times the size of the array, so more ranks hardly cost more time. Each
// sum is formed once and then copied, so all ranks get the same bits.
// Runtime: runtime/comm/executor/plain_ring.cpp sends messages through slots, on any transport.
struct Bucket {
  std::string name;
  int first, count;                 // elements of RankMemory::gradients
  int parameters = 0, missing = 0;  // in the bucket; those whose gradient is incomplete
};

class Ring {
 public:
  Ring(SharedMemory& shared, int rank, int world) : shared_(shared), rank_(rank), world_(world) {}
  int training_step = 0;  // for errors

  // Replaces the bucket with its mean over the ranks. All ranks make the same calls in one order.
  void all_reduce(const Bucket& bucket) {
    const int previous = (rank_ + world_ - 1) % world_, next = (rank_ + 1) % world_;
    float* mine = &shared_.ranks[rank_].gradients[bucket.first];
    const float* theirs = &shared_.ranks[previous].gradients[bucket.first];
    // Chunk c is [start(c), start(c + 1)). With fewer elements than ranks some chunks are empty.
    const auto start = [&](int c) { return static_cast<int>(1LL * bucket.count * c / world_); };
    before_ = done_;
    step_done();  // the first of 2N-1 counted steps: this rank's values are there
    for (int s = 0; s < 2 * (world_ - 1); ++s) {
      // The previous rank wrote this chunk at s - 1, or had it from the start. The all-gather may
      // overwrite this rank's values: the next rank read them before it added to this sum.
      const int c = (rank_ + 2 * world_ - 2 - s) % world_;
      wait_for(previous, s + 1, bucket);
      for (int i = start(c); i < start(c + 1); ++i)
        mine[i] = s < world_ - 1 ? theirs[i] + mine[i] : theirs[i];
      if (s == world_ - 2)  // the sum is complete
        for (int i = start(c); i < start(c + 1); ++i) mine[i] /= static_cast<float>(world_);
      step_done();
    }
    wait_for(next, 2 * world_ - 1, bucket);  // it has read all, so begin() may overwrite
  }

 private:
  // Release: a rank that sees the new count also sees the elements that were written before.
  void step_done() { shared_.ranks[rank_].steps_done.store(++done_, std::memory_order_release); }

  // Blocks until the peer has done this many steps of the call, before which all counts are equal.
  // Acquire pairs with the release. Sleeps after a short spin, as the peer may need this core.
  void wait_for(int peer, int steps, const Bucket& bucket) const {
    const auto& peer_done = shared_.ranks[peer].steps_done;
    const auto deadline = Clock::now() + kTimeout;
    for (int tries = 0; peer_done.load(std::memory_order_acquire) < before_ + steps; ++tries) {
      if (tries < 200) continue;
      const int lost = shared_.lost.load(std::memory_order_relaxed);
      if (lost >= 0 || Clock::now() > deadline)
        fail(lost < 0 ? kTimedOut : kRankLost, "rank ", rank_, ", training step ", training_step,
             ": the all-reduce of ", bucket.name, " waits for rank ", peer, " in ring step ",
             done_ - before_, lost < 0 ? "; no progress in time: rank " : "; ended: rank ",
             lost < 0 ? peer : lost);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  SharedMemory& shared_;
  const int rank_, world_;
  std::uint64_t done_ = 0, before_ = 0;  // this rank's steps: in all; before this call
};

// ---- 7. Buckets: all-reduces that run while backward computes -----------------------------------
// Backward completes the gradients of the last layer first. So the buckets are filled from the last
// parameter to the first, and a second thread averages each complete bucket:
//
//    training thread       │ backward: layer 3 │ layer 2  │ layer 1  │ waits    │ update
//    communication thread                      │ bucket 0 │ bucket 1 │ bucket 2 │
//                                                                    └ exposed ─┘
//
// Only the exposed part costs time. Smaller buckets start earlier, but each needs 2(N-1) steps.
// Runtime: runtime/parallel/reducer.hpp also handles parameters that get no gradient.
class Reducer {
 public:
  // Makes each parameter's grad a view into the rank's shared memory: gradients are never copied.
  Reducer(Mlp& model, RankMemory& memory, Ring& ring, int steps)
      : memory_(memory), ring_(ring), buckets_{{"bucket 0", 0, kLine}} {
    int end = kLine;  // bucket 0 begins with the loss, alone in its cache line
    for (auto p = model.parameters.rbegin(); p != model.parameters.rend(); ++p) {
      if (buckets_.back().count >= kBucketFloats) {
        end = round_up(end, kLine);
        buckets_.push_back({"bucket " + std::to_string(buckets_.size()), end, 0});
      }
      (*p)->grad = std::span(memory.gradients).subspan(end, (*p)->value.size());
      (*p)->grad_ready = [this, b = buckets_.size() - 1] { gradient_ready(b); };
      end += static_cast<int>((*p)->value.size());
      buckets_.back().count = end - buckets_.back().first;
      ++buckets_.back().parameters;
    }
    const int calls = steps * static_cast<int>(buckets_.size());
    thread_ = std::thread([this, calls] { communicate(calls); });
  }
  ~Reducer() { thread_.join(); }

  // Called between forward and backward.
  void begin(int training_step, float loss) {
    memory_.gradients.fill(0);
    memory_.gradients[0] = loss;
    ring_.training_step = training_step;
    for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters;
    next_ = 0;
  }

  // Blocks until all buckets are averaged. It needs no deadline: wait_for() ends the process.
  void wait() const {
    for (int done = finished_; done != started_; done = finished_) finished_.wait(done);
  }

 private:
  // Starts the buckets in their order, even if a later one is complete first: ranks that make calls
  // in different orders would add up different parameters.
  void gradient_ready(std::size_t b) {
    --buckets_[b].missing;
    for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) {
      ++started_;
      started_.notify_one();
    }
  }

  void communicate(int calls) {
    for (int call = 0; call < calls; ++call) {
      started_.wait(call);  // until more than `call` are started
      ring_.all_reduce(buckets_[call % buckets_.size()]);
      ++finished_;
      finished_.notify_one();
    }
  }

  RankMemory& memory_;
  Ring& ring_;
  std::vector<Bucket> buckets_;
  std::size_t next_ = 0;                       // the first bucket that is not started
  std::atomic<int> started_{0}, finished_{0};  // calls since the start of the training
  std::thread thread_;
};

// ---- 8. The sampler: each rank gets different samples, each epoch a different order -------------
// All ranks draw the same permutation and divide it: rank 1 of 3 takes places 1, 4, 7 ...
// It is padded with its own beginning, so all ranks get equally many samples. Otherwise they could
// have different numbers of batches in an epoch. PyTorch's DistributedSampler has the same indices.
// Runtime: runtime/data/sampler.hpp; loader.hpp next to it fetches batches ahead.
std::vector<int> sampler_indices(int rank, int world, int seed, int epoch) {
  std::mt19937 random(static_cast<std::uint32_t>(seed + epoch));
  std::vector<int> order(kSamples), mine;
  for (int i = 0; i < kSamples; ++i) order[i] = i;
  for (int i = 0; i + 1 < kSamples; ++i)  // torch.randperm
    std::swap(order[i], order[i + static_cast<int>(random() % (kSamples - i))]);
  for (int i = rank; i < round_up(kSamples, world); i += world) mine.push_back(order[i % kSamples]);
  return mine;
}

// ---- 9. Training: the program of a rank ---------------------------------------------------------
// Runtime: labs/apps/train/train_classifier.cpp, with the options of train_mlp.
void train(int rank, int world, int steps, const std::vector<float>& pixels, Mlp& model,
           SharedMemory& shared) {
  RankMemory& memory = shared.ranks[rank];
  Ring ring(shared, rank, world);
  Reducer reducer(model, memory, ring, steps);
  const int batches =
      round_up(kSamples, world) / world / kBatch;  // of an epoch; the rest is dropped
  std::vector<int> indices;
  for (int step = 0; step < steps; ++step) {
    if (step % batches == 0) indices = sampler_indices(rank, world, 0, step / batches);
    const auto images = std::make_shared<Tensor>(kBatch, kPixels);
    std::vector<int> labels;
    for (int i = 0; i < kBatch; ++i) {
      const int index = indices[step % batches * kBatch + i];
      std::copy_n(&pixels[index * kPixels], kPixels, &images->value[i * kPixels]);
      labels.push_back(index % kClasses);
    }
    Tape tape;
    const TensorPtr loss = cross_entropy(tape, model.forward(tape, images), labels);
    reducer.begin(step + 1, loss->value[0]);
    tape.backward(loss);  // the reducer starts the all-reduces
    reducer.wait();
    const float mean_loss = memory.gradients[0];
    if (!std::isfinite(mean_loss))  // on all ranks if one rank's loss was NaN
      fail(kFailed, "rank ", rank, ", step ", step + 1, ": loss is not finite; lower kPeakRate");
    // The schedule of train_mlp: linear warm-up, then half a cosine down to 0.
    const double warmup = steps / 20 /* rounded down */, decay = (step - warmup) / (steps - warmup);
    const double rate = kPeakRate * (step < warmup ? (step + 1) / warmup
                                                   : (1 + std::cos(std::numbers::pi * decay)) / 2);
    for (const TensorPtr& p : model.parameters)  // SGD
      for (std::size_t i = 0; i < p->value.size(); ++i)
        p->value[i] -= static_cast<float>(rate) * p->grad[i];
    if (rank == 0 && ((step + 1) % std::max(1, steps / 20) == 0 || step + 1 == steps))
      std::printf("step %d of %d: loss %.6f\n", step + 1, steps, static_cast<double>(mean_loss));
  }
}

// ---- 10. Start and end of the ranks -------------------------------------------------------------
// Runtime: runtime/job/launch/supervisor.cpp starts programs, on one host or several.

// Returns when all ranks have succeeded. After the first failure the other ranks end in their next
// wait that blocks, with their own message. Ranks that do not, e.g. stopped ones, are killed.
void supervise(std::vector<pid_t> pids, SharedMemory& shared) {
  for (std::size_t running = pids.size(); running > 0; --running) {
    int status = 0;
    auto done = pids.end();  // skips a child that is not a rank, inherited through exec
    while (done == pids.end()) done = std::find(pids.begin(), pids.end(), waitpid(-1, &status, 0));
    const pid_t pid = std::exchange(*done, 0);
    if (status == 0) continue;
    const auto rank = static_cast<int>(done - pids.begin());
    shared.lost.store(rank, std::memory_order_relaxed);  // no other data depends on it
    std::this_thread::sleep_for(std::chrono::seconds(1));
    for (const pid_t other : pids)
      if (other != 0 && kill(other, SIGKILL) == 0) waitpid(other, nullptr, 0);  // none is left
    if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
    fail(kRankLost, "rank ", rank, " (process ", pid, ") was killed by signal ", WTERMSIG(status));
  }
}

// `gradients` holds the parameters after training (main). memcmp(), because 0 == -0 is true.
void check_drift(const SharedMemory& shared, int world) {
  const auto& first = shared.ranks[0].gradients;
  for (int rank = 0; rank < world; ++rank)
    if (std::memcmp(&shared.ranks[rank].gradients, &first, sizeof first) != 0)
      fail(kFailed, "the parameters of ranks 0 and ", rank, " differ: they have drifted apart");
  for (const float v : first)
    if (!std::isfinite(v)) fail(kFailed, "a parameter is NaN or infinite; lower kPeakRate");
  std::printf("the parameters of all ranks are equal bit for bit\n");
}

int number_of(const char* what, const char* text, int most) {
  char* end = nullptr;
  const long n = std::strtol(text, &end, 10);
  if (*end != '\0' || n < 1 || n > most)  // n is 0 for an empty string
    fail(kUsage, what, " is '", text, "': give a whole number from 1 to ", most);
  return static_cast<int>(n);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3)
    fail(kUsage, "give the number of ranks, and of steps if not 200: ringsmith RANKS [STEPS]");
  const int world = number_of("RANKS", argv[1], kMaxRanks);
  const int steps = argc == 3 ? number_of("STEPS", argv[2], 1'000'000) : 200;

  // fork() copies model and images, so all ranks start with the same parameters, and shares the
  // memory. Runtime: runtime/parallel/ddp.cpp broadcasts the parameters of rank 0.
  Mlp model(0);
  const std::vector<float> pixels = draw_digits();
  void* at = mmap(nullptr, sizeof(SharedMemory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                  -1, 0);
  if (at == MAP_FAILED)
    fail(kResources, "cannot map ", sizeof(SharedMemory), " bytes: ", std::strerror(errno));
  SharedMemory& shared = *new (at) SharedMemory;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // or fork() would copy text that is not yet printed
  std::signal(SIGCHLD, SIG_DFL);             // waitpid() fails if it was inherited as ignored
  std::vector<pid_t> pids;
  for (int rank = 0; rank < world; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      train(rank, world, steps, pixels, model, shared);
      for (const TensorPtr& p : model.parameters)  // published for check_drift()
        std::copy(p->value.begin(), p->value.end(), p->grad.begin());
      _exit(kDone);
    }
    if (pid < 0) {
      shared.lost.store(rank, std::memory_order_relaxed);  // ends the ranks that have started
      fail(kResources, "cannot start rank ", rank, ": ", std::strerror(errno), "; give fewer");
    }
    std::printf("rank %d is process %d\n", rank, static_cast<int>(pid));
    pids.push_back(pid);
  }
  supervise(pids, shared);
  check_drift(shared, world);
  return kDone;
}
