// A table of wrong programs: the actions of the ranks, and the error of every rank. Unless a row
// says otherwise, all ranks first make three matching calls, so that the wrong call is #3. A rank
// that has noticed no error then makes two calls of barrier(). Every rank must report its error at
// most 2 s after the deadline, or later if its start was slow.
//
// Over 300 lines because it is one table.
#include "tests/fault/wrong_acts.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/transport.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;
using namespace ringsmith::test;

namespace {

// ---- kinds of rows ----

// Rank `odd` makes a different call from the others, and every rank's error reports both calls.
WrongProgram differs(const std::string& name, const Act& common, const Act& other, int odd = 2) {
  const int first = odd == 0 ? 1 : 0;
  return {.name = name,
          .everybody = common,
          .but = {{odd, other}},
          .error = "MismatchError",
          .says = {"rank " + std::to_string(first) + " called " + common.name + " #3 at wrong_",
                   "but rank " + std::to_string(odd) + " called " + other.name + " #3 at ",
                   "2 ranks agree with rank " + std::to_string(first)},
          .culprit = odd};
}
std::string waited_for(const std::string& rank) {
  return "waited " + std::to_string(deadline().count()) + " ms for rank " + rank;
}
// Rank 2 does `why` instead of making the call. If `seen` is given, it must appear in the other
// ranks' errors, which describe rank 2's state.
WrongProgram late(const std::string& name, const Act& waiting, const Act& why,
                  const std::string& seen = "") {
  return {.name = name,
          .everybody = waiting,
          .but = {{2, why}},
          .error = "TimeoutError",
          .says = {waited_for("2"), "To blame: rank 2 (pid ", seen, waiting.name},
          .culprit = 2};
}
WrongProgram lost(const std::string& name, const Act& waiting, const Act& how,
                  const std::string& said, const std::string& victim = "") {
  return {.name = name,
          .everybody = waiting,
          .but = {{2, how}},
          .error = "PeerLost",
          .says = {"rank 2 (pid ", said},
          .culprit = 2,
          .instead = {{2, victim}}};
}

const char* const kGone = "is gone: ";

std::vector<WrongProgram> wrong_calls() {
  return {
      differs("another count", all_reduce(1000), all_reduce(1001)),
      differs("another count, of a long message", all_reduce(100'000), all_reduce(100'001)),
      differs("nothing instead of something", all_reduce(1000), all_reduce(0)),
      differs("another dtype", all_reduce(7), all_reduce<std::int32_t>(7)),
      differs("another reduction", all_reduce(7), all_reduce(7, ReduceOp::max)),
      differs("a mean instead of a sum", all_reduce(7), all_reduce(7, ReduceOp::avg)),
      differs("another operation", all_reduce(1024), all_gather(512)),
      differs("an operation with a root instead of one without", all_reduce(1024), reduce(1024, 0)),
      differs("a barrier instead of data", all_reduce(1024), barrier()),
      differs("another algorithm", all_reduce_by(Algorithm::ring), all_reduce_by(Algorithm::tree)),
      differs("another root of broadcast", broadcast(50'000, 0), broadcast(50'000, 1)),
      differs("another root of reduce", reduce(500, 0), reduce(500, 2)),
      differs("another root of gather", gather(500, 0), gather(500, 2)),
      differs("another root of scatter", scatter(500, 1), scatter(500, 2)),
      differs("another count of broadcast", broadcast(10, 0), broadcast(11, 0)),
      differs("another count of all_gather", all_gather(10), all_gather(30)),
      differs("another count of reduce_scatter", reduce_scatter(10), reduce_scatter(30)),
      differs("another count of all_to_all", all_to_all(300), all_to_all(303)),
      differs("scatter instead of gather", gather(100, 0), scatter(100, 0)),
      differs("a missing call", all_reduce(1000), kNothing),
      differs("a call too many", barrier(), all_reduce(1000)),
      differs("two calls in the other order", then({all_reduce(100), broadcast(100, 0)}),
              then({broadcast(100, 0), all_reduce(100)})),
      differs("asynchronous calls in the other order", two_at_once(100, 200),
              two_at_once(200, 100)),
      differs("only rank 0 calls: 'if (rank == 0)' around a collective", kNothing,
              broadcast(1000, 0), 0),
      {.name = "every rank makes another call",
       .everybody = all_reduce(10),
       .but = {{1, all_reduce(11)}, {2, all_reduce(12)}},
       .error = "MismatchError",
       .says = {"rank 0 called all_reduce(sum, f32, 10) #3 at ",
                "but rank 1 called all_reduce(sum, f32, 11) #3 at "}},
      {.name = "a wrong argument on one rank",
       .everybody = broadcast(10, 0),
       .but = {{2, broadcast(10, 3)}},
       .error = "PeerLost",
       .says = {"rank 2 (pid ", "has left the group because of an exception"},
       .culprit = 2,
       .instead = {{2, "UsageError: broadcast: root 3 is not a rank of this group of 3"}}},
  };
}

std::vector<WrongProgram> wrong_messages() {
  return {
      {.name = "a message of another length",
       .everybody = send(10, 1),
       .but = {{1, recv(12, 0)}},
       .error = "MismatchError",
       .says = {"rank 1 called recv(f32, 12, from rank 0) #0 at ",
                "but rank 0 called send(f32, 10, to rank 1) #0 at "},
       .world = 2},
      {.name = "a message of another type",
       .everybody = send<std::int32_t>(10, 1),
       .but = {{1, recv(10, 0)}},
       .error = "MismatchError",
       .says = {"rank 1 called recv(f32, 10, from rank 0) #0 at ",
                "but rank 0 called send(i32, 10, to rank 1) #0 at "},
       .world = 2},
      {.name = "both receive before they send",
       .everybody = then({recv(10, 1), send(10, 1)}),
       .but = {{1, then({recv(10, 0), send(10, 0)})}},
       .error = "TimeoutError",
       .says = {waited_for(""), "They wait in a cycle: rank 0 for rank 1 for rank 0",
                "in recv(f32, 10, from rank 1) #0 at "},
       .world = 2},
      {.name = "all send long messages before they receive",
       .everybody = send(1'000'000, 1),
       .but = {{1, send(1'000'000, 2)}, {2, send(1'000'000, 0)}},
       .error = "TimeoutError",
       .says = {"They wait in a cycle: rank 0 for rank 1 for rank 2 for rank 0, all in send()",
                "one of them must receive before it sends"}},
      {.name = "waiting for a message of the wrong rank",
       .everybody = kNothing,
       .but = {{0, send(10, 1)}, {1, recv(10, 2)}},
       .error = "TimeoutError",
       .says = {"rank 1 in recv(f32, 10, from rank 2) #0 at ", "They wait in a cycle: rank 1 for"}},
      {.name = "a chain: 0 waits for 1, who waits for 2, who sleeps",
       .everybody = recv(10, 1),
       .but = {{1, recv(10, 2)}, {2, kSleeps}},
       .error = "TimeoutError",
       .says = {"To blame: rank 2 (pid ", "rank 1 in recv(f32, 10, from rank 2) #0 at "},
       .culprit = 2},
  };
}

std::vector<WrongProgram> late_ranks() {
  return {
      late("a rank is asleep", all_reduce(1000), kSleeps, "its process sleeps"),
      late("a rank waits for a FIFO's writer", all_reduce(1000), kOpensFifo,
           geteuid() == 0 ? "its process sleeps in open() of a file or a FIFO"
                          : "its process sleeps"),
      late("a rank is asleep, and a long message waits", all_reduce(1'000'000), kSleeps),
      late("a rank is asleep, and a barrier waits", barrier(), kSleeps),
      late("a rank is asleep, and a broadcast of its own waits", broadcast(1000, 2), kSleeps),
      late("a rank is asleep, and asynchronous calls wait", two_at_once(100, 200), kSleeps),
      late("a rank computes in another thread and never comes", all_gather(100), kComputes),
      late("a rank is stopped", all_reduce(1000), kStops,
           "its process is stopped by a signal; kill -CONT "),
      {.name = "a rank is stopped in the middle of a collective",
       .everybody = again_and_again(all_reduce(300'000)),
       .but = {{2, then({soon(kStops), again_and_again(all_reduce(300'000))})}},
       .error = "TimeoutError",
       .says = {"To blame: rank 2 (pid ", "its process is stopped by a signal",
                "all_reduce(sum, f32, 300000) #"},
       .culprit = 2},
      {.name = "two ranks are asleep",
       .everybody = all_reduce(10),
       .but = {{1, {[](Rank& me) {
                  while (me.scores->ended[0] == 0) usleep(5000);
                }}},
               {2, {[](Rank& me) {
                  while (me.scores->ended[0] == 0) usleep(5000);
                }}}},
       .error = "TimeoutError",
       .says = {waited_for("1"), "To blame: rank 1 (pid ", "rank 2 "},
       .culprit = 1},
      {.name = "a call in a group that has failed",
       .everybody = {[](Rank& me) {
         Floats x(10);
         try {
           me.group->all_reduce(std::span(x).first(me.rank() == 2 ? 9 : 10));
         } catch (const MismatchError&) {
           me.group->all_reduce(std::span(x));
         }
       }},
       .error = "MismatchError",
       .says =
           {"the group has been broken since an earlier call failed: rank 0 called all_reduce(sum, "
            "f32, 10) #3 at ",
            "but rank 2 called all_reduce(sum, f32, 9) #3 at "},
       .culprit = 2},
  };
}

std::vector<WrongProgram> lost_ranks() {
  return {
      lost("a rank is killed before its call", all_reduce(1000), kDies, kGone),
      lost("a rank is killed in a collective", again_and_again(all_reduce(300'000)),
           then({soon(kDies), again_and_again(all_reduce(300'000))}), kGone),
      lost("a rank is killed with asynchronous calls under way",
           again_and_again(two_at_once(100'000, 200'000)),
           then({soon(kDies, 5000), again_and_again(two_at_once(100'000, 200'000))}), kGone),
      lost("a rank is killed before it sends", recv(10, 2), kDies, kGone),
      lost("a rank is killed before it receives a long message", send(5'000'000, 2), kDies, kGone),
      lost("a rank crashes", all_reduce(1000), kCrashes, kGone),
      lost("a rank exits early, past all destructors", all_reduce(1000), kExits, kGone),
      lost("a rank leaves early, in good order", all_reduce(1000), kLeaves, "has left the group"),
      lost("a rank is thrown out by an exception", all_reduce(1000), kThrows,
           "has left the group because of an exception", "out of luck"),
  };
}

std::vector<WrongProgram> aborted_groups() {
  const std::vector<std::string> says{"rank 2 called abort() at wrong_acts.hpp:"};
  return {
      {.name = "abort() frees those who wait",
       .everybody = all_reduce(1000),
       .but = {{2, kAborts}},
       .error = "Aborted",
       .says = says,
       .culprit = 2},
      {.name = "abort() frees the caller's own collective",
       .everybody = kSleeps,
       .but = {{2, then({soon(kAborts), all_reduce(1000)})}, {1, all_reduce(1000)}},
       .error = "Aborted",
       .says = says,
       .culprit = 2},
      {.name = "abort() in the middle of long collectives",
       .everybody = again_and_again(all_reduce(3'000'000)),
       .but = {{2, then({soon(kAborts), again_and_again(all_reduce(3'000'000))})}},
       .error = "Aborted",
       .says = says,
       .culprit = 2},
  };
}

std::vector<WrongProgram> wrong_groups() {
  const std::string group = "[in the group of ranks 0, 2]";
  return {
      {.name = "a group is called by a rank that is not in it",
       .everybody = in_group({0, 1}, all_reduce(1000)),
       .error = "PeerLost",
       .says = {"rank 2 (pid ", "has left the group because of an exception"},
       .culprit = 2,
       .instead = {{2, "UsageError: all_reduce: rank 2 is not in the group of ranks 0, 1"}}},
      {.name = "ranks name different members of a group",
       .everybody = in_group({0, 1}, kNothing),
       .but = {{2, in_group({1, 2}, kNothing)}},
       .error = "MismatchError",
       .says = {"rank 0 called new_group({0, 1}) but rank 2 called new_group({1, 2})"},
       .names_line = false},
      {.name = "another count in a group of two",
       .everybody = in_group({0, 2}, all_reduce(1000)),
       .but = {{1, in_group({0, 2}, kNothing)}, {2, in_group({0, 2}, all_reduce(1001))}},
       .error = "MismatchError",
       .says = {"rank 0 called all_reduce(sum, f32, 1000) #0 at wrong_",
                "but rank 1 called all_reduce(sum, f32, 1001) #0 at wrong_", group},
       .instead = {{1, "PeerLost"}}},
      {.name = "a rank waits in another group",
       .everybody = {[](Rank& me) {
         const auto part = me.group->new_group({1, 2});
         Floats x(10);
         if (me.rank() == 2) {  // later than the others
           std::this_thread::sleep_for(deadline() / 2);
           part->all_reduce(std::span(x));
         }
         me.group->all_reduce(std::span(x));
       }},
       .error = "TimeoutError",
       // Over TCP the other ranks see only that rank 2 is not in a call of their group.
       .says =
           test_transport() == comm::Transport::tcp
               ? std::vector<std::string>{"To blame: rank 2 (pid ", "which has not arrived"}
               : std::vector<std::string>{"To blame: rank 2 (pid ",
                                          "which waits in all_reduce(sum, f32, 10) #0 at wrong_",
                                          "in the group of ranks 1, 2"},
       .culprit = 2,
       .instead = {{2, "rank 0 (pid "}}},
      {.name = "a member of a group is killed in it",
       .everybody = in_group({0, 2}, all_reduce(1000)),
       .but = {{1, in_group({0, 2}, kNothing)}, {2, in_group({0, 2}, kDies)}},
       .error = "PeerLost",
       .says = {"rank 1 (pid ", kGone, group},
       .instead = {{1, "PeerLost: rank "}, {2, ""}}},
  };
}

std::vector<WrongProgram> wrong_starts() {
  const auto row = [](std::string name, const std::vector<Given>& ranks, std::string error,
                      std::string says, std::map<int, std::string> instead = {}) {
    return WrongProgram{.name = std::move(name),
                        .everybody = kNothing,
                        .but = {},
                        .error = std::move(error),
                        .says = {std::move(says)},
                        .world = static_cast<int>(ranks.size()),
                        .instead = std::move(instead),
                        .start = start_with(ranks),
                        .calls_agree_first = false,
                        .names_line = false};
  };
  const std::string other = "another 16 bytes";
  return {
      row("a rank never comes", {{0, 3}, {1, 3}, {2, 3, "", false}}, "TimeoutError",
          "rank 2 never arrived", {{2, "is not here"}}),
      row("rank 0, which holds the store, never comes", {{0, 3, "", false}, {1, 3}, {2, 3}},
          "TimeoutError", "rank 0, which holds it, never started", {{0, "is not here"}}),
      row("world sizes disagree", {{0, 2}, {1, 3}}, "MismatchError",
          "the ranks disagree: WORLD_SIZE is "),
      row("a rank is given twice", {{0, 3}, {1, 3}, {1, 3}}, "MismatchError",
          "rank 1 was given twice: to pid "),
      row("a wrong secret", {{0, 2}, {1, 2, other}}, "TimeoutError", "rank 1 never arrived",
          {{1, "its secret is not the job's"}}),
      row("a rank of a second job on the same port", {{0, 2}, {1, 2, other}}, "TimeoutError",
          "rank 1 never arrived", {{1, "or the port belongs to another job"}}),
      {.name = "another transport on one rank",
       .everybody = kNothing,
       .but = {},
       .error = "UsageError",
       .says = {"GroupOptions::transport is ", "rdma on rank ",
                ": use the same value on all ranks"},
       .start = start_over(2, Transport::rdma),
       .calls_agree_first = false,
       .names_line = false},
  };
}

std::vector<WrongProgram> wrong_trainings() {
  const auto row = [](std::string name, const Training& common, const Training& odd,
                      std::string error, std::vector<std::string> says, int culprit = -1) {
    return WrongProgram{.name = std::move(name),
                        .everybody = train(common),
                        .but = {{2, train(odd)}},
                        .error = std::move(error),
                        .says = std::move(says),
                        .culprit = culprit};
  };
  const std::string models = "ranks do not hold the same model: ";
  return {
      row("DDP: a parameter of another shape", {}, {.parameters = {{"w", {40, 11}}, {"b", {40}}}},
          "UsageError", {models, "'w'", "rank 2"}),
      row("DDP: a parameter more", {}, {.parameters = {{"w", {40, 10}}, {"b", {40}}, {"c", {3}}}},
          "UsageError", {models, "'c'", "rank 2"}),
      row("DDP: parameters in another order", {}, {.parameters = {{"b", {40}}, {"w", {40, 10}}}},
          "UsageError", {models, "rank 2"}),
      row("DDP: a batch more on one rank: the others have left the loop", {.steps = 3},
          {.steps = 4}, "MismatchError",
          {"rank 0 called barrier() #", "but rank 2 called all_reduce(avg, f32, 440) #"}, 2),
      row("DDP: backward() left out on one rank", {.steps = 4}, {.steps = 4, .skipped = 1},
          "CommError", {"ranks are at different steps"}),
      row("DDP: one rank alone is under no_sync", {}, {.local = true}, "MismatchError",
          {"all_reduce(avg, f32, 440) #", "but rank 2 called barrier() #"}, 2),
      row("DDP: a parameter without a gradient, on one rank", {.steps = 2},
          {.steps = 2, .uses_b = false}, "UsageError", {"'b'"}),
  };
}

// Hooks, join, static graphs and other features. Either all ranks get the same error, or one rank
// throws alone and the others report that it did.
std::vector<WrongProgram> wrong_features() {
  const auto all = [](std::string name, const Act& common, const Act& odd, std::string error,
                      std::vector<std::string> says, int culprit = -1) {
    return WrongProgram{.name = std::move(name),
                        .everybody = common,
                        .but = {{2, odd}},
                        .error = std::move(error),
                        .says = std::move(says),
                        .culprit = culprit};
  };
  const auto alone = [](std::string name, const Act& common, const Act& odd, std::string says) {
    return WrongProgram{.name = std::move(name),
                        .everybody = common,
                        .but = {{2, odd}},
                        .error = "PeerLost",
                        .says = {"rank 2 (pid ", "has left the group because of an exception"},
                        .culprit = 2,
                        .instead = {{2, std::move(says)}}};
  };
  const Act right = with_hook([](const GradBucket& b) { return Future(b.buffer); });
  const Act trains = with_ddp([](Wrapped& m) {
    for (int i = 0; i < 4; ++i) m.step();
  });
  const Act joins = joined(4);
  const auto is_static = [](bool always) {
    return with_ddp(
        [=](Wrapped& m) {
          for (int i = 0; i < 3; ++i) m.step(always || i < 2);
        },
        {.static_graph = true});
  };
  const auto ignoring = [](const std::string& name) {
    return with_ddp([](Wrapped&) {}, {.ignored = {name}});
  };
  return {
      all("a hook's result of another shape", right,
          with_hook([](const GradBucket& b) { return Future(b.buffer.slice(0, 0, 439)); }),
          "UsageError",
          {"on rank 2: communication hook 'mine' returned f32[439] on cpu for bucket 0, which is "
           "f32[440] on cpu: return a tensor like GradBucket::buffer"}),
      all("a hook's result of another dtype", right,
          with_hook([](const GradBucket& b) { return Future(b.buffer.to(DType::f16)); }),
          "UsageError", {"on rank 2: communication hook 'mine' returned f16[440]"}),
      all("a hook's result is nothing, on every rank",
          with_hook([](const GradBucket&) { return Future(Tensor()); }),
          with_hook([](const GradBucket&) { return Future(Tensor()); }), "UsageError",
          {"on every rank: communication hook 'mine' returned nothing for bucket 0"}),
      alone("a hook that throws", trains,
            with_hook([](const GradBucket&) -> Future { throw Error("out of luck"); }),
            "out of luck"),
      alone("two hooks", trains, with_ddp([](Wrapped& m) {
              m.hook(noop_hook().call);
              m.hook(noop_hook().call);
            }),
            "UsageError: a communication hook is registered already, 'mine'"),
      all("a hook after the first forward", with_ddp([](Wrapped& m) {
            m.step();
            m.hook(noop_hook().call);
          }),
          with_ddp([](Wrapped& m) {
            m.step();
            m.hook(noop_hook().call);
          }),
          "UsageError", {"communication hook 'mine': register it before the first forward()"}),
      all("a hook on one rank alone", trains, with_ddp([](Wrapped& m) {
            m.ddp.register_comm_hook(fp16_compress_hook(m.group));
            m.step();
          }),
          "MismatchError",
          {"all_reduce(avg, f32, 440) #", "but rank 2 called all_reduce(avg, f16, 440) #"}, 2),
      all("PowerSGD of another rank on one rank", power_sgd(1), power_sgd(2), "MismatchError",
          {"all_reduce(sum, f32, 40) #", "but rank 2 called all_reduce(sum, f32, 80) #"}, 2),
      all("PowerSGD of rank 0", power_sgd(0), power_sgd(0), "UsageError",
          {"PowerSGD: matrix_approximation_rank must be at least 1, got 0"}),
      all("PowerSGD from the first step on", power_sgd(1, 0), power_sgd(1, 0), "UsageError",
          {"PowerSGD: start_powersgd_iter must be at least 2 with error feedback or warm start, "
           "got 0"}),
      all("a static graph that changes on one rank", is_static(true), is_static(false),
          "UsageError",
          {"on rank 2: static_graph: parameter 'b' got 0 gradients in backward 3, 1 in the first"}),
      all("static_graph on one rank", is_static(true), trains, "UsageError",
          {"ranks do not hold the same model: ", "static_graph=true", "static_graph=false",
           "on rank 2"}),
      all("join() on some ranks", joins, trains, "MismatchError",
          {"all_gather(i64, 1) #", "but rank 2 called all_reduce(avg, f32, 440) #"}, 2),
      all("join() with no_sync() on one rank", joins, with_ddp([](Wrapped& m) {
            m.ddp.join([&] {
              const auto local = m.ddp.no_sync();
              m.step();
            });
          }),
          "UsageError",
          {"join(): in forward 1 ranks 0, 1 would reduce and rank 2 would not: use no_sync() in "
           "the same steps on all ranks"}),
      all("join() that is to throw when a rank runs out",
          joined(4, {.throw_on_early_termination = true}),
          joined(2, {.throw_on_early_termination = true}), "exception",
          {"join(): rank 2 ran out of inputs before forward 3 (throw_on_early_termination)"}),
      alone("join() that ends without its backward", joins,
            with_ddp([](Wrapped& m) { m.ddp.join([&] { (void)m.forward(); }); }),
            "UsageError: join(): it ends with a forward() whose backward() did not run"),
      alone("join() with two forwards before a backward", joins, with_ddp([](Wrapped& m) {
              m.ddp.join([&] {
                (void)m.forward();
                m.step();
              });
            }),
            "UsageError: join(): forward() called again before backward()"),
      alone("join() whose body throws", joins, with_ddp([](Wrapped& m) {
              m.ddp.join([&] {
                m.step();
                throw Error("out of luck");
              });
            }),
            "out of luck"),
      all("an ignored parameter that does not exist", ignoring("c"), ignoring("c"), "UsageError",
          {"DdpOptions::ignored: the model has no parameter and no buffer of the name 'c'; give "
           "names as "}),
      all("a parameter that one rank ignores", ignoring("b"), ignoring("w"), "UsageError",
          {"ranks do not hold the same model: entry 0 is parameter 'w' f32[40, 10] on ranks 0, 1, "
           "but ignored 'w' on rank 2"}),
      all("SyncBatchNorm of one value per channel", sync_batch_norm_of(0), sync_batch_norm_of(1),
          "UsageError", {"more than one value per channel on all ranks together; give larger "}),
      alone(
          "a checkpointed function that changes", trains, with_ddp([](Wrapped& m) {
            int calls = 0;
            const auto changes = [&](const Tensor& t) {
              return ++calls == 1 ? tanh(t) : tanh(tanh(t));
            };
            m.ddp.forward([&] { return add(sum(checkpoint(changes, m.w)), sum(m.b)); }).backward();
          }),
          "checkpoint: forward saved 1 tensors, but the same function run again in backward "
          "saved 2"),
      all("replicas that have drifted apart", with_ddp([](Wrapped& m) {
            check_drift(*m.group, {{"w", m.w}, {"b", m.b}});
          }),
          with_ddp([](Wrapped& m) {
            m.b.detach().fill_(7);
            check_drift(*m.group, {{"w", m.w}, {"b", m.b}});
          }),
          "exception",
          {"the replicas have drifted apart: 'b' has one value on ranks 0, 1 and another on "
           "rank 2; let "}),
  };
}

}  // namespace

TEST_CASE("wrong programs: calls that differ", "[fault][culprits]") {
  check_wrong_programs(wrong_calls());
}
TEST_CASE("wrong programs: messages", "[fault][culprits]") {
  check_wrong_programs(wrong_messages());
}
TEST_CASE("wrong programs: ranks that do not come", "[fault][culprits]") {
  check_wrong_programs(late_ranks());
}
TEST_CASE("wrong programs: ranks that go away", "[fault][culprits]") {
  check_wrong_programs(lost_ranks());
}
TEST_CASE("wrong programs: groups that are aborted", "[fault][culprits]") {
  check_wrong_programs(aborted_groups());
}
TEST_CASE("wrong programs: groups of some ranks", "[fault][culprits]") {
  check_wrong_programs(wrong_groups());
}
TEST_CASE("wrong programs: starts", "[fault][culprits]") { check_wrong_programs(wrong_starts()); }
TEST_CASE("wrong programs: DDP", "[fault][culprits]") { check_wrong_programs(wrong_trainings()); }
TEST_CASE("wrong programs: DDP's hooks, join() and the rest", "[fault][culprits]") {
  check_wrong_programs(wrong_features());
}
