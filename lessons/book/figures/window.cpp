// book_window: messages through slots with credits. Simulates when the sender has a free slot, when
// each message is on the link, and when its credit is back.
//
//     book_window --slots 2 --bytes 65536 --delay 5 --bandwidth 10
//
// A live figure of the book; the simulation is the one of lesson 12's program `window`.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <vector>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/command_line.hpp"

using namespace ringsmith;
using nlohmann::json;

namespace {

constexpr int kShown = 12;         // messages in the drawing
constexpr int kTotal = 64 << 20;   // bytes sent in all
constexpr double kRounding = 1e3;  // times are rounded to nanoseconds

struct Options {
  int slots = 2;
  int bytes = 65536;
  double delay = 5, bandwidth = 10;  // microseconds, GB/s
  bool json = false;
};

struct Message {
  double begin = 0, end = 0, credit = 0;  // microseconds
};

struct Sent {
  std::vector<Message> first;
  double speed = 0, idle = 0;  // GB/s; share of the time
};

double rounded(double x) { return std::round(x * kRounding) / kRounding; }

Sent send(const Options& o) {
  const double on_the_link = o.bytes / (o.bandwidth * 1e3);
  std::vector<double> credit(std::size_t(o.slots), 0);
  Sent sent;
  double link = 0, waited = 0;
  const int messages = kTotal / o.bytes;
  for (int m = 0; m < messages; ++m) {
    double& slot = credit[std::size_t(m % o.slots)];
    const double begin = std::max(link, slot);
    waited += begin - link;
    link = begin + on_the_link;
    slot = link + 2 * o.delay;  // the message travels there, the credit back
    if (m < kShown) sent.first.push_back({rounded(begin), rounded(link), rounded(slot)});
  }
  sent.speed = double(messages) * o.bytes / (link + o.delay) * 1e-3;
  sent.idle = waited / link;
  return sent;
}

std::string as_text(const Options& o, const Sent& sent) {
  std::string out = "message  slot   begins     ends  credit is back  (us)\n";
  for (std::size_t m = 0; m < sent.first.size(); ++m)
    out += fmt::format("{:>7}  {:>4} {:>8.2f} {:>8.2f} {:>15.2f}\n", m, m % std::size_t(o.slots),
                       sent.first[m].begin, sent.first[m].end, sent.first[m].credit);
  return out + fmt::format(
                   "{} slots of {} bytes: {:.2f} GB/s, the link is idle {:.0f} % of the "
                   "time\n",
                   o.slots, o.bytes, sent.speed, 100 * sent.idle);
}

std::string as_json(const Options& o, const Sent& sent) {
  json first = json::array();
  for (const Message& m : sent.first)
    first.push_back({{"begin", m.begin}, {"end", m.end}, {"credit", m.credit}});
  return json{{"slots", o.slots},
              {"bytes", o.bytes},
              {"first", first},
              {"speed", rounded(sent.speed)},
              {"idle", rounded(sent.idle)},
              {"needed", rounded(2 * o.delay * o.bandwidth * 1e3 + o.bytes)}}
      .dump();
}

int run(int argc, char** argv) {
  Options o;
  apps::CommandLine app("Messages through slots with credits, simulated.", "book_window");
  app.add_option("--slots", o.slots, "messages that the receiver has room for")
      ->check(apps::whole(1, 64));
  app.add_option("--bytes", o.bytes, "of a message")->check(apps::whole(256, 4 << 20));
  app.add_option("--delay", o.delay, "microseconds from end to end")->check(apps::real(0, 1e6));
  app.add_option("--bandwidth", o.bandwidth, "of the link, GB/s")->check(apps::above_zero(1e4));
  app.add_flag("--json", o.json, "print JSON; times in microseconds");
  if (!app.parse(argc, argv)) return 0;
  const Sent sent = send(o);
  fmt::print("{}", o.json ? as_json(o, sent) + "\n" : as_text(o, sent));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program("book_window", [&] { return run(argc, argv); });
}
