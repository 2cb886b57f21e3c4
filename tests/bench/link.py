#!/usr/bin/env python3
"""link.py [BUILD_DIR]: the ring on a slow link between two network namespaces (as root).

Measures how many bytes per second one plain TCP connection moves over the link, and how many the ring of
two ranks, one on each side, moves in each direction: 2 (N - 1) / N times the message, divided by the time
of the all-reduce. Runs alternate; figures are medians. Then it runs the ring again while the link loses
1 % of its frames.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CLUSTER = os.path.join(HERE, "../nodes/netns-cluster.sh")
PORT = 29700
# Prints the bytes per second at the receiver, from the first byte to the last.
RECEIVER = """
import socket, time
c = socket.create_server(("", %d)).accept()[0]
n, start = len(c.recv(1)), time.time()
while got := len(c.recv(1 << 20)): n += got
print(n / (time.time() - start))
"""
SENDER = """
import socket, time
for attempt in range(100):
  try: c = socket.create_connection(("10.88.0.2", %d)); break
  except OSError: time.sleep(0.05)
c.sendall(bytes(%d)); c.shutdown(socket.SHUT_WR); c.recv(1)
"""


class Link:
    """Two network namespaces, programs in both, and the shaping of the link between them."""

    def __init__(self, options, work):
        self.options, self.work, self.runs = options, work, 0
        self.bin = os.path.join(os.path.abspath(options.dir), "bin")
        self.environment = dict(os.environ, NETNS_CLUSTER=f"bench-{os.getpid()}", NETNS_CLUSTER_DIR=work,
                                PATH=os.environ["PATH"] + ":/usr/sbin:/sbin")

    def cluster(self, *words):
        done = subprocess.run([CLUSTER, *words], env=self.environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{os.path.basename(sys.argv[0])}: netns-cluster.sh {' '.join(words)}: {done.stdout}{done.stderr}")

    def on_both(self, commands):
        """Returns the outputs of node 0's and node 1's commands."""
        running = [subprocess.Popen([CLUSTER, "exec", f"node{i}", *command], env=self.environment, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i, command in enumerate(commands)]
        out = [process.communicate(timeout=200) for process in running]
        if any(process.returncode for process in running):
            sys.exit(f"{os.path.basename(sys.argv[0])}: a program failed\n" + "\n".join(a + b for a, b in out))
        return [a for a, _ in out]

    def secret(self):
        """Creates a secret for a new run and returns its path."""
        self.runs += 1
        path = os.path.join(self.work, f"secret{self.runs}")
        subprocess.run([os.path.join(self.bin, "ringrun"), "--make-secret", path], check=True)
        return path

    def on_all_ranks(self, program, *more):
        """Returns the outputs of both nodes' ringruns, whose ranks run the program together."""
        secret = self.secret()
        return self.on_both([[os.path.join(self.bin, "ringrun"), "--nnodes", "2", "--node-rank", str(node), "--no-prefix",
                              "--master-addr", "10.88.0.1", "--master-port", str(PORT + self.runs), "--secret-file", secret,
                              *more, "--", *program] for node in (0, 1)])

    def all_reduce(self, algorithm, size, extra=(), per_node=1, iterations=5):
        """Returns the seconds per all-reduce on the slowest rank."""
        out = self.on_all_ranks([os.path.join(self.bin, "all_reduce_perf"), "-b", str(size), "-n", str(iterations),
                                 "-w", "1", "--place", "in", "--memory", "user", "--algorithm", algorithm, "--json",
                                 *extra], "--nproc-per-node", str(per_node))[0]
        report = json.loads(out[out.index("{"):])
        if report["out_of_bounds"] != 0:
            sys.exit(f"{os.path.basename(sys.argv[0])}: wrong values")
        return report["results"][0]["in_place"]["time_us"] / 1e6

    def plain(self, size):
        """Returns the bytes per second over one connection."""
        self.runs += 1
        port = PORT + self.runs
        return float(self.on_both([["python3", "-c", SENDER % (port, size)], ["python3", "-c", RECEIVER % port]])[1])

    def ring(self, size, extra=()):
        """Returns the bytes per second that two ranks move in each direction."""
        return size / self.all_reduce("ring", size, extra)


def run_options(p):
    """Adds the options of every measurement over a link."""
    p.add_argument("dir", nargs="?", type=build_folder, default=os.path.join(HERE, "../../build/release"), help="build folder")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")


def link_options(p):
    """Adds the run options, and options for the link and the message."""
    run_options(p)
    p.add_argument("--rate", default="1gbit", help="rate of the link")
    p.add_argument("--delay", default="500us", help="one-way delay")
    p.add_argument("--size", type=int, default=16, help="MiB of the message")


def build_folder(text):
    """The type of an argument of argparse."""
    if not os.path.isfile(os.path.join(text, "bin/all_reduce_perf")):
        raise argparse.ArgumentTypeError(f"there is no bin/all_reduce_perf in {text!r}: give the build folder, or run make build")
    return text


def need_root():
    if os.geteuid() != 0:
        sys.exit(f"{os.path.basename(sys.argv[0])}: network namespaces need root")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    link_options(p)
    p.add_argument("--loss", default="1", help="percent of the frames")
    p.add_argument("--least", type=float, default=0.85, help="minimum share of the plain connection's rate")
    options = p.parse_args()
    need_root()
    size = options.size << 20
    with tempfile.TemporaryDirectory() as work:
        link = Link(options, work)
        link.cluster("up", "2", "--rate", options.rate, "--delay", options.delay)
        try:
            plain, ring = [], []
            for _ in range(options.rounds):
                plain.append(link.plain(4 * size))
                ring.append(link.ring(size))
            share = statistics.median(r / b for r, b in zip(ring, plain))
            print(f"# {options.rate}, {options.delay} each way, {options.size} MiB, medians of {options.rounds} rounds, "
                  "in each direction:")
            print(f"plain TCP connection {statistics.median(plain) * 8 / 1e6:8.0f} Mbit/s")
            print(f"ring                 {statistics.median(ring) * 8 / 1e6:8.0f} Mbit/s   {share:.0%}", flush=True)
            link.cluster("shape", "all", "--loss", options.loss)
            for sockets in (1, 2):
                lossy = statistics.median(link.ring(size, ("--sockets", str(sockets))) for _ in range(options.rounds))
                print(f"ring, {options.loss} % loss, {sockets} socket{'s' * (sockets > 1)} {lossy * 8 / 1e6:6.0f} Mbit/s",
                      flush=True)
        finally:
            link.cluster("down")
    good = share >= options.least
    print(f"{'PASS' if good else 'FAIL'}  the ring reaches {options.least:.0%} of the link's rate: {share:.0%}")
    return 0 if good or not options.strict else 1


if __name__ == "__main__":
    sys.exit(main())
