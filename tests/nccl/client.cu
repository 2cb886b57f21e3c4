// A client modelled on nccl-tests, built against nccl.h alone. It exchanges the id by MPI or a
// file, creates communicators in one call, in a group, one by one or by splitting, and makes
// concurrent calls on several streams, in and out of place: every type, reduction and collective,
// and messages in groups. It checks every element and the bytes around the buffers.
//
// It uses CUDA as other programs do, with <<<>>> and kernels by their address. So it also tests
// that kernels/vgpu/nvcc compiles such programs unchanged.
//
//     nccl_client [-g DEVICES] [-b BYTES] [-e BYTES] [-f FACTOR] [-m all|group|one|split] [-q]
//     mpirun -np N nccl_client ...
//     nccl_client --id-file PATH --rank R --ranks N [--fail die|abort|late|shrink|orphan]
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <unistd.h>

#include "tests/nccl/data.hpp"
#include "tests/nccl/options.hpp"
#include "tests/nccl/refusals.hpp"
#include "tests/nccl/reshape.hpp"
#ifdef MPI_SUPPORT
#include <mpi.h>
#endif

namespace {

using client::give_up;
using client::kOps;
using client::kStreams;
using client::kTypes;
using client::Rank;
using client::Settings;

// ---- on the device: count the elements that differ ----

template <class U>
__global__ void __launch_bounds__(128, 1)
    differ(const U* got, const U* want, std::size_t n, unsigned tolerance, long long* wrong) {
  long long bad = 0;
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const U delta = got[i] < want[i] ? want[i] - got[i] : got[i] - want[i];
    bad += tolerance < delta ? 1 : 0;
  }
  asm volatile("red.global.add.u64 [%0],%1;" ::"l"(wrong), "l"(bad) : "memory");
}

__global__ void fill(unsigned char* to, std::size_t n, int value) {
  for (std::size_t i = threadIdx.x; i < n; i += blockDim.x)
    to[i] = static_cast<unsigned char>(value);
}

long long count_wrong(const void* got, const void* want, std::size_t n, std::size_t width,
                      unsigned tolerance) {
  long long* wrong = nullptr;
  CUDA(cudaHostAlloc((void**)&wrong, sizeof *wrong, cudaHostAllocMapped));
  *wrong = 0;
  void const* kernel = nullptr;
  switch (width) {
    case 1:
      kernel = (void const*)&differ<std::uint8_t>;
      break;
    case 2:
      kernel = (void const*)&differ<std::uint16_t>;
      break;
    case 4:
      kernel = (void const*)&differ<std::uint32_t>;
      break;
    default:
      kernel = (const void*)differ<std::uint64_t>;
      break;
  }
  void* arguments[] = {&got, &want, &n, &tolerance, &wrong};
  const dim3 grid = {static_cast<unsigned>(std::min<std::size_t>(8, (n + 511) / 512)), 1, 1};
  CUDA(cudaLaunchKernel(kernel, grid, dim3(128), arguments, 0, cudaStreamDefault));
  CUDA(cudaDeviceSynchronize());
  const long long count = *wrong;
  CUDA(cudaFreeHost(wrong));
  return count;
}

// ---- a case: one call on every rank ----

enum class Kind {
  all_reduce,
  reduce,
  broadcast,
  bcast,
  all_gather,
  reduce_scatter,
  exchange,
  all_to_all,
  gather,
  scatter,
  hypercube  // all_gather in dependent steps, each in its own ncclGroup within the outer one
};
struct KindName {
  Kind kind;
  const char* name;
  bool reduces;
};
constexpr KindName kKinds[] = {{Kind::all_reduce, "all_reduce", true},
                               {Kind::reduce, "reduce", true},
                               {Kind::reduce_scatter, "reduce_scatter", true},
                               {Kind::broadcast, "broadcast", false},
                               {Kind::bcast, "bcast", false},
                               {Kind::all_gather, "all_gather", false},
                               {Kind::exchange, "sendrecv", false},
                               {Kind::all_to_all, "alltoall", false},
                               {Kind::gather, "gather", false},
                               {Kind::scatter, "scatter", false},
                               {Kind::hypercube, "hypercube", false}};

struct Case {
  Kind kind;
  ncclDataType_t type;
  ncclRedOp_t op;
  std::size_t count;  // elements of one part, or of the whole buffer
  bool in_place;
  int root;
  std::uint64_t seed;
};

constexpr std::size_t kGuard = 256;  // bytes before and after a buffer
constexpr int kGuardValue = 0xA5;

class Client {
 public:
  Client(const Settings& settings, int process, int processes)
      : settings_(settings), world_(processes * settings.devices) {
    int visible = 0;
    CUDA(cudaGetDeviceCount(&visible));
    if (world_ > visible && processes == 1)
      give_up("-g", "there are " + std::to_string(visible) + " devices", __LINE__);
    ranks_.resize(static_cast<std::size_t>(settings.devices));
    for (int i = 0; i < settings.devices; ++i) {
      Rank& r = at(i);
      r.rank = process * settings.devices + i;
      r.device = r.rank % visible;  // all processes run on this host
      CUDA(cudaSetDevice(r.device));
      for (int s = 0; s < kStreams; ++s) {
        CUDA(cudaStreamCreateWithFlags(&r.streams[s], cudaStreamNonBlocking));
        CUDA(cudaMalloc(&r.send[s], buffer_bytes()));
        CUDA(cudaMalloc(&r.receive[s], buffer_bytes()));
        CUDA(cudaMalloc(&r.factor[s], 8));
      }
      CUDA(cudaMalloc(&r.want, buffer_bytes()));
    }
  }

  // ---- communicators ----
  void make(const ncclUniqueId& id) {
    if (settings_.make == "all") {
      std::vector<ncclComm_t> comms(ranks_.size());
      std::vector<int> devices;
      for (const Rank& r : ranks_) devices.push_back(r.device);
      NCCL(ncclCommInitAll(comms.data(), static_cast<int>(comms.size()), devices.data()));
      for (int i = 0; i < settings_.devices; ++i) at(i).comm = comms[static_cast<std::size_t>(i)];
    } else if (settings_.make == "one") {  // one thread per rank, without a group
      std::vector<std::thread> threads;
      for (Rank& r : ranks_)
        threads.emplace_back([&, this] {
          CUDA(cudaSetDevice(r.device));
          NCCL(ncclCommInitRank(&r.comm, world_, id, r.rank));
        });
      for (std::thread& t : threads) t.join();
    } else {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      NCCL(ncclGroupStart());
      for (Rank& r : ranks_) {
        CUDA(cudaSetDevice(r.device));
        NCCL(ncclCommInitRankConfig(&r.comm, world_, id, r.rank, &config));
      }
      NCCL(ncclGroupEnd());
    }
    if (settings_.make == "split") split();
    NCCL(ncclGroupStart());
    for (Rank& r : ranks_) NCCL(ncclCommSplit(r.comm, 0, r.rank, &r.second, NULL));
    NCCL(ncclGroupEnd());
    for (const Rank& r : ranks_) {
      int count = 0, device = -1, rank = -1;
      NCCL(ncclCommCount(r.comm, &count));
      NCCL(ncclCommCuDevice(r.comm, &device));
      NCCL(ncclCommUserRank(r.comm, &rank));
      if (count != world_ || device != r.device || rank != r.rank)
        give_up("ncclCommCount and its sisters", "they do not say what was asked for", __LINE__);
    }
  }
  // Splits into the same ranks in reverse order, and once into no communicator.
  void split() {
    std::vector<ncclComm_t> reversed(ranks_.size()), none(ranks_.size());
    NCCL(ncclGroupStart());
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      NCCL(ncclCommSplit(ranks_[i].comm, 7, world_ - ranks_[i].rank, &reversed[i], NULL));
    NCCL(ncclGroupEnd());
    NCCL(ncclGroupStart());
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      NCCL(ncclCommSplit(ranks_[i].comm, NCCL_SPLIT_NOCOLOR, 0, &none[i], NULL));
    NCCL(ncclGroupEnd());
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (none[i] != NULL) give_up("ncclCommSplit", "a rank without color got one", __LINE__);
      NCCL(ncclCommDestroy(ranks_[i].comm));
      ranks_[i].comm = reversed[i];
      ranks_[i].rank = world_ - 1 - ranks_[i].rank;
    }
  }
  void destroy() {
    for (Rank& r : ranks_) {
      NCCL(ncclCommFinalize(r.comm));
      NCCL(ncclCommDestroy(r.comm));
      NCCL(ncclCommDestroy(r.second));
    }
  }

  // ---- all cases ----
  void run() {
    std::vector<Case> cases;
    std::uint64_t seed = 1;
    for (std::size_t bytes = settings_.least; bytes <= settings_.most; bytes *= settings_.factor)
      for (const KindName& kind : kKinds)
        for (const client::TypeName& type : kTypes)
          for (const client::OpName& op : kOps) {
            if (!kind.reduces && op.op != ncclSum) continue;
            if (kind.kind == Kind::hypercube && (world_ & (world_ - 1)) != 0) continue;
            for (const bool in_place : {false, true}) {
              if (!can_be_in_place(kind.kind) && in_place) continue;
              ++seed;
              if (settings_.quick && seed % 7 != 0) continue;
              const bool parts = kind.kind != Kind::all_reduce && kind.kind != Kind::reduce &&
                                 kind.kind != Kind::broadcast && kind.kind != Kind::bcast &&
                                 kind.kind != Kind::exchange;
              std::size_t count = bytes / client::size_of(type.type);
              if (parts) count /= static_cast<std::size_t>(world_);
              if (seed % 5 == 0 && count > 1) --count;  // so that not all are powers of two
              const int root = static_cast<int>(seed % static_cast<std::uint64_t>(world_));
              cases.push_back({kind.kind, type.type, op.op, count, in_place, root, seed});
            }
          }
    for (std::size_t first = 0; first < cases.size(); first += kStreams) {
      const std::size_t n = std::min<std::size_t>(kStreams, cases.size() - first);
      run_together(&cases[first], static_cast<int>(n));
    }
  }
  [[nodiscard]] long long wrong() const { return wrong_; }
  [[nodiscard]] long long checked() const { return checked_; }
  [[nodiscard]] long long cases() const { return cases_; }
  [[nodiscard]] int world() const { return world_; }
  [[nodiscard]] const std::vector<Rank>& ranks() const { return ranks_; }
  [[nodiscard]] Rank& at(int i) { return ranks_[static_cast<std::size_t>(i)]; }

  ncclResult_t wait() {
    for (Rank& r : ranks_)
      for (const cudaStream_t stream : r.streams)
        for (;;) {
          const cudaError_t code = cudaStreamQuery(stream);
          ncclResult_t failed = ncclSuccess;
          NCCL(ncclCommGetAsyncError(r.comm, &failed));
          if (failed != ncclSuccess) return failed;
          if (code == cudaSuccess) break;
          if (code != cudaErrorNotReady) CUDA(code);
          (void)cudaGetLastError();  // otherwise the error would persist
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
    return ncclSuccess;
  }

 private:
  [[nodiscard]] std::size_t buffer_bytes() const {
    return settings_.most + static_cast<std::size_t>(world_) * 64 + 2 * kGuard;
  }
  // Offsets of the data in bytes. They depend on the seed, and are not always multiples of 16.
  [[nodiscard]] static std::size_t send_at(const Case& c) {
    return c.in_place ? receive_at(c) : kGuard + c.seed % 4 * client::size_of(c.type);
  }
  [[nodiscard]] static std::size_t receive_at(const Case& c) {
    return kGuard + c.seed / 4 % 4 * client::size_of(c.type);
  }
  [[nodiscard]] static bool can_be_in_place(Kind kind) {
    return kind != Kind::exchange && kind != Kind::all_to_all && kind != Kind::gather &&
           kind != Kind::scatter && kind != Kind::bcast && kind != Kind::hypercube;
  }

  // Number of elements in a rank's two buffers, and the offset of its part in each.
  struct Extent {
    std::size_t sends, receives;
    std::size_t send_begin = 0, receive_begin = 0;  // in place
  };
  [[nodiscard]] Extent extent(const Case& c, int rank) const {
    const std::size_t all = c.count * static_cast<std::size_t>(world_);
    const std::size_t mine = c.count * static_cast<std::size_t>(rank);
    const bool root = rank == c.root;
    switch (c.kind) {
      case Kind::all_gather:
      case Kind::hypercube:
        return {c.count, all, mine, 0};
      case Kind::reduce_scatter:
        return {all, c.count, 0, mine};
      case Kind::all_to_all:
        return {all, all};
      case Kind::gather:
        return {c.count, root ? all : 0};
      case Kind::scatter:
        return {root ? all : 0, c.count};
      case Kind::reduce:
        return {c.count, root ? c.count : 0};
      case Kind::broadcast:
      case Kind::bcast:
        return {root ? c.count : 0, c.count};
      default:
        return {c.count, c.count};
    }
  }

  template <class T>
  T given(const Case& c, int rank, std::size_t i) const {
    return client::input_of<T>(c.op, c.seed, rank, i);
  }
  template <class T>
  T wanted(const Case& c, int rank, std::size_t i) const {
    const auto me = static_cast<std::size_t>(rank);
    switch (c.kind) {
      case Kind::all_reduce:
      case Kind::reduce:
        return client::reduced<T>(c.op, c.seed, world_, i);
      case Kind::reduce_scatter:
        return client::reduced<T>(c.op, c.seed, world_, me * c.count + i);
      case Kind::broadcast:
      case Kind::bcast:
        return given<T>(c, c.root, i);
      case Kind::all_gather:
      case Kind::hypercube:
      case Kind::gather:
        return given<T>(c, static_cast<int>(i / c.count), i % c.count);
      case Kind::all_to_all:
        return given<T>(c, static_cast<int>(i / c.count), me * c.count + i % c.count);
      case Kind::scatter:
        return given<T>(c, c.root, me * c.count + i);
      default:
        return given<T>(c, (rank + world_ - 1) % world_, i);
    }
  }

  void run_together(const Case* cases, int n) {
    std::vector<std::vector<unsigned char>> host;  // must live until the copies are done
    host.reserve(ranks_.size() * static_cast<std::size_t>(n));
    for (int s = 0; s < n; ++s)
      for (Rank& r : ranks_) prepare(cases[s], r, s, host);
    // Each case has its own group. If the first case's seed is even, one outer group contains all.
    const bool one_group = cases[0].seed % 2 == 0;
    if (one_group) NCCL(ncclGroupStart());
    for (int s = 0; s < n; ++s) {
      NCCL(ncclGroupStart());
      for (Rank& r : ranks_) call(cases[s], r, s);
      NCCL(ncclGroupEnd());
    }
    if (one_group) NCCL(ncclGroupEnd());
    if (wait() != ncclSuccess) give_up("a communicator failed", ncclGetLastError(NULL), __LINE__);
    for (int s = 0; s < n; ++s)
      for (Rank& r : ranks_) verify(cases[s], r, s);
    cases_ += n;
  }

  void prepare(const Case& c, Rank& r, int s, std::vector<std::vector<unsigned char>>& host) {
    CUDA(cudaSetDevice(r.device));
    const Extent e = extent(c, r.rank);
    fill<<<1, 32, 0, r.streams[s]>>>(r.receive[s], buffer_bytes(), kGuardValue);
    CUDA(cudaGetLastError());
    client::with_type(c.type, [&](auto zero) {
      using T = decltype(zero);
      std::vector<unsigned char>& bytes = host.emplace_back(e.sends * sizeof(T));
      for (std::size_t i = 0; i < e.sends; ++i) {
        const T x = given<T>(c, r.rank, i);
        std::memcpy(&bytes[i * sizeof(T)], &x, sizeof x);
      }
      unsigned char* to = c.in_place ? r.receive[s] + e.send_begin * sizeof(T) : r.send[s];
      if (!bytes.empty())
        CUDA(cudaMemcpyAsync(to + send_at(c), bytes.data(), bytes.size(), cudaMemcpyHostToDevice,
                             r.streams[s]));
    });
  }

  void call(const Case& c, Rank& r, int s) {
    const Extent e = extent(c, r.rank);
    const std::size_t width = client::size_of(c.type);
    unsigned char* const out =
        r.receive[s] + receive_at(c) + (c.in_place ? e.receive_begin * width : 0);
    const unsigned char* const in =
        c.in_place ? r.receive[s] + send_at(c) + e.send_begin * width : r.send[s] + send_at(c);
    const cudaStream_t stream = r.streams[s];
    const ncclComm_t comm = s == 1 ? r.second : r.comm;
    const auto part = [&](auto* buffer, int peer) {
      return buffer + static_cast<std::size_t>(peer) * c.count * width;
    };
    const ncclRedOp_t op = c.op == ncclNumOps ? make_op(c, r, s, comm) : c.op;
    switch (c.kind) {
      case Kind::all_reduce:
        NCCL(ncclAllReduce(in, out, c.count, c.type, op, comm, stream));
        break;
      case Kind::reduce:
        NCCL(ncclReduce(in, out, c.count, c.type, op, c.root, comm, stream));
        break;
      case Kind::reduce_scatter:
        NCCL(ncclReduceScatter(in, out, c.count, c.type, op, comm, stream));
        break;
      case Kind::broadcast:
        NCCL(ncclBroadcast(in, out, c.count, c.type, c.root, comm, stream));
        break;
      case Kind::bcast:  // always in place
        if (r.rank == c.root)
          CUDA(cudaMemcpyAsync(out, in, c.count * width, cudaMemcpyDeviceToDevice, stream));
        NCCL(ncclBcast(out, c.count, c.type, c.root, comm, stream));
        break;
      case Kind::all_gather:
        NCCL(ncclAllGather(in, out, c.count, c.type, comm, stream));
        break;
      case Kind::exchange:
        NCCL(ncclSend(in, c.count, c.type, (r.rank + 1) % world_, comm, stream));
        NCCL(ncclRecv(out, c.count, c.type, (r.rank + world_ - 1) % world_, comm, stream));
        break;
      case Kind::all_to_all:
        if (c.seed % 2 == 0) {
          NCCL(ncclAlltoAll(in, out, c.count, c.type, comm, stream));
          break;
        }
        for (int peer = 0; peer < world_; ++peer) {
          NCCL(ncclSend(part(in, peer), c.count, c.type, peer, comm, stream));
          NCCL(ncclRecv(part(out, peer), c.count, c.type, peer, comm, stream));
        }
        break;
      case Kind::gather:
        if (c.seed % 2 == 0) {
          NCCL(ncclGather(in, out, c.count, c.type, c.root, comm, stream));
          break;
        }
        NCCL(ncclSend(in, c.count, c.type, c.root, comm, stream));
        for (int peer = 0; peer < world_ && r.rank == c.root; ++peer)
          NCCL(ncclRecv(part(out, peer), c.count, c.type, peer, comm, stream));
        break;
      case Kind::scatter:
        if (c.seed % 2 == 0) {
          NCCL(ncclScatter(in, out, c.count, c.type, c.root, comm, stream));
          break;
        }
        for (int peer = 0; peer < world_ && r.rank == c.root; ++peer)
          NCCL(ncclSend(part(in, peer), c.count, c.type, peer, comm, stream));
        NCCL(ncclRecv(out, c.count, c.type, c.root, comm, stream));
        break;
      case Kind::hypercube:
        CUDA(cudaMemcpyAsync(part(out, r.rank), in, c.count * width, cudaMemcpyDeviceToDevice,
                             stream));
        for (int step = 1; step < world_; step *= 2) {
          const int first = r.rank & ~(step - 1);  // the first rank whose part has arrived
          const std::size_t parts = c.count * static_cast<std::size_t>(step);
          NCCL(ncclGroupStart());
          NCCL(ncclSend(part(out, first), parts, c.type, r.rank ^ step, comm, stream));
          NCCL(ncclRecv(part(out, first ^ step), parts, c.type, r.rank ^ step, comm, stream));
          NCCL(ncclGroupEnd());
        }
        break;
    }
    if (c.op == ncclNumOps)
      NCCL(ncclRedOpDestroy(op, comm));  // within the call's group, as in nccl-tests
  }

  // For half of the seeds, the scalar is stored on the device after the op was created.
  ncclRedOp_t make_op(const Case& c, Rank& r, int s, ncclComm_t comm) const {
    ncclRedOp_t op = ncclSum;
    client::with_type(c.type, [&](auto zero) {
      auto factor = client::factor_of<decltype(zero)>(r.rank);
      if (c.seed % 4 < 2) {
        NCCL(ncclRedOpCreatePreMulSum(&op, &factor, c.type, ncclScalarHostImmediate, comm));
      } else {
        NCCL(ncclRedOpCreatePreMulSum(&op, r.factor[s], c.type, ncclScalarDevice, comm));
        CUDA(cudaMemcpyAsync(r.factor[s], &factor, sizeof factor, cudaMemcpyHostToDevice,
                             r.streams[s]));
        CUDA(cudaStreamSynchronize(r.streams[s]));
      }
    });
    return op;
  }

  void verify(const Case& c, Rank& r, int s) {
    CUDA(cudaSetDevice(r.device));
    const Extent e = extent(c, r.rank);
    client::with_type(c.type, [&](auto zero) {
      using T = decltype(zero);
      const std::size_t begin = receive_at(c) + (c.in_place ? e.receive_begin : 0) * sizeof(T);
      const std::size_t bytes = e.receives * sizeof(T);
      std::vector<T> want(e.receives);
      for (std::size_t i = 0; i < e.receives; ++i) want[i] = wanted<T>(c, r.rank, i);
      long long bad = 0;
      if (bytes > 0) {
        CUDA(cudaMemset(r.want, 0, bytes));
        CUDA(cudaMemcpy(r.want, want.data(), bytes, cudaMemcpyHostToDevice));
        bad = count_wrong(r.receive[s] + begin, r.want, e.receives, sizeof(T),
                          client::tolerance_of<T>(c.op, world_));
      }
      bad += stray_bytes(c, r, s, begin, begin + bytes, e.sends * sizeof(T));
      wrong_ += bad;
      checked_ += static_cast<long long>(e.receives);
      if (bad > 0 && complained_++ < 10) complain(c, r, bad);
    });
  }

  // Counts changed bytes outside of the rank's result and, in place, its input.
  long long stray_bytes(const Case& c, Rank& r, int s, std::size_t begin, std::size_t end,
                        std::size_t sent) {
    std::vector<unsigned char> got(buffer_bytes());
    CUDA(cudaMemcpy(got.data(), r.receive[s], got.size(), cudaMemcpyDeviceToHost));
    const std::size_t own = extent(c, r.rank).send_begin * client::size_of(c.type) + send_at(c);
    long long bad = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const bool result = i >= begin && i < end;
      const bool input = c.in_place && i >= own && i < own + sent;
      bad += !result && !input && got[i] != kGuardValue ? 1 : 0;
    }
    return bad;
  }

  void complain(const Case& c, const Rank& r, long long bad) const {
    std::fprintf(
        stderr, "nccl_client: rank %d: %s %s %s, count %zu, %s, root %d: %lld elements are wrong\n",
        r.rank, kKinds[kind_index(c.kind)].name, name_of(c.type), kOps[op_index(c.op)].name,
        c.count, c.in_place ? "in place" : "out of place", c.root, bad);
  }
  static const char* name_of(ncclDataType_t type) {
    for (const client::TypeName& t : kTypes)
      if (t.type == type) return t.name;
    return "?";
  }
  static std::size_t op_index(ncclRedOp_t op) { return static_cast<std::size_t>(op); }
  static std::size_t kind_index(Kind kind) {
    std::size_t i = 0;
    while (kKinds[i].kind != kind) ++i;
    return i;
  }

  Settings settings_;
  int world_;
  std::vector<Rank> ranks_;
  long long wrong_ = 0, checked_ = 0, cases_ = 0;
  int complained_ = 0;
};

// ---- one of two ranks fails: the error of the other one ----

int fail(Client& client, const Settings& settings) {
  Rank& r = client.at(0);
  const auto reduce = [&] {
    NCCL(ncclAllReduce(r.send[0], r.receive[0], 1000, ncclFloat, ncclSum, r.comm, r.streams[0]));
  };
  reduce();
  if (client.wait() != ncclSuccess) give_up("the first one", ncclGetLastError(r.comm), __LINE__);
  const bool orphan = settings.fail == "orphan";  // rank 0 dies, whose process made the id
  if (r.rank == (orphan ? 0 : 1)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (settings.fail == "die" || settings.fail == "shrink" || orphan) kill(getpid(), SIGKILL);
    if (settings.fail == "abort") {
      NCCL(ncclCommAbort(r.comm));
      return 0;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(4000));  // late
    return 0;
  }
  const auto begin = std::chrono::steady_clock::now();
  reduce();
  const ncclResult_t failed = client.wait();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("result %d after %.2f s: %s\n", failed, took.count(), ncclGetLastError(r.comm));
  const ncclResult_t again =
      ncclAllReduce(r.send[0], r.receive[0], 1000, ncclFloat, ncclSum, r.comm, r.streams[0]);
  std::printf("the next call: %d\n", again);
  if (orphan) {
    int gone = 0;
    ncclComm_t rest = NULL;
    const ncclResult_t code = ncclCommShrink(r.comm, &gone, 1, &rest, NULL, NCCL_SHRINK_ABORT);
    std::printf("shrink: %d: %s\n", code, ncclGetLastError(NULL));
  }
  if (settings.fail == "shrink") {  // the survivors continue without rank 1
    int gone = 1;
    ncclComm_t rest = NULL;
    NCCL(ncclCommShrink(r.comm, &gone, 1, &rest, NULL, NCCL_SHRINK_ABORT));
    float x = static_cast<float>(r.rank + 1);
    CUDA(cudaMemcpy(r.send[0], &x, sizeof x, cudaMemcpyHostToDevice));
    NCCL(ncclAllReduce(r.send[0], r.receive[0], 1, ncclFloat, ncclSum, rest, r.streams[0]));
    CUDA(cudaStreamSynchronize(r.streams[0]));
    CUDA(cudaMemcpy(&x, r.receive[0], sizeof x, cudaMemcpyDeviceToHost));
    std::printf("the sum of the survivors: %g\n", x);
    NCCL(ncclCommDestroy(rest));
  }
  NCCL(ncclCommAbort(r.comm));
  return failed == ncclSuccess || again == ncclSuccess ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, NULL, _IOLBF, 0);
  const Settings settings = client::parse(argc, argv);
  int process = settings.process, processes = settings.processes;
  ncclUniqueId id = {};
#ifdef MPI_SUPPORT
  const bool mpi = settings.id_file.empty();
  if (mpi) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &process);
    MPI_Comm_size(MPI_COMM_WORLD, &processes);
    if (process == 0) NCCL(ncclGetUniqueId(&id));
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  }
#else
  const bool mpi = false;
  if (settings.id_file.empty()) NCCL(ncclGetUniqueId(&id));
#endif
  if (!settings.id_file.empty()) id = client::id_by_file(settings);
  Client all(settings, process, processes);
  all.make(id);
  if (!settings.fail.empty()) return fail(all, settings);
  long long sums[3] = {};
  sums[1] = processes == 1 ? client::refusals(all.at(0)) : 0;
  all.run();
  sums[0] = all.wrong() + (processes == 1 ? client::reshape(all.ranks()) : 0);
  sums[2] = all.checked();
  all.destroy();
#ifdef MPI_SUPPORT
  if (mpi) {
    MPI_Allreduce(MPI_IN_PLACE, sums, 3, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
  }
#endif
  if (process == 0)
    std::printf(
        "nccl_client: %d ranks in %d processes, communicators by %s: %lld calls, %lld "
        "elements, %lld wrong; %lld refusals not as promised\n",
        all.world(), processes, settings.make.c_str(), all.cases(), sums[2], sums[0], sums[1]);
  (void)mpi;
  return sums[0] == 0 && sums[1] == 0 && sums[2] > 0 ? 0 : 1;
}
