// The ranks' actions in wrong_programs_test.cpp.
#pragma once

#include <csignal>
#include <fcntl.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "runtime/autograd/checkpoint.hpp"
#include "runtime/base/error.hpp"
#include "runtime/parallel/beyond/power_sgd.hpp"
#include "runtime/parallel/beyond/sync_batch_norm.hpp"
#include "runtime/parallel/drift.hpp"
#include "tests/fault/wrong_program.hpp"
#include "tests/support/free_port.hpp"
#include "tests/support/toy_models.hpp"

namespace ringsmith::test {

using comm::Algorithm;
using comm::BootstrapKind;
using comm::ReduceOp;
using comm::Transport;

using Floats = std::vector<float>;
using Part = std::size_t;  // elements per rank

inline std::string of(std::size_t n) { return "(f32, " + std::to_string(n); }
inline std::string root(int r) { return ", root " + std::to_string(r) + ")"; }

// ---- calls, each with its name in errors ----

template <class T = float>
Act all_reduce(std::size_t n, ReduceOp op = ReduceOp::sum) {
  return {[=](Rank& me) {
            std::vector<T> x(n);
            me.group->all_reduce(std::span(x), op);
          },
          "all_reduce(" + std::string(name_of(op)) + ", " + std::string(name_of(dtype_of<T>())) +
              ", " + std::to_string(n) + ")"};
}
inline Act all_reduce_by(Algorithm algorithm) {
  return {[=](Rank& me) {
            me.group->set_algorithm(algorithm);
            Floats x(9000);
            me.group->all_reduce(std::span(x));
          },
          "all_reduce(sum, f32, 9000, " + std::string(name_of(algorithm)) + ")"};
}
inline Act broadcast(std::size_t n, int from) {
  return {[=](Rank& me) {
            Floats x(n);
            me.group->broadcast(std::span(x), from);
          },
          "broadcast" + of(n) + root(from)};
}
inline Act reduce(std::size_t n, int to) {
  return {[=](Rank& me) {
            Floats x(n), y(n);
            me.group->reduce(std::span(x), std::span(y), ReduceOp::sum, to);
          },
          "reduce(sum, f32, " + std::to_string(n) + root(to)};
}
inline Act gather(Part n, int to) {
  return {[=](Rank& me) {
            Floats x(n), y(n * static_cast<std::size_t>(me.world()));
            me.group->gather(std::span(x), std::span(y), to);
          },
          "gather" + of(n) + root(to)};
}
inline Act scatter(Part n, int from) {
  return {[=](Rank& me) {
            Floats x(n * static_cast<std::size_t>(me.world())), y(n);
            me.group->scatter(std::span(x), std::span(y), from);
          },
          "scatter" + of(n) + root(from)};
}
inline Act all_gather(Part n) {
  return {[=](Rank& me) {
            Floats x(n), y(n * static_cast<std::size_t>(me.world()));
            me.group->all_gather(std::span(x), std::span(y));
          },
          "all_gather" + of(n) + ")"};
}
inline Act reduce_scatter(Part n) {
  return {[=](Rank& me) {
            Floats x(n * static_cast<std::size_t>(me.world())), y(n);
            me.group->reduce_scatter(std::span(x), std::span(y), ReduceOp::sum);
          },
          "reduce_scatter(sum, f32, " + std::to_string(n) + ")"};
}
inline Act all_to_all(std::size_t n) {
  return {[=](Rank& me) {
            Floats x(n), y(n);
            me.group->all_to_all(std::span(x), std::span(y));
          },
          "all_to_all" + of(n) + ")"};
}
inline Act barrier() {
  return {[](Rank& me) { me.group->barrier(); }, "barrier()"};
}
template <class T = float>
Act send(std::size_t n, int to) {
  return {[=](Rank& me) {
    std::vector<T> x(n);
    me.group->send(std::span(x), to);
  }};
}
inline Act recv(std::size_t n, int from) {
  return {[=](Rank& me) {
    Floats x(n);
    me.group->recv(std::span(x), from);
  }};
}
inline Act two_at_once(std::size_t first, std::size_t second) {
  return {[=](Rank& me) {
            Floats a(first), b(second);
            const auto one = me.group->all_reduce_async(std::span(a), std::span(a), ReduceOp::sum);
            const auto two = me.group->all_reduce_async(std::span(b), std::span(b), ReduceOp::sum);
            one->wait();
            two->wait();
          },
          "all_reduce(sum, f32, " + std::to_string(first) + ")"};
}
inline Act then(std::vector<Act> acts) {
  return {[=](Rank& me) {
            for (const Act& act : acts) act.run(me);
          },
          acts.front().name};
}
inline Act in_group(const std::vector<int>& members, const Act& act) {
  return {[=](Rank& me) {
    Rank there(me.bootstrap, me.options, me.scores);
    there.group = me.group->new_group(members);
    act.run(there);
  }};
}
// Repeats the action until it throws.
inline Act again_and_again(const Act& act) {
  return {[=](Rank& me) {
    while (true) act.run(me);
  }};
}

// ---- other actions ----

inline const Act kNothing{[](Rank&) {}, "barrier()"};  // the rank's next call
inline const Act kSleeps{[](Rank& me) { me.wait_for_the_others(); }};
inline const Act kStops{[](Rank& me) { me.stop(); }};
inline const Act kOpensFifo{[](Rank& me) {
  const std::string name = "/tmp/ringsmith-fifo-" + std::to_string(getpid());
  mkfifo(name.c_str(), 0600);
  std::thread writer([&] {
    me.wait_for_the_others();
    close(open(name.c_str(), O_WRONLY));
  });
  close(open(name.c_str(), O_RDONLY));
  writer.join();
  unlink(name.c_str());
}};
inline const Act kComputes{[](Rank& me) {
  std::thread computing([&] { me.wait_for_the_others(); });
  computing.join();
}};
inline const Act kDies{[](Rank&) { raise(SIGKILL); }};
inline const Act kCrashes{[](Rank&) {
  signal(SIGSEGV, SIG_DFL);  // replaces Catch2's handler
  raise(SIGSEGV);
}};
inline const Act kExits{[](Rank&) { _exit(0); }};
inline const Act kLeaves{[](Rank& me) {
  me.group.reset();
  me.scores->ended[me.rank()] = 1;
  _exit(0);
}};
inline const Act kThrows{[](Rank&) { throw Error("out of luck"); }};
inline const Act kAborts{[](Rank& me) { me.group->abort(); }};

// Runs the action in another thread after the delay.
inline Act soon(const Act& act, int microseconds = 20'000) {
  return {[=](Rank& me) {
    std::thread([=, &me] {
      usleep(static_cast<useconds_t>(microseconds));
      act.run(me);
    }).detach();
  }};
}

// ---- starts ----

struct Given {
  int rank, world;
  std::string secret = "sixteen letters!";
  bool comes = true;
};
// Sets the variables as a launcher would, with a port of this program.
inline std::function<void(Rank&)> start_with(const std::vector<Given>& ranks) {
  const std::string port = testing::free_port();
  return [=](Rank& me) {
    const Given& given = ranks[static_cast<std::size_t>(me.rank())];
    if (!given.comes) throw UsageError("is not here");
    setenv("RANK", std::to_string(given.rank).c_str(), 1);
    setenv("WORLD_SIZE", std::to_string(given.world).c_str(), 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port.c_str(), 1);
    setenv("RINGSMITH_SECRET", given.secret.c_str(), 1);
    me.options.bootstrap = BootstrapKind::env;
    me.options.timeout = kStartPatience * deadline();
    me.group = init_process_group(me.options);
  };
}
inline std::function<void(Rank&)> start_over(int odd, Transport other) {
  return [=](Rank& me) {
    if (me.rank() == odd) me.options.transport = other;
    me.group = init_process_group(me.bootstrap, me.options);
  };
}

// ---- DDP ----

using Parameters = std::vector<std::pair<std::string, Shape>>;
struct Training {
  Parameters parameters = {{"w", {40, 10}}, {"b", {40}}};
  int steps = 3, skipped = -1;
  bool local = false;  // under no_sync
  bool uses_b = true;
  double bucket_mb = 25;
};
inline Act train(const Training& t) {
  return {[=](Rank& me) {
    NamedTensors model;
    for (const auto& [name, shape] : t.parameters)
      model.emplace_back(name, trained(integers(shape, 1)));
    DistributedDataParallel ddp(model, {}, me.group,
                                {.bucket_cap_mb = t.bucket_mb, .first_bucket_mb = t.bucket_mb});
    for (int step = 0; step < t.steps; ++step) {
      const auto forward = [&] {
        Tensor loss = sum(model[0].second);
        if (t.uses_b) loss = add(loss, sum(model[1].second));
        return loss;
      };
      if (t.local) {
        const auto guard = ddp.no_sync();
        ddp.forward(forward).backward();
        continue;
      }
      const Tensor loss = ddp.forward(forward);
      if (step != t.skipped) loss.backward();
    }
  }};
}

struct Wrapped {
  std::shared_ptr<comm::ProcessGroup> group;
  Tensor w = trained(integers({40, 10}, 1)), b = trained(integers({40}, 2));
  DistributedDataParallel ddp;

  Wrapped(const Rank& me, const DdpOptions& options)
      : group(me.group), ddp({{"w", w}, {"b", b}}, {}, group, options) {}
  [[nodiscard]] Tensor forward(bool uses_b = true) {
    return ddp.forward([&] { return uses_b ? add(sum(w), sum(b)) : sum(w); });
  }
  void step(bool uses_b = true) { forward(uses_b).backward(); }
  void hook(const std::function<Future(const GradBucket&)>& call) {
    ddp.register_comm_hook({"mine", call});
  }
};
inline Act with_ddp(const std::function<void(Wrapped&)>& body, const DdpOptions& options = {}) {
  return {[=](Rank& me) {
    Wrapped model(me, options);
    body(model);
  }};
}
inline Act with_hook(const std::function<Future(const GradBucket&)>& call) {
  return with_ddp([=](Wrapped& m) {
    m.hook(call);
    m.step();
  });
}
inline Act joined(int steps, const JoinOptions& options = {}) {
  return with_ddp([=](Wrapped& m) {
    m.ddp.join(
        [&] {
          for (int i = 0; i < steps; ++i) m.step();
        },
        options);
  });
}
inline Act power_sgd(int rank, int start = 2) {
  return with_ddp([=](Wrapped& m) {
    m.ddp.register_comm_hook(power_sgd_hook(std::make_shared<PowerSgdState>(
        m.group,
        PowerSgdOptions{.matrix_approximation_rank = rank, .start_powersgd_iter = start})));
    for (int i = 0; i < 4; ++i) m.step();
  });
}
inline Act sync_batch_norm_of(std::int64_t rows) {
  return {[=](Rank& me) {
    const auto of = [](double value) { return full({3}, value); };
    (void)ringsmith::sync_batch_norm(me.group, ones({rows, 3}), of(1), of(0), of(0), of(1), true);
  }};
}

}  // namespace ringsmith::test
