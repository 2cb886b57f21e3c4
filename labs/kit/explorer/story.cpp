#include "labs/kit/explorer/story.hpp"

#include <algorithm>
#include <cstdio>

namespace explorer {
namespace {

const char* text(Order order) {
  constexpr const char* kNames[] = {"relaxed", "acquire", "release", "acq_rel", "seq_cst"};
  return kNames[std::size_t(order)];
}

// Values with a flag in the upper half are easier to read in two parts.
std::string text(Value v) {
  if (v >> 32 == 0) return std::to_string(v);
  if (~v >> 32 == 0) return std::to_string(std::int64_t(v));
  return std::to_string(v >> 32) + ":" + std::to_string(v & 0xffffffffU);
}

}  // namespace

void Story::add(const Event& event, const char* name) {
  // The load of an update is shown together with its store.
  if (event.kind == Kind::store && event.exclusive && !steps_.empty())
    for (auto last = steps_.rbegin(); last != steps_.rend(); ++last)
      if (last->thread == std::size_t(event.id.thread)) {
        last->hidden = !last->plain;
        break;
      }
  Step step;
  step.thread = std::size_t(event.id.thread);
  step.id = event.id;
  step.name = name;
  steps_.push_back(step);
}

std::uint32_t Story::touch(std::size_t thread, bool write, const char* name, std::int64_t index,
                           std::size_t bytes, const Value* value) {
  Step step;
  step.thread = thread;
  step.plain = true;
  step.write = write;
  step.name = name;
  step.index = index;
  step.bytes = bytes;
  step.shown = value != nullptr;
  if (value != nullptr) step.value = *value;
  steps_.push_back(step);
  return std::uint32_t(steps_.size() - 1);
}

std::string Story::memory_of(std::uint32_t number) const {
  const Step& s = steps_[number];
  if (s.index < 0) return s.name;
  std::string text = std::string(s.name) + "[" + std::to_string(s.index);
  if (s.bytes > 1) text += ".." + std::to_string(s.index + std::int64_t(s.bytes) - 1);
  return text + "]";
}

std::size_t Story::number(std::uint32_t step) const {
  std::size_t n = 0;
  for (std::size_t i = 0; i <= step && i < steps_.size(); ++i) n += steps_[i].hidden ? 0 : 1;
  return n;
}

std::string Story::told(const Execution& x, const std::vector<std::string>& threads) const {
  std::size_t width = 0;
  for (const auto& name : threads) width = std::max(width, name.size());
  const auto step_of = [&](Id id) {
    for (std::size_t i = 0; i < steps_.size(); ++i)
      if (!steps_[i].plain && steps_[i].id == id) return i;
    return steps_.size();
  };
  const auto whose = [&](Id store) {
    return store.initial() ? std::string("the initial value")
                           : "step " + std::to_string(number(std::uint32_t(step_of(store)))) + "'s";
  };
  std::string all;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& s = steps_[i];
    if (s.hidden) continue;
    std::string what, note;
    if (s.plain) {
      what = memory_of(std::uint32_t(i));
      if (!s.shown)
        what += s.write ? " is written" : " is read";
      else
        what += (s.write ? " = " : " is read: ") + text(s.value);
    } else {
      const Event& e = x.event(s.id);
      const std::string order = text(e.order);
      const std::string place =
          e.kind == Kind::fence ? "" : x.locations[e.place].name + "." + s.name;
      if (e.kind == Kind::fence) {
        what = "fence(" + order + ")";
      } else if (e.kind == Kind::load) {
        what = place + "(" + order + ") -> " + text(e.value);
        note = whose(e.from);
        const std::size_t at = x.position(e.place, e.from), newest = x.orders[e.place].size();
        if (at < newest && x.happened(x.at(e.place, newest)) && step_of(x.at(e.place, newest)) < i)
          note += ", not yet " + whose(x.at(e.place, newest));
      } else if (e.exclusive) {
        what = place + "(" + order + ") -> " + text(x.value_of(e.from, e.place)) + ", makes it " +
               text(e.value);
        note = whose(e.from);
      } else {
        what = place + "(" + text(e.value) + ", " + order + ")";
      }
    }
    char number[16];
    std::snprintf(number, sizeof number, "%3zu", this->number(std::uint32_t(i)));
    std::string line = std::string(number) + "  " + threads[s.thread] +
                       std::string(width - threads[s.thread].size() + 2, ' ') + what;
    if (!note.empty()) line += std::string(line.size() < 60 ? 60 - line.size() : 1, ' ') + note;
    all += line + "\n";
  }
  return all;
}

}  // namespace explorer
