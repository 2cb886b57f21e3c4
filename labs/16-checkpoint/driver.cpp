// Runs the student's checkpoints on a failing disk, and the training on the kit's fabric.
#include LAB16_CHECKPOINT
#include LAB16_RESUME

#include "labs/kit/driver.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <random>
#include <sstream>
#include <stdexcept>

#include "labs/kit/fabric/fabric.hpp"

namespace {

using namespace lab16;

// Returns invented content for a step's checkpoint, different for each `version`.
Snapshot made_up(std::int64_t step, std::int64_t version = 0) {
  Snapshot out;
  out.step = step;
  for (int i = 0; i < 5; ++i)
    out.floats["parameters"].push_back(float(step % 1009) + float(version) / 4 + float(i) / 8);
  out.texts["generator.0"] = "state " + std::to_string(step * 31 + version);
  return out;
}
bool same(const Snapshot& a, const Snapshot& b) {
  const auto bits = [](const Snapshot& s) {
    std::string all = std::to_string(s.step);
    for (const auto& [name, v] : s.floats)
      all += "|" + std::to_string(name.size()) + name + std::to_string(v.size()) +
             std::string(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float));
    for (const auto& [name, v] : s.texts)
      all += "|" + std::to_string(name.size()) + name + std::to_string(v.size()) + v;
    return all;
  };
  return bits(a) == bits(b);
}

Snapshot snapshot_of(const kit::Request& in) {
  Snapshot out;
  out.step = in.integer("step");
  for (std::int64_t i = 0; i < in.integer("tensors"); ++i)
    out.floats[in.text("tensor." + std::to_string(i))] = in.floats("floats." + std::to_string(i));
  for (std::int64_t i = 0; i < in.integer("lines"); ++i)
    out.texts[in.text("name." + std::to_string(i))] = in.text("text." + std::to_string(i));
  return out;
}

// Returns 1 if unpack() accepts the bytes, 0 for Damaged, -1 for any other exception.
int opinion(const Bytes& bytes) {
  try {
    (void)unpack(bytes);
    return 1;
  } catch (const Damaged&) {
    return 0;
  } catch (const std::exception&) {
    return -1;
  }
}

std::string hash_of(const Training& t) {
  std::ostringstream all;
  all << t.step << ' ' << t.epoch << ' ' << t.used << ' ' << t.generator << ' ';
  const auto floats = [&](std::span<const float> v) {
    all << std::to_string(digest(std::as_bytes(v))) << ' ';
  };
  floats(t.parameters);
  floats(t.momentum);
  floats(std::span(&t.average_loss, 1));
  return all.str();
}

// Returns the step of load_newest()'s snapshot, or -1 if there is none.
std::int64_t loaded(Checkpoints& checkpoints, Snapshot& out) {
  const auto found = checkpoints.load_newest();
  if (!found) return -1;
  out = *found;
  return found->step;
}

}  // namespace

// Packs and unpacks the given snapshot and another one; with `damage`, cuts, changes and shortens
// the packed bytes at every place, and extends them at the end.
KIT_SCENARIO(packing) {
  const Snapshot before = snapshot_of(in);
  const Bytes packed = pack(before);
  const Snapshot after = unpack(packed);
  out.put("step", after.step);
  out.put("same", same(before, after));
  out.put("again", same(made_up(3), unpack(pack(made_up(3)))));
  out.put("tensors", after.floats.size());
  out.put("lines", after.texts.size());
  for (const auto& [name, values] : after.floats)
    out.put("floats." + std::to_string(values.size()), values);
  std::vector<std::int64_t> accepted, other;
  const auto judge = [&](const Bytes& damaged, std::int64_t where) {
    const int taken = opinion(damaged);
    if (taken == 1) accepted.push_back(where);
    if (taken == -1) other.push_back(where);
  };
  if (in.integer("damage", 0) == 0) return;
  std::mt19937_64 draw(std::uint64_t(in.integer("seed")));
  for (std::size_t i = 0; i < packed.size(); ++i) {
    judge(Bytes(packed.begin(), packed.begin() + std::ptrdiff_t(i)), std::int64_t(i));
    for (const unsigned flip : {1U << draw() % 8, 1U + unsigned(draw() % 255)}) {
      Bytes changed = packed;
      changed[i] ^= std::byte(flip);
      judge(changed, std::int64_t(i));
    }
    Bytes without = packed;
    without.erase(without.begin() + std::ptrdiff_t(i));
    if (without != packed) judge(without, std::int64_t(i));
  }
  for (const std::size_t more : {1U, 4U, 8U, 64U}) {
    Bytes longer = packed;
    longer.resize(packed.size() + more);
    judge(longer, std::int64_t(packed.size()));
  }
  Bytes twice = packed;
  twice.insert(twice.end(), packed.begin(), packed.end());
  judge(twice, std::int64_t(packed.size()));
  // The digest matches the empty rest, which is no snapshot.
  const std::uint64_t of_nothing = digest({});
  Bytes bare(sizeof of_nothing);
  std::memcpy(bare.data(), &of_nothing, sizeof of_nothing);
  judge(bare, 0);
  out.put("bytes", packed.size());
  out.put("accepted", accepted);
  out.put("other", other);
}

// Saves the steps one after the other, in a separate run for each operation before which the power
// is cut. For each cut, the disk in each state of `afters` is read, saved to, and read again. depth
// 1: for every third operation, again with a second power cut during that save. Reports rows of 9
// numbers: operation of the cut, operation of the second cut (-1: none), state, last step whose
// save() had returned, step being saved (-1: none), step loaded, whether its content is right, step
// loaded after the next save, files on the disk after that save.
KIT_SCENARIO(power_cuts) {
  const auto steps = in.integers("steps");
  const auto afters = in.integers("afters");
  const int keep = int(in.integer("keep"));
  const std::string folder = in.text("folder", "run");
  const auto seed = std::uint64_t(in.integer("seed"));
  std::vector<std::int64_t> rows;
  std::int64_t operations = 0;
  std::map<std::int64_t, std::int64_t> saved;  // step -> version of the last completed save
  const auto look = [&](Disk& disk, std::vector<std::int64_t> row, std::int64_t version) {
    Checkpoints again(disk, folder, keep);
    Snapshot found;
    const std::int64_t step = loaded(again, found);
    bool right = step < 0;
    for (std::int64_t v = saved.contains(step) ? saved[step] : 0; v <= version && !right; ++v)
      right = same(found, made_up(step, v));
    const std::int64_t next = std::max<std::int64_t>(step, 0) + 1;
    again.save(made_up(next, 7));
    Checkpoints third(disk, folder, keep);
    std::int64_t last = loaded(third, found);
    if (last == next && !same(found, made_up(next, 7))) last = -3;
    row.insert(row.end(), {step, right, last, std::int64_t(disk.files())});
    rows.insert(rows.end(), row.begin(), row.end());
    return step;
  };
  for (std::int64_t cut = 0;; ++cut) {
    Disk disk;
    disk.cut_power_at(cut);
    std::int64_t promised = -1, saving = -1;
    bool done = false;
    saved.clear();
    try {
      Checkpoints checkpoints(disk, folder, keep);
      for (std::size_t i = 0; i < steps.size(); ++i) {
        saving = steps[i];
        checkpoints.save(made_up(saving, std::int64_t(i)));
        promised = saving;
        saved[saving] = std::int64_t(i);
        saving = -1;
      }
      done = true;
    } catch (const PowerCut&) {
    }
    for (const std::int64_t after : afters) {
      Disk rebooted = disk.reboot(Disk::After(after), seed + std::uint64_t(cut));
      const std::int64_t found =
          look(rebooted, {cut, -1, after, promised, saving}, std::int64_t(steps.size()));
      if (in.integer("depth", 0) == 0 || cut % 3 != 0) continue;
      for (std::int64_t second = 0;; ++second) {  // the power is cut again, during the next save
        Disk weak = disk.reboot(Disk::After(after), seed + std::uint64_t(cut));
        const std::int64_t next = std::max<std::int64_t>(found, 0) + 1;
        weak.cut_power_at(second);
        bool whole = false;
        try {
          Checkpoints again(weak, folder, keep);
          (void)again.load_newest();
          again.save(made_up(next, 0));
          whole = true;
        } catch (const PowerCut&) {
        }
        Disk weaker = weak.reboot(Disk::After(after), seed + std::uint64_t(second));
        look(weaker, {cut, second, after, whole ? next : found, whole ? -1 : next},
             std::int64_t(steps.size()));
        if (whole) break;
      }
    }
    if (done) {
      operations = cut;
      break;
    }
  }
  out.put("rows", rows);
  out.put("operations", operations);
}

// Saves to a disk that is damaged and filled in between: a script of letters, each with a number,
// usually a step.
//   s save           f save on a full disk           l a new program loads   o the old one loads
//   d change a byte of its file      t truncate its file  e empty its file
//   u leave its unfinished file      k start a new program that keeps this many
KIT_SCENARIO(history) {
  Disk disk;
  const int keep = int(in.integer("keep"));
  const std::string script = in.text("script"), folder = "run", other = "other";
  const auto numbers = in.integers("numbers");
  const auto make = [&](std::size_t i) { return made_up(numbers[i], 0); };
  disk.overwrite("run/notes.txt", Bytes(3));
  disk.overwrite("run/notes.tmp", Bytes(3));
  disk.overwrite("run/step-007", Bytes(3));
  disk.overwrite("run/step-x", Bytes(3));
  disk.overwrite("run/step-x.tmp", Bytes(3));
  Checkpoints neighbour(disk, other, 2);
  neighbour.save(made_up(1000000, 0));
  auto checkpoints = std::make_unique<Checkpoints>(disk, folder, keep);
  std::vector<std::int64_t> found;
  std::string listed, skipped, errors;
  for (std::size_t i = 0; i < script.size(); ++i) {
    const std::string path = folder + "/" + snapshot_name(numbers[i]);
    const char deed = script[i];
    if (deed == 'k') checkpoints = std::make_unique<Checkpoints>(disk, folder, int(numbers[i]));
    if (deed == 's') checkpoints->save(make(i));
    // Leaves the file that a power cut during save() would leave.
    if (deed == 'u') disk.overwrite(path + ".tmp", Bytes(9));
    if (deed == 'f') {
      for (const std::int64_t room : in.integers("rooms")) {
        std::size_t used = 0;
        for (const std::string& f : {folder, other})
          for (const std::string& name : disk.list(f)) used += disk.read(f + "/" + name).size();
        disk.set_capacity(used + std::size_t(room));
        try {
          checkpoints->save(make(i));
          errors += "saved\n";
        } catch (const DiskFull&) {
        } catch (const std::exception& e) {
          errors += std::string(e.what()) + "\n";
        }
      }
      disk.set_capacity(SIZE_MAX);
    }
    if (deed == 'd' || deed == 't' || deed == 'e') {
      Bytes bytes = disk.read(path);
      if (deed == 'd') bytes[bytes.size() / 2] ^= std::byte{4};
      if (deed == 't') bytes.resize(bytes.size() * 2 / 3);
      if (deed == 'e') bytes.clear();
      disk.overwrite(path, bytes);
    }
    if (deed == 'l') checkpoints = std::make_unique<Checkpoints>(disk, folder, keep);
    if (deed == 'l' || deed == 'o') {
      Snapshot snapshot;
      std::int64_t step = loaded(*checkpoints, snapshot);
      if (step >= 0 && !same(snapshot, made_up(step, 0))) step = -3;
      found.push_back(step);
      for (const std::string& name : checkpoints->skipped()) skipped += name + " ";
      skipped += "\n";
    }
    std::vector<std::string> names = disk.list(folder);
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) listed += name + " ";
    listed += "\n";
  }
  out.put("found", found);
  out.put("skipped", skipped);
  out.put("listed", listed);
  out.put("errors", errors);
  for (const std::int64_t step : {8, 9, 10, 11, 5, 6}) neighbour.save(made_up(step, 0));
  std::vector<std::string> others = disk.list(other);
  std::sort(others.begin(), others.end());
  std::string names;
  for (const std::string& name : others) names += name + " ";
  out.put("neighbour", names);
}

// Phases of a training run. Each phase is a new program with its own number of ranks. It resumes,
// trains, saves after `saves` of its steps (-1: never), and is killed after `steps`. fresh: the
// phase starts with an empty disk. begins: epoch, used and step at which the first phase begins,
// with "numbers", if given, as parameters.
KIT_SCENARIO(train) {
  const auto worlds = in.integers("worlds"), steps = in.integers("steps"),
             saves = in.integers("saves");
  const auto each = [&](const char* name, std::int64_t otherwise) {
    return in.has(name) ? in.integers(name) : std::vector<std::int64_t>(worlds.size(), otherwise);
  };
  const auto full = each("full", 0), sizes = each("sizes", 6), empty = each("fresh", 0);
  Disk disk;
  for (std::size_t phase = 0; phase < worlds.size(); ++phase) {
    kit::FabricOptions options = kit::fabric_options(in);
    options.world = int(worlds[phase]);
    if (empty[phase] != 0) disk = Disk();
    kit::Fabric fabric(options);
    Checkpoints checkpoints(disk, "run", 2);
    fabric.run([&](kit::Link& link) {
      const std::string of = "." + std::to_string(phase) + "." + std::to_string(link.rank());
      Checkpoints* const mine = link.rank() == 0 ? &checkpoints : nullptr;
      Training training(link.rank(), link.world(),
                        {in.integer("samples"), std::uint64_t(in.integer("run_seed")),
                         std::size_t(sizes[phase])});
      const std::string fresh = hash_of(training);
      const std::map<int, std::string> carried = training.carried;
      bool resumed = false;
      std::string error;
      if (in.integer("undisturbed", 0) == 0) try {
          resumed = resume(link, training, mine);
        } catch (const std::runtime_error& e) {
          error = std::string("resume: ") + e.what();
        }
      if (phase == 0 && in.has("begins")) {  // the state of a long training
        const std::vector<std::int64_t> begins = in.integers("begins");
        training.begin_epoch(begins[0]);
        training.used = begins[1];
        training.step = begins[2];
        if (in.has("numbers")) {
          training.parameters = training.momentum = in.floats("numbers");
          training.average_loss = training.parameters[0];
        }
      }
      out.put("resumed" + of, resumed);
      out.put("untouched" + of, hash_of(training) == fresh && training.carried == carried);
      out.put("first" + of, training.step);
      std::size_t saved = 0;  // numbers of ids (saved) and noises (heard) at the save
      std::size_t heard = 0;
      for (std::int64_t step = 0; step <= steps[phase]; ++step) {
        if (step == saves[phase]) {
          if (full[phase] > 0 && link.rank() == 0) disk.set_capacity(std::size_t(full[phase]) - 1);
          try {
            save(link, training, mine);
            saved = training.ids.size();
            heard = training.noises.size();
          } catch (const std::runtime_error& e) {
            error += std::string("save: ") + e.what();
          }
          if (link.rank() == 0) disk.set_capacity(SIZE_MAX);
        }
        if (step < steps[phase]) training.train(link);
      }
      out.put("state" + of, hash_of(training));
      out.put("parameters" + of, training.parameters);
      out.put("error" + of, error);
      if (saves[phase] < 0) saved = training.ids.size(), heard = training.noises.size();
      out.put("ids" + of, std::span<const std::int64_t>(training.ids).first(saved));
      out.put("noises" + of, std::span<const std::int64_t>(training.noises).first(heard));
    });
  }
}
