"""How much of the communication is hidden behind computation, from the clock of labs/kit/cluster/cluster.hpp.

    computation   |===========================|
    all-reduces        |====|    |====|      |====|
                                              ^^^^  exposed: the step goes on because of it

hidden = 1 - exposed / communication. Everything after the computation: 0. Nothing seen of it: 1. Not a measure: the sum
of all-reduce times against the time of backward; both can be equal in a run that hides nothing.
"""


def communication(seen):
    """Seconds in which an all-reduce was under way. The network has one at a time, so they add up."""
    return sum(end - begin for kind, begin, end in zip(seen["kinds"], seen["begins"], seen["ends"]) if kind == 1)


def exposed(seen):
    """Seconds by which the slowest rank's step is longer than its computation."""
    return max(finish - computed for finish, computed in zip(seen["finish"], seen["computed"]))


def hidden(seen):
    return 1 - exposed(seen) / communication(seen)


def best(world, alpha, beta, ready, elements):
    """When the last all-reduce ends at the earliest: bucket k is complete at ready[k], they go one after the other."""
    end = 0.0
    for at, count in zip(ready, elements):
        end = max(end, at) + 2 * (world - 1) * (alpha + beta * 4 * count / world)
    return end
