"""Public tests of lab 20, which a student runs after every save. hidden.py uses the oracles too.

The oracles compute with Python's numbers, rounded to float after every operation, on one process that holds everything.
"""
import array
import functools

from labs.course.testing import Wrong, expect, floats, lab_test


def f32(x):
    return floats([x])[0]


def same(name, got, want, seen):
    """Compares bit for bit, except for the sign of a zero."""
    expect.same_bits(name, array.array(got.typecode, [x + 0.0 for x in got]),
                     array.array(got.typecode, [x + 0.0 for x in want]), seen)


def average(column):
    """Returns the average of one gradient: divided first, then summed in rank order."""
    return functools.reduce(lambda a, b: f32(a + b), [f32(g / len(column)) for g in column])


def shard_of(count, world, rank):
    padded = -(-count // world)
    first = min(count, padded * rank)
    return first, min(padded, count - first), padded


def part(flat, world, rank):
    """Returns the shard of a rank, with its padding."""
    first, length, padded = shard_of(len(flat), world, rank)
    return [*flat[first:first + length], *[0.0] * (padded - length)]


@lab_test
def shards(lab):
    """Task 1: 7 parameters on 3 ranks are 3, 3 and 1, and 4 are 2, 2 and 0, all padded to the longest."""
    check_shards(lab, (1, 2, 3, 4, 8), [0, 1, 2, 4, 5, 7, 8, 9, 1000, 2 ** 31 + 7])


def check_shards(lab, worlds, counts):
    for world in worlds:
        seen = lab.run("shards", world=world, counts=counts)
        for number, count in enumerate(counts):
            for rank in range(world):
                got = tuple(seen["numbers"][3 * (number * world + rank):][:3])
                expect.equal(f"first, length and padded of {count} parameters on rank {rank} of {world}", got,
                             shard_of(count, world, rank), seen)


# --- one unit -------------------------------------------------------------------------------------

def check_unit(lab, world, sizes, values, script, gradients=(), **how):
    """gradients: for each letter r of the script a row for each rank."""
    count = sum(sizes)
    values = [f32(x) for x in values]
    rows = [[[f32(g) for g in row] for row in call] for call in gradients]
    seen = lab.run("unit", world=world, units=[len(sizes)], sizes=list(sizes), values=floats(values), script=script,
                   **{f"gradients.{r}": floats(g for call in rows for g in call[r]) for r in range(world)}, **how)
    total = [0.0] * count
    value, want, viewed, widths, thrown, moves, gathers, whole, calls = list(values), [], [], [], "", "", 0, None, 0
    held = []

    def look():
        want.append((list(value), list(total)))
        held.append(whole is not None)

    look()
    for letter in script:
        nothing = count == 0
        if letter in "sg" and whole is None and not nothing:
            whole, started, moves, gathers = list(value), True, moves + "g", gathers + 1
        if letter == "g" and whole is not None and started:
            started, moves = False, moves + "w"
        if letter == "l" and whole is not None:
            moves += "w" if started else ""
            whole, started = None, False
        if letter == "p":
            if (whole is None and not nothing) or (whole is not None and started):
                thrown += "p"
            else:
                widths += [len(sizes), *sizes]
                viewed += whole or []
        if letter == "v":
            value = [f32(2 * x) for x in value]
        if letter == "r":
            if not nothing:
                total = [f32(t + average(column)) for t, column in zip(total, zip(*rows[calls]))]
                moves += "r"
            calls += 1
        thrown += " "
        look()
    padded = shard_of(count, world, 0)[2]
    for rank in range(world):
        shown = f"of a unit of {count} on rank {rank} of {world}, script {script},"
        expect.equal(f"exceptions {shown}: the letters that throw", seen[f"thrown.{rank}"], thrown, seen)
        expect.equal(f"numbers in the value {shown}", seen[f"padded.{rank}"], padded, seen)
        got = "".join(seen[f"events.{rank}"].replace("0", "").split())
        expect.equal(f"collectives {shown} (g: started, w: waited for, r: reduce-scatter)", got, moves, seen)
        expect.equal(f"gathers never waited for {shown}", seen[f"pending.{rank}"], int(whole is not None and started), seen)
        for call, (one, grads) in enumerate(want):
            after = f"after letter {call} ({script[call - 1]})" if call else "of the constructor"
            row = seen[f"shards.{rank}"][3 * padded * call:][:3 * padded]
            expect.same_bits(f"the value {shown} {after}", row[:padded], floats(part(one, world, rank)), seen)
            same(f"the gradient {shown} {after}", row[padded:2 * padded], floats(part(grads, world, rank)), seen)
            same(f"the momentum {shown} {after}", row[2 * padded:], floats([0.0] * padded), seen)
            most = 12 * padded + held[call] * 4 * padded * world + 2048 + 64 * len(sizes)
            if count > 4000:
                expect.at_most(f"memory {shown} {after}", seen[f"held.{rank}"][call], most + 4 * 4096, "bytes", seen)
        expect.equal(f"tensors and sizes in parameters() {shown}", list(seen[f"widths.{rank}"]), widths, seen)
        expect.same_bits(f"parameters() {shown} all together", seen[f"viewed.{rank}"], floats(viewed), seen)
        expect.equal(f"capacity of the gradients after reduce() {shown}", sum(seen[f"left.{rank}"]), 0, seen)
        expect.at_most(f"rank {rank} sends", seen["sent_bytes"][rank], 4 * padded * (world - 1) * (gathers + moves.count("r")),
                       "bytes", seen)


@lab_test
def unit(lab):
    """Tasks 2 and 3: a shard of 7 on three ranks; gathered, viewed, released, gathered again."""
    check_unit(lab, 3, [4, 3], range(1, 8), "gplpgpl")
    check_unit(lab, 2, [2, 1, 2], range(1, 6), "pspgpgsplvgp")
    check_unit(lab, 3, [9000, 1, 4000], [float(i % 97) for i in range(13001)], "gplsllgl")
    check_unit(lab, 4, [2], [5, 6], "gplsl")


@lab_test
def reduce(lab):
    """Task 4: a gradient is averaged, and added to the shard; the large buffer is freed."""
    rows = [[[3, 6, 9, 1, 2, 4, 8], [6, 0, 3, 1, 5, 4, 1], [0, 3, 6, 7, 2, 1, 0]],
            [[1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1], [1e8, 1, 1, 1, 1, 1, -1e8]]]
    check_unit(lab, 3, [4, 3], range(7), "rr", rows)
    check_unit(lab, 3, [4, 3], range(7), "grlr", rows)
    check_unit(lab, 2, [5], range(5), "rgr", [[[1, 2, 3, 4, 5], [1, 2, 3, 4, 7]], [[3e38] * 5, [3e38] * 5]])
    check_unit(lab, 4, [1, 1], range(2), "r", [[[1, 2], [3, 4], [5, 6], [7, 8]]])


# --- training -------------------------------------------------------------------------------------

class Training:
    """A script on some ranks, and what one process that holds the whole model computes."""

    def __init__(self, rng, world, units, slope=0.3):
        self.world, self.units, self.slope = world, units, f32(slope)
        self.counts = [sum(sizes) for sizes in units]
        self.total = sum(self.counts)
        self.value = [[f32(rng.uniform(-4, 4)) for _ in range(n)] for n in self.counts]
        self.gradient = [[0.0] * n for n in self.counts]
        self.momentum = [[0.0] * n for n in self.counts]
        self.start = [x for flat in self.value for x in flat]
        self.script, self.offset, self.options, self.rates, self.loads, self.loaded = "", [[] for _ in range(world)], [], [], [], []
        self.looks, self.passes, self.used, self.widths, self.thrown, self.sent = [], [], [], [], "", 0
        self.wholes, self.shapes, self.saved, self.saved_shapes = [], [], [[] for _ in range(world)], [[] for _ in range(world)]
        self.rng, self.reduced, self.collectives = rng, False, 0
        self.look()

    def look(self):
        self.looks.append([[list(one) for one in three] for three in zip(self.value, self.gradient, self.momentum)])

    def note(self, letter, thrown=""):
        self.script += letter
        self.thrown += thrown + " "
        self.look()

    def padded(self, u):
        return -(-self.counts[u] // self.world)

    def use(self, u):
        self.used += self.value[u]
        self.widths += [len(self.units[u]), *self.units[u]]

    def train(self, prefetch=True, keep=False, scale=8.0):
        n = len(self.units)
        rows = [[f32(self.rng.uniform(-scale, scale)) for _ in range(self.total)] for _ in range(self.world)]
        for rank, row in enumerate(rows):
            self.offset[rank] += row
        for u in range(n):
            self.use(u)
        at = self.total
        for u in reversed(range(n)):
            self.use(u)
            at -= self.counts[u]
            for i, x in enumerate(self.value[u]):
                inner = f32(self.slope * x)
                mean = average([f32(row[at + i] + inner) for row in rows])
                self.gradient[u][i] = f32(self.gradient[u][i] + mean)
        self.options += [int(prefetch), int(keep)]
        self.passes.append((prefetch, keep))
        for u in range(n):
            gathers = 1 if keep or u == n - 1 else 2
            self.sent += (gathers + 1) * self.padded(u)
        self.reduced = True
        self.note("F")

    def step(self, lr=0.1, mu=0.9):
        lr, mu = f32(lr), f32(mu)
        self.rates += [lr, mu]
        if not self.reduced:
            return self.note("S", "logic_error")
        self.reduced = False
        for value, gradient, momentum in zip(self.value, self.gradient, self.momentum):
            for i, g in enumerate(gradient):
                momentum[i] = f32(f32(mu * momentum[i]) + g)
                value[i] = f32(value[i] - f32(lr * momentum[i]))
                gradient[i] = 0.0
        return self.note("S")

    def whole(self):
        for flats in (self.value, self.momentum):
            self.shapes.append(len(self.units))
            for u, flat in enumerate(flats):
                self.shapes += [len(self.units[u]), *self.units[u]]
                self.wholes += flat
        for u in range(len(self.units)):
            self.sent += 2 * self.padded(u)
        self.note("W")

    def shard(self, rank, world=None):
        """Returns the values and momenta that a rank of this or another world saves."""
        out = []
        for flats in (self.value, self.momentum):
            row = []
            for flat in flats:
                first, length, _ = shard_of(len(flat), world or self.world, rank)
                row += flat[first:first + length]
            out.append(row)
        return out

    def save(self):
        for rank in range(self.world):
            values, momenta = self.shard(rank)
            self.saved[rank] += values + momenta
            self.saved_shapes[rank] += [rank, self.world, len(values), len(momenta)]
        self.note("V")

    def load(self, shards, good=True):
        """shards: a list of (rank, world, values, momenta), and from_other (a Training with their values)."""
        self.loads.append(len(shards))
        for rank, world, values, momenta in shards:
            self.loads += [rank, world, len(values), len(momenta)]
            self.loaded += [*values, *momenta]
        if not good:
            return self.note("L", "invalid_argument")
        # Put together from first principles: each rank's elements, unit after unit.
        by_rank = sorted(shards, key=lambda s: s[0])
        values, momenta = [list(s[2]) for s in by_rank], [list(s[3]) for s in by_rank]
        for u, count in enumerate(self.counts):
            for row, flats in ((values, self.value), (momenta, self.momentum)):
                flat = []
                for rank, own in enumerate(row):
                    length = shard_of(count, len(by_rank), rank)[1]
                    flat += own[:length]
                    del own[:length]
                flats[u] = [f32(x) for x in flat]
            self.gradient[u] = [0.0] * count
        self.reduced = False
        return self.note("L")

    def check(self, lab, **how):
        request = {f"offset.{r}": floats(self.offset[r]) for r in range(self.world)}
        seen = lab.run("train", world=self.world, units=[len(sizes) for sizes in self.units],
                       sizes=[size for sizes in self.units for size in sizes], values=floats(self.start), slope=self.slope,
                       script=self.script, options=self.options, rates=floats(self.rates), loads=self.loads,
                       loaded=floats(self.loaded), **request, **how)
        for rank in range(self.world):
            check_events(seen, rank, self.script, self.passes, self.counts)
            expect.equal(f"what the calls throw on rank {rank}", seen[f"thrown.{rank}"].split(" "), self.thrown.split(" "), seen)
            expect.equal(f"tensors and sizes of the parameters that rank {rank}'s model gets", list(seen[f"widths.{rank}"]),
                         self.widths, seen)
            same(f"parameters that rank {rank}'s model gets, all together", seen[f"used.{rank}"], floats(self.used), seen)
            at = 0
            for number, units in enumerate(self.looks):
                when = f"after call {number} of {self.script}" if number else "after the constructor"
                for u, three in enumerate(units):
                    for name, flat in zip(("value", "gradient", "momentum"), three):
                        want = part(flat, self.world, rank)
                        same(f"the {name} shard of unit {u} on rank {rank} {when}", seen[f"shards.{rank}"][at:at + len(want)],
                             floats(want), seen)
                        at += len(want)
            mine = rank == 0
            empty = [0] * (2 * self.script.count("W"))
            expect.equal(f"the shapes in the whole states on rank {rank}", list(seen[f"shapes.{rank}"]), self.shapes if mine else empty, seen)
            same(f"the whole states on rank {rank}", seen[f"wholes.{rank}"], floats(self.wholes if mine else []), seen)
            expect.equal(f"rank, world and numbers of the saved shards on rank {rank}", list(seen[f"saved_shapes.{rank}"]),
                         self.saved_shapes[rank], seen)
            same(f"the saved shards on rank {rank}", seen[f"saved.{rank}"], floats(self.saved[rank]), seen)
            expect.equal(f"gathers never waited for on rank {rank}", seen[f"pending.{rank}"], 0, seen)
            expect.at_most(f"rank {rank} sends", seen["sent_bytes"][rank], 4 * (self.world - 1) * self.sent, "bytes", seen)
        return seen


def events_of(seen, rank):
    return [(e[0], int(e[1:])) for e in seen[f"events.{rank}"].split()]


def check_events(seen, rank, script, passes, counts):
    """Checks the order of computations and collectives in each forward_backward()."""
    events, n, passes, at = events_of(seen, rank), len(counts), iter(passes), 0
    starts = [i for i, (kind, _) in enumerate(events) if kind in "FSWVLd"]
    pieces = [events[a + 1:b] for a, b in zip(starts, starts[1:])]
    for number, (letter, piece) in enumerate(zip(script, pieces)):
        call, told = f"in call {number} of {script} on rank {rank}", " ".join(f"{k}{u}" for k, u in piece)
        if letter in "SVL":
            expect.that(not piece, f"{call}, which sends nothing: {told}", seen)
        if letter == "W":
            want = [("g", u) for u in range(n) for _ in range(2) if counts[u]]
            expect.equal(f"gathers {call}", [e for e in piece if e[0] == "g"], want, seen)
        if letter != "F":
            continue
        prefetch, keep = next(passes)
        does = [e for e in piece if e[0] in "fbr"]
        want = [("f", u) for u in range(n)]
        for u in reversed(range(n)):
            want += [("b", u), ("r", u)] if counts[u] else [("b", u)]
        expect.that(does == want, f"{call} (f: forward, b: backward, r: reduce-scatter): {' '.join(k + str(u) for k, u in does)}, "
                    f"must be {' '.join(k + str(u) for k, u in want)}", seen)
        started, here = [], 0
        for kind, u in piece:
            if kind == "g":
                started.append(u)
            if kind not in "fb":
                continue
            need = [v for v in range(min(n, u + 1 + prefetch) if kind == "f" else n) if counts[v]]
            if kind == "b" and not keep:
                need += [v for v in reversed(range(max(0, u - prefetch), n - 1)) if counts[v]]
            expect.that(sorted(started) == sorted(need), f"before {'forward' if kind == 'f' else 'backward'} of unit {u} {call} "
                        f"(prefetch {int(prefetch)}, keep {int(keep)}) the started gathers are those of units {started}, "
                        f"must be {sorted(need)}", seen)
        need = n if keep else 2 * n - 1
        here = sum(1 for kind, _ in piece if kind == "g")
        if all(counts):
            expect.equal(f"gathers {call}", here, need, seen)


def small(lab, world, units, passes=2, **options):
    run = Training(lab.random, world, units)
    for _ in range(passes):
        run.train(**options)
        run.step()
    return run.check(lab)


@lab_test
def training(lab):
    """Tasks 5 and 7: three units on two and three ranks, with the bits of one process that holds the whole model."""
    for keep in (False, True):
        small(lab, 2, [[4, 2], [3], [5, 1]], prefetch=False, keep=keep)
        small(lab, 3, [[4, 3], [2], [7]], prefetch=False, keep=keep)
    small(lab, 2, [[5]], prefetch=False)
    # Two backwards before a step accumulate; a step without one is refused.
    run = Training(lab.random, 3, [[4, 3], [2]])
    run.step()
    for _ in range(2):
        run.train(prefetch=False)
    run.step()
    run.step()
    run.train(prefetch=False)
    run.step(0.25, 0.5)
    run.check(lab)


@lab_test
def prefetch(lab):
    """Task 6: the next gather is started before a unit computes, forward and backward."""
    small(lab, 3, [[4, 3], [2], [7], [1, 1]])
    small(lab, 2, [[4], [3]], keep=True)
    small(lab, 2, [[6]])


# --- memory ---------------------------------------------------------------------------------------

def check_memory(lab, world, units, passes, script=None, **how):
    """Checks the memory at each event, with a model that is too large to be recorded."""
    counts = [sum(sizes) for sizes in units]
    total, n = sum(counts), len(units)
    padded = [-(-c // world) for c in counts]
    script = script or "FS" * len(passes)
    zeros = floats([0.0] * total * len(passes))
    seen = lab.run("train", world=world, record=0, units=[len(s) for s in units], sizes=[s for sizes in units for s in sizes],
                   values=floats([0.5] * total), slope=1.0, script=script, options=[int(o) for p in passes for o in p],
                   rates=floats([0.1, 0.9] * script.count("S")), loads=[], loaded=floats([]),
                   **{f"offset.{r}": zeros for r in range(world)}, **how)
    slack = 8192 + 5 * 4096 * n + 64 * len([s for sizes in units for s in sizes])
    shards_only = 12 * sum(padded)

    def whole(*which):
        return sum(4 * padded[u] * world for u in which if 0 <= u < n)

    for rank in range(world):
        check_events(seen, rank, script, passes, counts)
        letter, option, told = "", iter(passes), 0
        for (kind, u), held in zip(events_of(seen, rank), seen[f"bytes.{rank}"]):
            if kind in "FSWVLd":
                letter = kind
                told = 0
                if kind == "F":
                    prefetch, keep = next(option)
            if letter == "W" and kind == "e":
                most = 8 * total if rank == 0 else 0
                what = "after whole()"
            elif letter == "W":
                most = 8 * total + 2 * max(whole(v) for v in range(n)) if rank == 0 else whole(u)
                what = f"in whole(), unit {u}"
            elif kind == "f":
                most = whole(*(range(min(n, u + 1 + prefetch)) if keep else range(u, min(n, u + 1 + prefetch))))
                what = f"in forward of unit {u}, with {'every unit so far' if keep else 'this unit'}{' and the next one' if prefetch else ''} gathered,"
            elif kind == "b":
                most = whole(*(range(u + 1) if keep else range(max(0, u - prefetch), u + 1))) + 4 * padded[u] * world
                what = f"in backward of unit {u}, with its gradient,"
            elif kind == "r":
                most = whole(*(range(u) if keep else range(max(0, u - prefetch), u))) + 4 * padded[u] * (world + 1)
                what = f"in the reduction of unit {u}, which is released,"
            elif kind in "cFSVLd":
                most, what = 0, "between calls"
            else:
                continue
            expect.at_most(f"rank {rank} of {world} {what} holds, units of {counts}", held, shards_only + most + slack, "bytes", seen)
    return seen


@lab_test
def memory(lab):
    """All tasks: between calls only shards; at most two whole units, and one unit's gradient."""
    units = [[60000], [90000, 10], [70001]]
    for world in (2, 4):
        check_memory(lab, world, units, [(True, False), (True, False)])
        check_memory(lab, world, units, [(False, False)])
    check_memory(lab, 3, units, [(True, True), (False, True)], script="FSFSW")


# --- states ---------------------------------------------------------------------------------------

@lab_test
def whole(lab):
    """Task 8: the whole state, tensor by tensor, on rank 0."""
    for world, units in ((3, [[4, 3], [2]]), (2, [[1], [2, 2], [3]])):
        run = Training(lab.random, world, units)
        run.whole()
        run.train()
        run.step()
        run.whole()
        run.check(lab)


@lab_test
def saved(lab):
    """Tasks 9 and 10: saved by three ranks, loaded by two, then by five: the training continues bit for bit."""
    units = [[4, 3], [2], [5, 1]]
    first = Training(lab.random, 3, units)
    first.train()
    first.step()
    first.save()
    first.check(lab)
    shards_now = [(r, 3, *first.shard(r)) for r in range(3)]
    for world in (3, 2, 5):
        other = Training(lab.random, world, units)
        lab.random.shuffle(shards_now)
        other.train()
        other.load(shards_now)
        other.step()                # refused: the gradients of train() are gone
        other.save()
        other.train()
        other.step()
        other.save()
        other.check(lab)
        shards_now = [(r, world, *other.shard(r)) for r in range(world)]


# --- pipelines ------------------------------------------------------------------------------------

def name_of(task):
    return f"{'F' if task > 0 else 'B'}{abs(task) - 1}"


class Pipeline:
    """The checker and the simulator. stages: for each stage its tasks, micro + 1 or -(micro + 1)."""

    def __init__(self, stages, micros, what, seen=None):
        self.stages, self.micros, self.what, self.seen = stages, micros, what, seen
        every = sorted([i + 1 for i in range(micros)] + [-i - 1 for i in range(micros)])
        for s, tasks in enumerate(stages):
            if sorted(tasks) != every:
                twice = [name_of(t) for t in sorted(set(tasks), key=abs) if tasks.count(t) > 1]
                missing = [name_of(t) for t in every if t not in tasks]
                strange = [name_of(t) for t in tasks if t not in every]
                self.wrong(f"stage {s} does {' '.join(map(name_of, tasks[:12]))}...: missing {' '.join(missing[:4]) or 'none'}, "
                           f"twice {' '.join(twice[:4]) or 'none'}, unknown {' '.join(strange[:4]) or 'none'}")
        self.time(1, 1)  # proves that no stage waits forever

    def wrong(self, message):
        raise Wrong(f"{self.what}: {message}" + (f" ({self.seen['kit.case']})" if self.seen else ""))

    def time(self, forward, backward):
        """Returns when the last stage ends, if messages need no time."""
        last, at, free, done = len(self.stages) - 1, [0] * len(self.stages), [0] * len(self.stages), {}

        def waits_for(s):
            """Returns the tasks, with their stages, before which the next task of stage s cannot begin."""
            task = self.stages[s][at[s]]
            if task > 0:
                return [(s - 1, task)] if s > 0 else []
            return [(s, -task)] + ([(s + 1, task)] if s < last else [])

        moved = True
        while moved:
            moved = False
            for s, tasks in enumerate(self.stages):
                while at[s] < len(tasks):
                    needs = waits_for(s)
                    if not all(need in done for need in needs):
                        break
                    task = tasks[at[s]]
                    begin = max([free[s]] + [done[need] for need in needs])
                    free[s] = done[s, task] = begin + (forward if task > 0 else backward)
                    at[s], moved = at[s] + 1, True
        stuck = [f"stage {s} waits for {name_of(need[1])} of stage {need[0]}" for s, tasks in enumerate(self.stages)
                 if at[s] < len(tasks) for need in waits_for(s) if need not in done]
        if stuck:
            self.wrong("no stage can continue: " + ", ".join(stuck))
        return max(free, default=0)

    def in_flight(self, s):
        """Returns how many microbatches are in flight on a stage at most."""
        now = most = 0
        for task in self.stages[s]:
            now += 1 if task > 0 else -1
            most = max(most, now)
        return most

    def expect_shortest(self, limit, times=((1, 1), (1, 2), (3, 1))):
        for forward, backward in times:
            took, ideal = self.time(forward, backward), limit(forward, backward)
            if took > ideal:
                self.wrong(f"takes {took}, at most {ideal} allowed (forward {forward}, backward {backward})")


def gpipe_of(p, m):
    return [[i + 1 for i in range(m)] + [-i - 1 for i in range(m)]] * p


def read(words):
    """Returns the tasks of a stage, written like F0 F1 B0 B1."""
    return [(1 if word[0] == "F" else -1) * (int(word[1:]) + 1) for word in words.split()]


def stages_of(numbers):
    out, tasks = [], []
    for number in numbers:
        if number == 0:
            out.append(tasks)
            tasks = []
        else:
            tasks.append(number)
    return out


def pipelines(lab, which, cases):
    """Yields (p, m, most, Pipeline) for each case, whose schedules are complete and never wait forever."""
    seen = lab.run("schedules", which=which, cases=[x for case in cases for x in case])
    stages = stages_of(seen["tasks"])
    for p, m, most in cases:
        what = f"{which} of {p} stages, {m} microbatches" + (f", at most {most} in flight" if which == "within" else "")
        yield p, m, most, Pipeline(stages[:p], m, what, seen)
        stages = stages[p:]


def check_gpipe(lab, cases):
    for p, m, _, line in pipelines(lab, "gpipe", [(p, m, 0) for p, m in cases]):
        for s, tasks in enumerate(line.stages):
            if any(task > 0 for task in tasks[m:]):
                line.wrong(f"stage {s} has forwards after backwards: {' '.join(map(name_of, tasks))}")
        line.expect_shortest(lambda f, b: (m + p - 1) * (f + b) if m else 0)


def check_one_f_one_b(lab, cases):
    for p, m, _, line in pipelines(lab, "one_f_one_b", [(p, m, 0) for p, m in cases]):
        for s in range(p):
            got, most = line.in_flight(s), min(m, p - s)
            if got > most:
                line.wrong(f"stage {s} has {got} microbatches in flight, at most {most} allowed: "
                           f"{' '.join(map(name_of, line.stages[s][:12]))}...")
        line.expect_shortest(lambda f, b: (m + p - 1) * (f + b) if m else 0)


def check_within(lab, ours):
    """ours: {(stages, microbatches, most): (steps with backwards of one step, steps with backwards of two)}"""
    for p, m, most, line in pipelines(lab, "within", list(ours)):
        for s in range(p):
            got = line.in_flight(s)
            if got > most:
                line.wrong(f"stage {s} has {got} microbatches in flight: {' '.join(map(name_of, line.stages[s][:12]))}...")
        line.expect_shortest(lambda f, b: ours[p, m, most][b - 1], times=((1, 1), (1, 2)))


@lab_test
def gpipe(lab):
    """Task 11: complete, in an order in which no stage waits forever, as short as it can be."""
    check_gpipe(lab, [(1, 1), (1, 3), (3, 4), (4, 2), (4, 8)])


@lab_test
def one_f_one_b(lab):
    """Task 12: as short as GPipe, with at most p - s microbatches in flight on stage s."""
    check_one_f_one_b(lab, [(1, 1), (1, 3), (2, 2), (3, 4), (4, 2), (4, 8), (4, 4)])


@lab_test
def bubbles(lab):
    """Tasks 13 and 14: the idle share; and how many microbatches make it small enough."""
    check_bubbles(lab, [(1, 1), (1, 7), (4, 4), (4, 8), (8, 1)], [(4, 0.25), (1, 0.5), (8, 0.1), (4, 0.9), (2, 0.5)])


def share_of(p, m):
    return (p - 1) / (m + p - 1)


def least(p, share):
    low, high = 1, 1
    while share_of(p, high) > share:
        high *= 2
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if share_of(p, middle) <= share else (middle + 1, high)
    return low


def check_bubbles(lab, cases, shares):
    seen = lab.run("bubbles", cases=[x for case in cases for x in case])
    for (p, m), got in zip(cases, seen["shares"]):
        expect.near(f"bubble of {p} stages and {m} microbatches", got, share_of(p, m), seen, tolerance=1e-14)
    seen = lab.run("micros", stages=[p for p, _ in shares], shares=array.array("d", [x for _, x in shares]))
    for (p, share), got in zip(shares, seen["micros"]):
        expect.equal(f"microbatches for a bubble of {share!r} with {p} stages", got, least(p, share), seen)


@lab_test
def within(lab):
    """Task 15: a limit on the microbatches in flight on every stage."""
    check_within(lab, {(4, 8, 2): (46, 69), (4, 8, 3): (32, 48), (4, 8, 8): (22, 33), (3, 4, 1): (24, 36), (2, 5, 2): (12, 18),
                       (1, 3, 1): (6, 9)})


def runs_pipeline(lab, stages, micros, width, **how):
    p = len(stages)
    seen = lab.run("pipeline", world=p, tasks=[x for tasks in stages for x in [*tasks, 0]], width=width, **how)
    for s, tasks in enumerate(stages):
        want = ""
        for task in tasks:
            i = abs(task) - 1
            own = sum(r + 1 for r in range(s)) if task > 0 else sum(r + 1 for r in range(s + 1, p)) / 64
            first = s == (0 if task > 0 else p - 1)
            got = [] if first else [1000 * i + 100 * k + own for k in range(width)]
            want += f"{name_of(task)}{''.join(':' + str(round(64 * x)) for x in got)} "
        expect.equal(f"what stage {s} of {p} did, and with which numbers (in 64ths),", seen[f"deeds.{s}"], want, seen)
        ways = (s < p - 1) + (s > 0)
        expect.equal(f"messages of stage {s}", seen["messages"][s], ways * micros, seen)
        expect.at_most(f"stage {s} sends", seen["sent_bytes"][s], 4 * width * ways * micros, "bytes", seen)


@lab_test
def stages(lab):
    """Task 16: three stages run GPipe and 1F1B on a network that buffers nothing."""
    runs_pipeline(lab, gpipe_of(3, 4), 4, 2)
    runs_pipeline(lab, [read("F0 F1 F2 B0 F3 B1 B2 B3"), read("F0 F1 B0 F2 B1 F3 B2 B3"), read("F0 B0 F1 B1 F2 B2 F3 B3")], 4, 2)
    runs_pipeline(lab, [read("F0 F1 B0 F2 B1 B2"), read("F0 B0 F1 B1 F2 B2")], 3, 1)
    runs_pipeline(lab, [read("F0 B0 F1 B1")], 2, 3)
