#!/usr/bin/env python3
"""places.py OUT: draws a job of two nodes with two ranks each, from what its ranks print when they really meet."""
import re
import subprocess
import sys

from svg import Picture

JOB = """ringrun --make-secret job.secret
for node in 0 1; do
  ringrun --nnodes 2 --node-rank $node --master-port 0 --port-file port --secret-file job.secret --nproc-per-node 2 \
    -- lesson00_who &
done
wait"""


def main():
    out = subprocess.run(["bash", "-c", JOB], capture_output=True, text=True, timeout=30).stdout
    found = sorted(map(tuple, ([int(n) for n in re.findall(r"\d+", line)[1:]] for line in out.splitlines())))
    if len(found) != 4:
        sys.exit(f"places.py: four ranks were to say who they are, and this came: {out}")
    picture = Picture(660, 330, "Two nodes with two ranks each, and the store at which they meet")
    picture.text(20, 30, f"one job, {found[0][1]} ranks on 2 nodes", "title", "start")
    for rank, world, local, following in found:
        node = rank // 2
        left = 30 + 310 * node
        if local == 0:
            picture.box(left, 50, 290, 190)
            picture.text(left + 12, 74, f"node {node}: a launcher (ringrun)", "strong", "start")
        x = left + 15 + 135 * local
        words = f"rank {rank} of {world}\nlocal rank {local}\nnext: rank {following}"
        picture.box(x, 90, 125, 80, words, f"tone{rank}")
        door = 165 if node == 0 else 330
        picture.line([(x + 62, 170), (x + 62, 205), (door, 205), (door, 262)], "line dash")
    picture.box(60, 264, 400, 44, "the store: rank r writes its record, all read the list", "box")
    picture.text(475, 292, "in the launcher of node 0", "quiet", "start")
    picture.save(sys.argv[1])


if __name__ == "__main__":
    main()
