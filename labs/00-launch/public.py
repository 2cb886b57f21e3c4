"""Public tests of lab 00, which a student runs at every save."""
from labs.course.testing import expect, lab_test


def placing(counts, names="dbfaceg"):
    """Returns the nodes of the ranks, and the request for them: counts[k] processes on node k;
    names are not sorted."""
    hosts = [name for name, count in zip(names, counts) for _ in range(count)]
    return hosts, {"nodes": " ".join(sorted(set(names[:len(counts)]))), "where": " ".join(names[:len(counts)]),
                   "counts": list(counts)}


def places_of(hosts):
    """Returns rank, world, local rank, local world, node and nodes of each rank, concatenated."""
    order = list(dict.fromkeys(hosts))
    return [number for rank, host in enumerate(hosts)
            for number in (rank, len(hosts), hosts[:rank].count(host), hosts.count(host), order.index(host),
                           len(order))]


def clean(seen):
    """Checks that the job has left nothing behind."""
    running, zombies = seen["running"], seen["zombies"]
    expect.that(running + zombies == 0, f"when launch returned, it had not waited for {running + zombies} of its "
                f"processes: {running} still ran, {zombies} were zombies", seen)
    expect.that(not seen["files"], f"launch left files of the job in the folder: {seen['files']}", seen)
    expect.equal("the number of another job's files that launch removed", seen["lost"], 0, seen)


def started(seen, hosts):
    """Checks that each rank was started once, on its node, and was told the same job and world."""
    expect.equal("the number of processes that were started", seen["processes"], len(hosts), seen)
    names = {seen[f"job.{i}"] for i in range(len(hosts))}
    expect.that(len(names) <= 1, f"the processes of one job were told several names: {sorted(names)}", seen)
    expect.equal("the ranks that were started", sorted(seen[f"rank.{i}"] for i in range(len(hosts))),
                 list(range(len(hosts))), seen)
    for i in range(len(hosts)):
        rank = seen[f"rank.{i}"]
        expect.equal(f"the node of rank {rank}", seen[f"node.{i}"], hosts[rank], seen)
        expect.equal(f"the world that rank {rank} was told", seen[f"world.{i}"], len(hosts), seen)


@lab_test
def names(lab):
    """Task 1: every claim gives a unique name, also when several launchers claim simultaneously."""
    for launchers, each, hesitate in ((1, 120, 0), (4, 1, 100)):  # numbers of one to three digits
        seen = lab.run("names", launchers=launchers, names=each, hesitate=hesitate)
        found = [name for i in range(launchers) for name in seen[f"names.{i}"].splitlines()]
        expect.equal("the number of names", len(found), launchers * each, seen)
        for i, name in enumerate(found):
            expect.that(name, "a job's name is empty", seen)
            for j, other in enumerate(found):
                expect.that(i == j or name != other, f"two jobs have the same name, {name}", seen)
                expect.that(i == j or not other.startswith(name), f"the files of job {other} would be those of job "
                            f"{name} as well: its name begins with that", seen)


@lab_test
def starts(lab):
    """Task 2: each rank is started once, on its node, also when nodes have different numbers of slots."""
    for counts, names in (([1], "a"), ([3], "b"), ([2, 3], "ba"), ([1, 0, 4], "cab"), ([0, 2], "ab"), ([2, 1, 2], "bab"),
                          ([0], "a"), ([], "")):
        hosts, where = placing(counts, names)
        seen = lab.run("launch", foreign="aaa zzz.claim 0", **where)
        expect.equal("files in the folder that are not the job's, after launch", seen["foreign"].split(),
                     sorted(["aaa", "zzz.claim", "0"]), seen)
        started(seen, hosts)
        clean(seen)
        expect.equal("the rank that failed (-1: none)", seen["failed"], -1, seen)
        expect.equal("the code of the outcome", seen["outcome"], 0, seen)


@lab_test
def first_failure(lab):
    """Task 2: the first process that fails ends the job immediately, whatever its rank; a signal is
    a failure."""
    long = 60_000
    for failing, how, code in ((2, {"codes": [0, 0, 7, 0]}, 7), (0, {"codes": [5, 0, 0, 0]}, 5),
                               (1, {"signals": [0, 9, 0, 0]}, 137), (3, {"signals": [0, 0, 0, 15]}, 143)):
        after = [long] * 4
        after[failing] = 50
        hosts, where = placing([2, 2])
        seen = lab.run("launch", after=after, deadline=4, **how, **where)
        started(seen, hosts)
        expect.equal("the rank that failed first", seen["failed"], failing, seen)
        expect.equal("the code of the outcome", seen["outcome"], code, seen)
        clean(seen)
    hosts, where = placing([2, 2])
    seen = lab.run("launch", after=[0, 200, 60, long], codes=[0, 9, 0, 0], deadline=4, **where)  # ranks 0 and 2 succeed first
    expect.equal("the rank that failed first", seen["failed"], 1, seen)
    expect.equal("the code of the outcome", seen["outcome"], 9, seen)
    clean(seen)
    seen = lab.run("launch", after=[500, long, long, 50], codes=[5, 0, 0, 255], deadline=4, **where)
    expect.equal("the rank that failed first", seen["failed"], 3, seen)
    expect.equal("the code of the outcome", seen["outcome"], 255, seen)
    seen = lab.run("launch", after=[0, 300, 0, 100], **where)
    expect.equal("the rank that failed (-1: none)", seen["failed"], -1, seen)
    expect.that(seen["seconds"] >= 0.3, f"launch returned after {seen['seconds']:.2f} s; rank 1 runs for 0.3 s", seen)
    clean(seen)


@lab_test
def nothing_left(lab):
    """Task 2: no process, no zombie and no file is left after a failure, or when a node does not
    exist."""
    hosts, where = placing([3])
    seen = lab.run("launch", after=[60_000, 60_000, 0], codes=[0, 0, 1], deadline=4, **where)
    clean(seen)
    where = {"nodes": "a b", "where": "a b gone", "counts": [2, 1, 1]}
    seen = lab.run("launch", after=[60_000] * 4, deadline=4, **where)
    expect.that("gone" in seen["error"], "start threw because there is no node named gone; launch must pass the "
                f"exception to its caller, which saw {seen['error'] or 'nothing'!r}", seen)
    clean(seen)


def met(seen, ranks):
    """Checks that these processes got the cards of all, in rank order. ranks: {index: rank}."""
    for i, rank in ranks.items():
        error = seen.get(f"error.{i}")
        expect.that(not error, f"rank {rank}'s meeting threw: {error}", seen)
    for i, rank in ranks.items():
        expect.that(f"card.{i}" in seen, f"rank {rank} was ended before it had met the others", seen)
    cards = {rank: seen[f"card.{i}"] for i, rank in ranks.items()}
    for i, rank in ranks.items():
        got = seen[f"cards.{i}"].splitlines()
        expect.equal(f"the number of cards that rank {rank} got", len(got), len(ranks), seen)
        for other, card in enumerate(got):
            expect.that(card == cards[other], f"rank {rank} met a stranger in place of rank {other}: its card is "
                        f"{card!r}, and rank {other} gave {cards[other]!r}", seen)


@lab_test
def meets(lab):
    """Task 3: every rank gets the cards of all, in rank order, whatever the order of arrival."""
    for world in (1, 2, 3, 5):
        ranks = list(range(world))
        lab.random.shuffle(ranks)
        late = [lab.random.randrange(0, 60) for _ in ranks]
        seen = lab.run("meet", world=world, ranks=ranks, late=late, patience=15_000)
        met(seen, dict(enumerate(ranks)))


@lab_test
def never_comes(lab):
    """Task 3: missing ranks are named by every rank that waits, no later than promised."""
    for world, present in ((4, [1, 3]), (7, [3, 5])):
        seen = lab.run("meet", world=world, ranks=present, late=[0] * len(present), patience=1500)
        for i, rank in enumerate(present):
            error, seconds = seen[f"error.{i}"], seen[f"seconds.{i}"]
            expect.that(error, f"rank {rank} met {world} ranks, and only {len(present)} were there", seen)
            for other in range(world):
                named = f"rank {other} never came" in error
                expect.that(named or other in present,
                            f"rank {rank}'s error does not say 'rank {other} never came': {error!r}", seen)
                expect.that(not named or other not in present, f"rank {rank}'s error says that rank {other} never "
                            f"came, but it did: {error!r}", seen)
            expect.that(seconds < 2.5, f"rank {rank} was to wait for 1.5 s, but its error was thrown after {seconds:.1f} s",
                        seen)


@lab_test
def rank_0_late(lab):
    """Task 3: rank 0 arrives last. It is a rank like any other, and the others have patience."""
    for late in ([500, 0, 0], [400, 0, 300, 0]):
        world = len(late)
        seen = lab.run("meet", world=world, ranks=list(range(world)), late=late, patience=15_000)
        met(seen, dict(enumerate(range(world))))


@lab_test
def places(lab):
    """Task 4: places on nodes that are uneven or mixed, and whose names are not sorted."""
    for hosts in ("a", "a a a", "a a b b", "a a b b b c", "b a b b a", "node10 node1 node1 node10 node1",
                  "z y x", "a b a b a b", "gpu-2 gpu-2 gpu-1 gpu-2"):
        seen = lab.run("place", hosts=hosts)
        names = ("rank", "world", "local rank", "local world", "node", "nodes")
        for at, (got, want) in enumerate(zip(seen["places"], places_of(hosts.split()), strict=True)):
            expect.equal(f"{names[at % 6]} of rank {at // 6}", got, want, seen)


def whole(lab, counts, jobs=1, **how):
    """Runs whole jobs, from launch to places. All must succeed, and meet only their own ranks."""
    hosts, where = placing(counts)
    seen = lab.run("jobs", jobs=jobs, **{"patience": 15_000, **where, **how})
    first = seen["processes"] - jobs  # skips an earlier launcher, which was killed
    for job in range(first, seen["processes"]):
        one = {key.removesuffix(f".{job}"): value for key, value in seen.items() if key.endswith(f".{job}")}
        one["kit.case"] = seen["kit.case"]
        started(one, hosts)
        met(one, {i: one[f"rank.{i}"] for i in range(len(hosts))})
        for i in range(len(hosts)):
            rank = one[f"rank.{i}"]
            expect.that(f"place.{i}" in one, f"rank {rank} has no place", seen)
            expect.equal(f"the place of rank {rank}", list(one[f"place.{i}"]), places_of(hosts)[6 * rank:][:6], seen)
        expect.equal("the rank that failed (-1: none)", one["failed"], -1, seen)
    names = [seen[f"job.0.{job}"] for job in range(first, seen["processes"])]
    expect.that(len(set(names)) == jobs, f"two jobs have the same name: {names}", seen)
    return seen


@lab_test
def two_jobs(lab):
    """Task 1: two simultaneous jobs in the same folder, which answers late, do not meet."""
    whole(lab, [2, 1], jobs=2, stagger=0, late=[100, 200, 100], stay=100, hesitate=150)


@lab_test
def next_job(lab):
    """Task 1: a job that starts while another one still runs in the same folder does not meet
    it."""
    whole(lab, [2, 1], jobs=2, stagger=150, late=[100, 200, 100], stay=450, hesitate=0)
