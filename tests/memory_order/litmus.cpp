#include "labs/kit/explorer/atomic.hpp"
#include "tests/memory_order/oracle.hpp"

namespace oracle {

using namespace explorer;

Result explored(const Litmus& litmus) {
  return explore([&] {
    struct State {
      atomic<int> x{"x", 0}, y{"y", 0};
      std::vector<std::vector<int>> seen;
      atomic<int>& at(int place) { return place == 0 ? x : y; }
    };
    const auto s = std::make_shared<State>();
    s->seen.resize(litmus.size());
    Program program;
    for (std::size_t t = 0; t < litmus.size(); ++t)
      program.threads.push_back(
          {"thread " + std::to_string(t), [s, t, &thread = litmus[t]] {
             for (const Operation& op : thread) {
               int zero = 0;
               if (op.what == What::load)  // atomic::load would count as a wait if repeated
                 s->seen[t].push_back(from_value<int>(load(s->at(op.place).key(), op.order)));
               if (op.what == What::store) s->at(op.place).store(op.value, op.order);
               if (op.what == What::add)
                 s->seen[t].push_back(s->at(op.place).fetch_add(op.value, op.order));
               if (op.what == What::swap_if_zero) {
                 s->at(op.place).compare_exchange_strong(zero, op.value, op.order, relaxed);
                 s->seen[t].push_back(zero);
               }
               if (op.what == What::fence) fence(op.order);
             }
           }});
    program.after = [s] { outcome(text_of(s->seen, {s->x.load(), s->y.load()})); };
    return program;
  });
}

std::string described(const Litmus& litmus) {
  constexpr const char* kOrders[] = {"rlx", "acq", "rel", "acq_rel", "sc"};
  constexpr const char* kWhats[] = {"load", "store", "add", "swap_if_zero", "fence"};
  std::string text;
  for (const auto& thread : litmus) {
    for (const Operation& op : thread)
      text += std::string(kWhats[int(op.what)]) + " " + "xy"[op.place] + " " +
              kOrders[int(op.order)] + " " + std::to_string(op.value) + "; ";
    text += "\n";
  }
  return text;
}

}  // namespace oracle
