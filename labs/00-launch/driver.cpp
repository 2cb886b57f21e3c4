// Runs the student's launcher and meetings with real processes.
#include LAB00_LAUNCH
#include LAB00_MEETING
#include LAB00_PLACE

#include "labs/kit/driver.hpp"

#include <algorithm>
#include <csignal>
#include <exception>
#include <iterator>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <unistd.h>

#include "labs/kit/granted.hpp"
#include "labs/kit/nodes/staged.hpp"
#include "labs/kit/nodes/whereabouts.hpp"

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

void pause(std::int64_t ms) { std::this_thread::sleep_for(milliseconds(ms)); }

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

// "where" lists the nodes, and "counts" the number of slots on each.
std::vector<kit::Slots> slots_of(const kit::Request& in) {
  std::vector<kit::Slots> slots;
  for (const std::string& name : words_of(in.text("where")))
    slots.push_back({name, int(in.integers("counts")[slots.size()])});
  return slots;
}

// Waits for the file that process `index` creates. The judge's alarm ends the wait.
void await(const kit::Folder& folder, int index) {
  while (!folder.wait(std::to_string(index), milliseconds(1000))) continue;
}

// Returns element `rank` of the list `name`, or 0 if the list is absent or too short.
std::int64_t of_rank(const kit::Request& in, const char* name, int rank) {
  const std::vector<std::int64_t> values =
      in.has(name) ? in.integers(name) : std::vector<std::int64_t>{};
  return std::size_t(rank) < values.size() ? values[std::size_t(rank)] : 0;
}

void put_outcome(kit::Observation& out, const lab00::Outcome& outcome) {
  out.put("failed", outcome.failed);
  out.put("outcome", outcome.code);
}

// Meets the other ranks with a card (host and process id) and records the outcome. "cards" has one
// card per line; "seconds" are those in which a processor was free for this process.
void meet_and_tell(kit::Folder& folder, const kit::Seat& seat, std::int64_t patience,
                   kit::Observation& seen, bool blank = false, const std::string& more = "") {
  const std::string card = blank ? "" : kit::host_name() + " " + std::to_string(getpid()) + more;
  const auto begun = Clock::now();
  const double queued = kit::queued_seconds();
  const int requests = kit::whereabouts().requests;
  std::string cards, error;
  try {
    for (const std::string& one : lab00::meet(folder, seat, card, milliseconds(patience)))
      cards += one + (more.empty() ? "\n" : "\n--\n");
  } catch (const std::runtime_error& failed) {
    error = failed.what();
  } catch (const std::exception&) {
    error = "an exception of another type than std::runtime_error";
  }
  seen.put("card", card);
  seen.put("cards", cards);
  seen.put("error", error);
  seen.put("seconds", since(begun) - (kit::queued_seconds() - queued));
  seen.put("requests", kit::whereabouts().requests - requests);
}

constexpr const char* kLeft = ".left";

// Creates two files of the job for this rank. In a sorted list of the job's files, the first
// precedes all files that a solution creates, and the second follows them.
void leave_files(kit::Folder& folder, const kit::Seat& seat) {
  for (const char* where : {"a.", "zz."})
    folder.create(seat.job + where + std::to_string(seat.rank) + kLeft, "");
}

// Calls `call` below `levels` + 1 frames of 1 KiB, so that its variables do not reuse the addresses
// of an earlier call's variables.
template <class Call>
[[gnu::noinline]] void deeper(int levels, const Call& call) {
  volatile char used[1024];
  for (volatile char& byte : used) byte = 0x5A;
  levels > 0 ? deeper(levels - 1, call) : call();
  used[0] = 0;
}

}  // namespace

// Runs task 1 alone. `launchers` processes simultaneously claim `names` names each in one folder.
KIT_SCENARIO(names) {
  kit::Folder folder("meeting");
  folder.answers_late_by(milliseconds(in.integer("hesitate", 0)));
  kit::StagedNodes nodes({"login"}, folder, [&](const kit::Seat&, kit::Observation& seen) {
    std::string names;
    for (int i = 0; i < in.integer("names"); ++i) names += lab00::claim_name(folder) + "\n";
    seen.put("names", names);
    return 0;
  });
  for (int i = 0; i < in.integer("launchers"); ++i) nodes.start("login", {"launcher.", i, 1});
  for (int i = 0; i < in.integer("launchers"); ++i) nodes.wait();
  nodes.observe(out);
}

// Runs task 2 alone. Rank r ends after after[r] ms, by signal signals[r] if it is not 0, else with
// exit code codes[r]. Before launch is called, this process runs another job, and claims a name as
// another launcher would. `lost` counts the files of that name that launch removed.
KIT_SCENARIO(launch) {
  kit::Folder folder("meeting");
  kit::StagedNodes before({"a"}, folder, [](const kit::Seat&, kit::Observation&) { return 0; });
  (void)lab00::launch(before, {{"a", 1}});
  folder.create(lab00::claim_name(folder) + "another's", "");
  const std::vector<std::string> others = folder.list();
  kit::StagedNodes nodes(words_of(in.text("nodes")), folder,
                         [&](const kit::Seat& seat, kit::Observation& seen) {
                           leave_files(folder, seat);
                           seen.put("told_host", kit::host_name());
                           pause(of_rank(in, "after", seat.rank));
                           const int signal = int(of_rank(in, "signals", seat.rank));
                           if (signal != 0) std::signal(signal, SIG_DFL), std::raise(signal);
                           return int(of_rank(in, "codes", seat.rank));
                         });
  std::string error;
  const std::vector<std::string> foreign = words_of(in.text("foreign", ""));
  for (const std::string& name : foreign) nodes.folder().create(name, "not the job's");
  const auto begun = Clock::now();
  try {
    put_outcome(out, lab00::launch(nodes, slots_of(in)));
  } catch (const std::runtime_error& failed) {
    error = failed.what();
  }
  out.put("seconds", since(begun));
  out.put("error", error);
  std::string files, left;
  auto lost = std::int64_t(others.size());
  for (const std::string& name : nodes.folder().list())
    if (std::count(others.begin(), others.end(), name) != 0)
      --lost;
    else
      (std::count(foreign.begin(), foreign.end(), name) ? left : files) += name + " ";
  out.put("files", files);
  out.put("foreign", left);
  out.put("lost", lost);
  nodes.observe(out, true);
}

// Runs tasks 1 and 2 together. A job ends slowly while another launcher claims names. `taken`
// counts the files that the job still had and whose names began with a claimed name; it is -1 if
// the job did not start.
KIT_SCENARIO(succession) {
  kit::Folder folder("meeting");
  const auto launcher = [&] {
    kit::Folder slow = folder;
    slow.answers_late_by(milliseconds(in.integer("hesitate")));
    kit::StagedNodes nodes({"a"}, slow, [&](const kit::Seat& seat, kit::Observation&) {
      leave_files(folder, seat);
      folder.create("begun", "");
      pause(50);
      return 0;
    });
    (void)lab00::launch(nodes, {{"a", 2}});
    folder.create("over", "");
  };
  const auto claim = [&] {
    std::int64_t taken = 0;
    while (!folder.wait("begun", milliseconds(5)))
      if (folder.wait("over", milliseconds(0)) && !folder.wait("begun", milliseconds(0)))
        return std::int64_t{-1};
    while (!folder.wait("over", milliseconds(5))) {
      const std::string name = lab00::claim_name(folder);
      for (const std::string& file : folder.list())
        taken += file.starts_with(name) && file.ends_with(kLeft);
    }
    return taken;
  };
  kit::StagedNodes desks({"login"}, folder, [&](const kit::Seat& seat, kit::Observation& seen) {
    seat.rank == 0 ? launcher() : seen.put("taken", claim());
    return 0;
  });
  for (const int desk : {0, 1}) desks.start("login", {"launcher.", desk, 2});
  for (int i = 0; i < 2; ++i) desks.wait();
  desks.observe(out);
}

// Runs task 3 alone. Process i is given rank ranks[i] of `world` and arrives late[i] ms after all
// have started, or, if late[i] is -1, when the meetings of the processes before it have ended.
// Ranks that are not in the list never arrive. The folder answers process 0 `hesitate` ms late.
// Rank `blank` has an empty card; the others' cards end with `more`.
KIT_SCENARIO(meet) {
  kit::Folder folder("meeting"), started("started"), ended("ended");
  const std::vector<std::int64_t> ranks = in.integers("ranks"), late = in.integers("late"),
                                  more = in.has("more") ? in.integers("more")
                                                        : std::vector<std::int64_t>{};
  int index = 0;
  kit::StagedNodes nodes({"a", "b"}, folder, [&](const kit::Seat& seat, kit::Observation& seen) {
    started.create(std::to_string(index), "");
    for (std::size_t i = 0; i < ranks.size(); ++i) await(started, int(i));
    pause(std::max<std::int64_t>(late[std::size_t(index)], 0));
    for (int i = 0; i < index && late[std::size_t(index)] < 0; ++i) await(ended, i);
    kit::Folder seen_by = folder;
    seen_by.answers_late_by(milliseconds(index == 0 ? in.integer("hesitate", 0) : 0));
    // Also if the meeting throws: later processes wait for its end.
    struct End {
      kit::Folder& folder;
      std::string name;
      ~End() { folder.create(name, ""); }
    } const end{ended, std::to_string(index)};
    meet_and_tell(seen_by, seat, in.integer("patience"), seen, seat.rank == in.integer("blank", -1),
                  {more.begin(), more.end()});
    return 0;
  });
  for (; index < int(ranks.size()); ++index)
    nodes.start(index % 2 ? "b" : "a",
                {in.text("job", "job."), int(ranks[std::size_t(index)]), int(in.integer("world"))});
  for (int i = 0; i < index; ++i) nodes.wait();
  nodes.observe(out);
}

// Runs task 3 repeatedly: the same three processes meet for four jobs, with different ranks in
// each. The first process misses the third meeting, in which the others have less patience.
KIT_SCENARIO(meet_again) {
  kit::Folder folder("meeting");
  kit::StagedNodes nodes({"a"}, folder, [&](const kit::Seat& own, kit::Observation& seen) {
    std::vector<std::unique_ptr<kit::Seat>> seats;
    for (int round = 0; round < 4; ++round) {
      if (round == 2 && own.rank == 0) continue;
      seats.push_back(std::make_unique<kit::Seat>(kit::Seat{
          own.job + std::to_string(round) + ".", (own.rank + round) % own.world, own.world}));
      kit::Observation one;
      deeper(5 * round,
             [&] { meet_and_tell(folder, *seats.back(), round == 2 ? 300 : 15'000, one); });
      seen.merge(one, "." + std::to_string(round));
    }
    return 0;
  });
  for (int rank = 0; rank < 3; ++rank) nodes.start("a", {"job", rank, 3});
  for (int rank = 0; rank < 3; ++rank) nodes.wait();
  nodes.observe(out);
}

// Runs task 4 alone. An earlier call with other hosts must not change the results.
KIT_SCENARIO(place) {
  std::vector<std::string> hosts = words_of(in.text("hosts"));
  for (std::string& host : hosts) std::replace(host.begin(), host.end(), '_', ' ');
  std::vector<std::int64_t> places;
  (void)lab00::place_of({"other", "node1", "b", "a"}, 1);
  for (int rank = 0; rank < int(hosts.size()); ++rank) {
    const lab00::Place place = lab00::place_of(hosts, rank);
    places.insert(places.end(), {place.rank, place.world, place.local_rank, place.local_world,
                                 place.node, place.nodes});
  }
  out.put("places", places);
}

// Runs all tasks together. Starts `jobs` launchers, one process each, `stagger` ms apart, in one
// folder. Rank r arrives late[r] ms late and stays for `stay` ms. With stale = 1, an earlier
// launcher has started such a job, whose last rank never arrived, and was killed while the other
// ranks waited.
KIT_SCENARIO(jobs) {
  kit::Folder folder("meeting");
  const std::vector<std::string> names = words_of(in.text("nodes"));
  bool earlier = in.integer("stale", 0) != 0;
  int world = 0;
  for (const kit::Slots& slots : slots_of(in)) world += slots.count;
  const auto rank = [&](const kit::Seat& seat, kit::Observation& seen) {
    if (earlier && seat.rank == world - 1) pause(60'000);
    if (!earlier) pause(of_rank(in, "late", seat.rank));
    meet_and_tell(folder, seat, in.integer("patience"), seen);
    if (!seen.text("error").empty()) return 1;
    std::vector<std::string> hosts;
    std::istringstream cards(seen.text("cards"));
    for (std::string host, process; cards >> host >> process;) hosts.push_back(host);
    if (int(hosts.size()) != seat.world) return 2;
    const lab00::Place place = lab00::place_of(hosts, seat.rank);
    seen.put("place", std::vector<std::int64_t>{place.rank, place.world, place.local_rank,
                                                place.local_world, place.node, place.nodes});
    pause(in.integer("stay", 0));
    return 0;
  };
  const auto launcher = [&](const kit::Seat&, kit::Observation& seen) {
    kit::Folder slow = folder;
    slow.answers_late_by(milliseconds(in.integer("hesitate", 0)));
    kit::StagedNodes nodes(names, slow, rank);
    put_outcome(seen, lab00::launch(nodes, slots_of(in)));
    nodes.observe(seen, true);
    return 0;
  };
  kit::StagedNodes desks({"login"}, folder, launcher);  // where the launchers run
  if (earlier) {
    const int killed = desks.start("login", {"launcher.", -1, 1});
    kit::wait_until_asked(world - 1, "launcher.");
    desks.end(killed);
    desks.wait();
    earlier = false;
  }
  for (int job = 0; job < in.integer("jobs", 1); ++job) {
    desks.start("login", {"launcher.", job, 1});
    pause(in.integer("stagger", 0));
  }
  for (int job = 0; job < in.integer("jobs", 1); ++job) desks.wait();
  desks.observe(out);
}
