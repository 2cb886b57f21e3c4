"""The time that a machine has given to a run, by which the judge decides that the run hangs.

    wall clock      |---------------------------------------------------|
    a thread        |##|      |##| waits for a processor  |##|  sleeps  |
    granted         |##|      |##|                        |##|----------|

Counted are the processor time of a run's processes, and the time in which all their threads sleep. Not counted is the
time in which some thread is ready to run and waits for a processor, because another program has it. So a busy machine
does not turn a slow run into a hang, and a run that waits forever, asleep or in a loop, is still found: in a loop, it
uses processor time. Time in which a run exchanges bytes with the judge is not counted as sleep either: it may wait for
the judge, which has no processor. The clock never runs faster than the wall clock.

Linux counts processor time per process, and /proc shows whether a thread is ready ("R"). A sample is taken at most
every SAMPLE seconds, and a single read of /proc serves all runs of this judge.
"""
import os
import threading
import time

SAMPLE = 0.2                # seconds between two samples
LONGEST_STEP = 0.5          # seconds that a sample counts at most: the judge itself may have had no processor
LONGEST_SLEEP = 3           # the same, if the run has used no processor time since the last sample, and sleeps
TICK = os.sysconf("SC_CLK_TCK")


def _stat(path):
    """The fields of a stat file after the name, which may contain blanks; None if the process is gone."""
    try:
        with open(path, "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


class _Processes:
    """A snapshot of all processes: {parent: [(process, seconds of processor time)]}."""

    def __init__(self):
        self._lock, self._taken, self._children = threading.Lock(), 0.0, {}

    def children(self):
        with self._lock:
            if time.monotonic() - self._taken > SAMPLE / 2:
                found = {}
                for name in os.listdir("/proc"):
                    fields = _stat(f"/proc/{name}/stat") if name.isdigit() else None
                    if fields:  # user and system time, and those of children that have been waited for
                        found.setdefault(int(fields[1]), []).append((int(name), sum(map(int, fields[11:15])) / TICK))
                self._children, self._taken = found, time.monotonic()
            return self._children


_processes = _Processes()


def _tree(root):
    """Returns (seconds of processor time, whether a thread is ready or running) of a process and its descendants."""
    fields = _stat(f"/proc/{root}/stat")
    family, used = [root], sum(map(int, fields[11:15])) / TICK if fields else 0.0
    children = _processes.children()
    for process in family:
        for child, seconds in children.get(process, ()):
            family.append(child)
            used += seconds
    return used, any(_is_ready(process) for process in family)


def _is_ready(process):
    try:
        threads = os.listdir(f"/proc/{process}/task")
    except OSError:
        return False
    return any((fields := _stat(f"/proc/{process}/task/{thread}/stat")) and fields[0] == b"R" for thread in threads)


class Granted:
    """Measures one run, from its start. `seconds` is the result of the last sample."""

    def __init__(self, root):
        self.seconds = 0.0
        self._root, self._used, self._last, self._exchanged = root, 0.0, time.monotonic(), False

    def exchanged(self):
        """The judge has read from the run or written to it."""
        self._exchanged = True

    def left(self):
        """The seconds until the next sample."""
        return max(self._last + SAMPLE - time.monotonic(), 0.0)

    def sample(self):
        """Takes a sample if the last one is old enough."""
        now = time.monotonic()
        if now - self._last >= SAMPLE:
            used, ready = _tree(self._root)
            ready = ready or self._exchanged
            asleep = used == self._used and not ready
            step = min(now - self._last, LONGEST_SLEEP if asleep else LONGEST_STEP)
            self.seconds += min(step, max(used - self._used, 0.0)) if ready else step
            self._used, self._last, self._exchanged = used, now, False

    def end(self):
        """The run has ended; its last moments count by the wall clock. Returns the total."""
        self.seconds += min(time.monotonic() - self._last, LONGEST_STEP)
        return self.seconds
