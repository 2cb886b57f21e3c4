// Runs the student's channels and ring on lab 11's endpoints over the kit's device, and the
// hierarchical all-reduce on the kit's fabric.
#include LAB06_RING
#include LAB11_ENDPOINT
#include LAB12_RING

#include "labs/kit/driver.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <stdexcept>

#include "labs/kit/counted.hpp"
#include "labs/kit/elements.hpp"
#include "labs/kit/fabric/fabric.hpp"
#include "labs/kit/verbs/device.hpp"

namespace {

using kit::Counted;

std::string name_of(const char* what, int rank) { return what + ("." + std::to_string(rank)); }

// Lab 11's endpoint, which also counts the messages that occupy the peer's slots.
struct Watched {
  lab11::Endpoint& end;
  std::int64_t messages = 0, taken = 0, most = 0, bytes = 0;
  Watched* peer = nullptr;

  void put(std::size_t from, std::size_t to, std::size_t size, std::uint32_t value) {
    end.put(from, to, size, value);
    bytes += std::int64_t(size);
    if (size == 0) return;  // a credit or another put without bytes
    ++messages;
    most = std::max(most, messages - taken);
  }
  std::optional<std::uint32_t> poll() { return end.poll(); }
};

using Channel = lab12::Channel<Watched>;

// One rank's half of a connection between two ranks: memory, endpoint, channel.
struct Half {
  std::vector<std::byte> inbox, outbox;
  std::unique_ptr<lab11::Endpoint> end;
  std::unique_ptr<Watched> watched;
  std::unique_ptr<Channel> channel;
  std::optional<lab11::Address> address;
  bool connected = false;

  void open(lab12::Slots slots) {
    inbox.assign(slots.bytes * std::size_t(slots.count), std::byte{0xEE});
    outbox = inbox;
    end = std::make_unique<lab11::Endpoint>("sim0", inbox, outbox, lab11::Limits{8, 8, 1});
    watched = std::make_unique<Watched>(Watched{*end});
    channel = std::make_unique<Channel>(*watched, inbox, outbox, slots);
    address = end->address();
  }
  void close() {
    channel.reset();
    end.reset();
  }
};

// A ring of connections: right[r] and left[r + 1] are the two halves of one connection.
struct Net {
  explicit Net(const kit::Request& in) : Net(in, in.integer("slot_bytes")) {}
  Net(const kit::Request& in, std::int64_t slot_bytes)
      : world(int(in.integer("world"))),
        slots{std::size_t(slot_bytes), int(in.integer("slots"))},
        right(std::size_t(world)),
        left(std::size_t(world)),
        ready(std::size_t(world)),
        done(std::size_t(world)),
        dead(std::size_t(world)),
        left_all(std::size_t(world)) {}
  Half& right_of(int rank) { return right[std::size_t(rank)]; }
  Half& left_of(int rank) { return left[std::size_t(rank)]; }
  void all(std::vector<char>& flags, int rank) {
    flags[std::size_t(rank)] = 1;
    while (std::count(flags.begin(), flags.end(), 1) < world)
      look(rank), kit::verbs::stand_still(1);
  }
  void look(int rank) const {
    for (int r = 0; r < world; ++r)
      if (dead[std::size_t(r)] && r != rank)
        throw std::runtime_error("rank " + std::to_string(r) + " is gone");
  }
  void connect(int rank) {
    right_of(rank).open(slots);
    left_of(rank).open(slots);
    Half& after = left_of((rank + 1) % world);
    Half& before = right_of((rank + world - 1) % world);
    while (!after.address || !before.address) kit::verbs::stand_still(1);
    right_of(rank).end->connect(*after.address);
    left_of(rank).end->connect(*before.address);
    all(ready, rank);
  }
  void close(int rank) {
    right_of(rank).close();
    left_of(rank).close();
  }
  int world;
  lab12::Slots slots;
  std::vector<Half> right, left;
  std::vector<char> ready, done, dead, left_all;
};

}  // namespace

// Sends messages of given lengths from rank 0 to rank 1. The receiver pauses before each message.
KIT_SCENARIO(messages) {
  Net net(in);
  const std::vector<std::int64_t> lengths = in.integers("lengths");
  const auto pause = int(in.integer("pause", 0));
  std::vector<std::int64_t> got;
  std::int64_t wrong = 0, most = 0, refused = 0, wrong_echo = 0;
  // With echo, the receiver returns each message on the same channel.
  const bool echo = in.integer("echo", 0) != 0;
  kit::verbs::run(2, std::uint64_t(in.integer("seed")), [&](int rank) {
    net.connect(rank);
    Channel& channel = rank == 0 ? *net.right_of(0).channel : *net.left_of(1).channel;
    Watched& watched = rank == 0 ? *net.right_of(0).watched : *net.left_of(1).watched;
    std::vector<std::byte> buffer(net.slots.bytes);
    for (std::size_t m = 0; m < lengths.size(); ++m) {
      const auto length = std::size_t(lengths[m]);
      if (rank == 0) {
        for (std::size_t i = 0; i < length; ++i) buffer[i] = std::byte(m * 37 + i);
        while (!channel.try_send(std::span<const std::byte>(buffer).first(length))) ++refused;
        std::fill(buffer.begin(), buffer.end(), std::byte{0xAA});  // try_send() copied the message
        if (!echo) continue;
        std::optional<std::size_t> back;
        while (!back) back = channel.try_receive(std::span(buffer));
        for (std::size_t i = 0; i < length; ++i)
          wrong_echo += *back != length || buffer[i] != std::byte(m * 37 + i);
      } else {
        if (pause > 0) kit::verbs::stand_still(pause);
        std::optional<std::size_t> came;
        while (!came) came = channel.try_receive(std::span(buffer));
        got.push_back(std::int64_t(*came));
        ++net.right_of(0).watched->taken;
        for (std::size_t i = 0; i < *came; ++i) wrong += buffer[i] != std::byte(m * 37 + i);
        if (!echo) continue;
        while (!channel.try_send(std::span<const std::byte>(buffer).first(*came))) ++refused;
      }
    }
    most = std::max(most, watched.most);
    net.all(net.done, rank);
    net.close(rank);
  });
  out.put("lengths", got);
  out.put("wrong", wrong);
  out.put("most", most);
  out.put("refused", refused);
  out.put("wrong_echo", wrong_echo);
  kit::verbs::observe(out);
}

// Both ranks send all messages on the same channel. After each try to send, they try to receive.
KIT_SCENARIO(both_ways) {
  Net net(in);
  const std::vector<std::int64_t> lengths = in.integers("lengths");
  std::int64_t wrong = 0;
  kit::verbs::run(2, std::uint64_t(in.integer("seed")), [&](int rank) {
    net.connect(rank);
    Channel& channel = rank == 0 ? *net.right_of(0).channel : *net.left_of(1).channel;
    std::vector<std::byte> buffer(net.slots.bytes);
    const auto pattern = [](int from, std::size_t m, std::size_t i) {
      return std::byte(std::size_t(from) * 91 + m * 37 + i);
    };
    for (std::size_t sent = 0, came = 0; sent < lengths.size() || came < lengths.size();) {
      if (sent < lengths.size()) {
        const auto length = std::size_t(lengths[sent]);
        for (std::size_t i = 0; i < length; ++i) buffer[i] = pattern(rank, sent, i);
        sent += channel.try_send(std::span<const std::byte>(buffer).first(length));
      }
      const std::optional<std::size_t> got = channel.try_receive(std::span(buffer));
      if (!got) continue;
      const std::size_t message = came < lengths.size() ? came : 0;
      wrong += came >= lengths.size() || *got != std::size_t(lengths[message]);
      for (std::size_t i = 0; i < std::min(*got, buffer.size()); ++i)
        wrong += buffer[i] != pattern(1 - rank, message, i);
      ++came;
    }
    net.all(net.done, rank);
    net.close(rank);
  });
  out.put("wrong", wrong);
  kit::verbs::observe(out);
}

namespace {

// Runs the ring `calls` times. Rank `dies`, if given, leaves in its third idle(). With
// other_slot_bytes, every second call uses a second set of channels with other slots.
template <class T>
void run_ring(const kit::Request& in, kit::Observation& out) {
  Net net(in);
  std::optional<Net> other;
  if (in.has("other_slot_bytes")) other.emplace(in, in.integer("other_slot_bytes"));
  const auto count = std::size_t(in.integer("count"));
  const auto calls = in.integer("calls", 1), dies = in.integer("dies", -1);
  std::vector<std::string> errors(std::size_t(net.world));
  std::vector<std::int64_t> bytes(std::size_t(net.world));
  kit::verbs::run(net.world, std::uint64_t(in.integer("seed")), [&](int rank) {
    net.connect(rank);
    if (other) other->connect(rank);
    std::vector<T> work(count);
    int turns = 0;
    try {
      for (std::int64_t call = 0; call < calls; ++call) {
        for (std::size_t i = 0; i < count; ++i) work[i] = kit::element<T>(rank, i);
        const auto idle = [&] {
          if (rank == dies && ++turns == 3) throw std::logic_error("dies");
          net.look(rank);
        };
        Net& used = other && call % 2 == 1 ? *other : net;
        lab12::all_reduce<T>(*used.right_of(rank).channel, *used.left_of(rank).channel, rank,
                             net.world, std::span(work), idle);
      }
      out.put(name_of("out", rank), kit::shown<T>(work));
      bytes[std::size_t(rank)] = net.right_of(rank).watched->bytes;
      net.all(net.done, rank);
    } catch (const std::logic_error&) {
      net.dead[std::size_t(rank)] = 1;
    } catch (const std::runtime_error& error) {
      if (dies < 0) throw;
      errors[std::size_t(rank)] = error.what();
    }
    // No rank frees its memory before all have left: a rank that has stopped must look silent.
    net.left_all[std::size_t(rank)] = 1;
    while (std::count(net.left_all.begin(), net.left_all.end(), 1) < net.world)
      kit::verbs::stand_still(1);
    net.close(rank);
    if (other) other->close(rank);
  });
  for (int rank = 0; rank < net.world; ++rank)
    out.put(name_of("error", rank), errors[std::size_t(rank)]);
  out.put("bytes", bytes);
  kit::verbs::observe(out);
}

}  // namespace

// type: 0 kit::Counted, 1 double, 2 bytes (labs/kit/elements.hpp).
KIT_SCENARIO(ring) {
  kit::with_type(in.integer("type", 0), [&]<class T>(T) { run_ring<T>(in, out); });
}

namespace {

// A subset of the fabric's ranks as a separate world, which counts the elements that it sends.
struct Group {
  kit::Link& link;
  std::vector<int> members;
  int self;
  std::int64_t* sent;
  [[nodiscard]] int rank() const { return self; }
  [[nodiscard]] int world() const { return int(members.size()); }
  [[nodiscard]] int real(int member) const { return members.at(std::size_t(member)); }
  template <class T>
  void send(int to, std::span<T> data) {
    *sent += std::int64_t(data.size());
    link.send(real(to), data);
  }
  template <class T>
  void recv(int from, std::span<T> data) {
    link.recv(real(from), data);
  }
  template <class T, class U>
  void exchange(int to, std::span<T> data, int from, std::span<U> in) {
    *sent += std::int64_t(data.size());
    link.exchange(real(to), data, real(from), in);
  }
};

struct Ring {
  template <class L, class T>
  static void reduce_scatter(L& link, std::span<T> work) {
    lab06::reduce_scatter<T>(link, work);
  }
  template <class L, class T>
  static void all_gather(L& link, std::span<T> work) {
    lab06::all_gather<T>(link, work);
  }
  template <class L, class T>
  static void all_reduce(L& link, std::span<T> work) {
    lab06::all_reduce<T>(link, std::span<const T>(work), work);
  }
};

}  // namespace

// Runs the hierarchical all-reduce on `nodes` machines with `local` ranks each; rank = node * local
// + place. A call with `before` elements precedes the observed one.
KIT_SCENARIO(hierarchy) {
  const int nodes = int(in.integer("nodes")), local = int(in.integer("local"));
  kit::FabricOptions options = kit::fabric_options(in);
  const auto count = std::size_t(in.integer("count"));
  std::vector<std::int64_t> inside(std::size_t(options.world)), across = inside;
  kit::Fabric fabric(options);
  fabric.run([&](kit::Link& link) {
    const int rank = link.rank(), node = rank / local, place = rank % local;
    Group here{link, {}, place, &inside[std::size_t(rank)]};
    Group there{link, {}, node, &across[std::size_t(rank)]};
    for (int r = 0; r < options.world; ++r) {
      if (r / local == node) here.members.push_back(r);
      if (r % local == place) there.members.push_back(r);
    }
    fabric.begin(rank, "hierarchical_all_reduce");
    std::vector<Counted> earlier(std::size_t(in.integer("before", 0)));
    lab12::hierarchical_all_reduce<Ring, Counted>(here, there, std::span(earlier));
    inside[std::size_t(rank)] = across[std::size_t(rank)] = 0;
    std::vector<Counted> work(count);
    for (std::size_t i = 0; i < count; ++i) work[i] = kit::counted(rank, i);
    lab12::hierarchical_all_reduce<Ring, Counted>(here, there, std::span(work));
    out.put(name_of("out", rank), kit::runs_of(work));
  });
  (void)nodes;
  out.put("inside", inside);
  out.put("across", across);
}
