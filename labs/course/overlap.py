"""How much of the communication is hidden behind computation, by the clock of labs/kit/cluster/cluster.hpp.

    computation   |===========================|
    all-reduces        |====|    |====|      |====|
                                              ^^^^  exposed: the step takes longer because of it

hidden = 1 - exposed / communication: 0 if all communication follows the computation, 1 if none of it
is exposed. The sum of all-reduce times divided by the time of backward is not a useful measure: the two can be equal in
a run that hides nothing.
"""


def communication(seen):
    """The seconds during which an all-reduce was in flight. The network runs one all-reduce
    at a time, so the durations add up."""
    return sum(end - begin for kind, begin, end in zip(seen["kinds"], seen["begins"], seen["ends"]) if kind == 1)


def exposed(seen):
    """The largest number of seconds, over all ranks, by which a step is longer than its
    computation."""
    return max(finish - computed for finish, computed in zip(seen["finish"], seen["computed"]))


def hidden(seen):
    return 1 - exposed(seen) / communication(seen)


def best(world, alpha, beta, ready, elements):
    """The earliest end of the last all-reduce. Bucket k is complete at ready[k], and the
    all-reduces run one after the other."""
    end = 0.0
    for at, count in zip(ready, elements):
        end = max(end, at) + 2 * (world - 1) * (alpha + beta * 4 * count / world)
    return end
