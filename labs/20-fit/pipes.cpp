// Reports the student's pipeline schedules, and runs them on the kit's fabric.
#include LAB20_PIPELINE

#include <cmath>
#include <string>

#include "labs/kit/driver.hpp"
#include "labs/kit/fabric/fabric.hpp"

namespace {

using lab20::Tasks;

// A task as a number: micro + 1 if it is a forward, else -(micro + 1); 0 ends a stage.
void append(std::vector<std::int64_t>& to, const Tasks& tasks) {
  for (const lab20::Task& t : tasks)
    to.push_back(t.forward ? std::int64_t{t.micro} + 1 : -(std::int64_t{t.micro} + 1));
  to.push_back(0);
}

// Adds a number of its own to its input, so that all messages differ.
struct Stage {
  int rank, last, wide;
  std::string deeds;

  [[nodiscard]] int width() const { return wide; }
  void forward(int micro, std::span<const float> in, std::span<float> out) {
    work('F', micro, in, out, rank == 0, rank == last, float(rank + 1));
  }
  void backward(int micro, std::span<const float> in, std::span<float> out) {
    work('B', micro, in, out, rank == last, rank == 0, float(rank + 1) / 64);
  }

 private:
  void work(char kind, int micro, std::span<const float> in, std::span<float> out, bool first,
            bool end, float own) {
    deeds += kind + std::to_string(micro);
    if (std::ssize(in) != (first ? 0 : wide) || std::ssize(out) != (end ? 0 : wide))
      throw kit::Misuse{"stage " + std::to_string(rank) + ", " + kind + std::to_string(micro) +
                        ": in has " + std::to_string(in.size()) + " and out " +
                        std::to_string(out.size()) + " elements, must be " +
                        std::to_string(first ? 0 : wide) + " and " +
                        std::to_string(end ? 0 : wide)};
    for (const float x : in) deeds += ":" + std::to_string(std::lround(x * 64));
    for (std::size_t at = 0; at < out.size(); ++at)
      out[at] = (in.empty() ? 1000.0F * float(micro) + float(at) * 100 : in[at]) + own;
    deeds += ' ';
  }
};

}  // namespace

// which: gpipe, one_f_one_b or within. cases: three numbers per case, `stages`, `micros` and
// `most`.
KIT_SCENARIO(schedules) {
  const std::string which = in.text("which");
  const std::vector<std::int64_t> cases = in.integers("cases");
  std::vector<std::int64_t> tasks;
  for (std::size_t c = 0; c + 2 < cases.size(); c += 3)
    for (int s = 0; s < cases[c]; ++s) {
      const int stages = int(cases[c]), micros = int(cases[c + 1]), most = int(cases[c + 2]);
      append(tasks, which == "gpipe"         ? lab20::gpipe(stages, micros, s)
                    : which == "one_f_one_b" ? lab20::one_f_one_b(stages, micros, s)
                                             : lab20::within(stages, micros, s, most));
    }
  out.put("tasks", tasks);
}

KIT_SCENARIO(bubbles) {
  const std::vector<std::int64_t> cases = in.integers("cases");  // stages and micros
  std::vector<double> shares;
  for (std::size_t c = 0; c + 1 < cases.size(); c += 2)
    shares.push_back(lab20::bubble(int(cases[c]), int(cases[c + 1])));
  out.put("shares", shares);
}

KIT_SCENARIO(micros) {
  const std::vector<std::int64_t> stages = in.integers("stages");
  const std::vector<double> shares = in.numbers("shares");
  std::vector<std::int64_t> micros;
  for (std::size_t c = 0; c < stages.size(); ++c)
    micros.push_back(lab20::micros_for(int(stages[c]), shares[c]));
  out.put("micros", micros);
}

// tasks: the judge's own schedules, for all stages, in the format of append().
KIT_SCENARIO(pipeline) {
  const std::vector<std::int64_t> numbers = in.integers("tasks");
  std::vector<Tasks> tasks(1);
  for (const std::int64_t number : numbers) {
    if (number == 0)
      tasks.emplace_back();
    else
      tasks.back().push_back({number > 0, int((number > 0 ? number : -number) - 1)});
  }
  kit::Fabric fabric(kit::fabric_options(in));
  fabric.run([&](kit::Link& link) {
    fabric.begin(link.rank(), "run_stage");
    Stage stage{link.rank(), link.world() - 1, int(in.integer("width")), {}};
    lab20::run_stage(link, tasks[std::size_t(link.rank())], stage);
    out.put("deeds." + std::to_string(link.rank()), stage.deeds);
  });
  fabric.observe(out);
}
