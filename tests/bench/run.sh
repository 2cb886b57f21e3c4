#!/usr/bin/env bash
# run.sh [BUILD_DIR] [--quick]: compares ringsmith with its peers in alternating runs; prints medians and ratios.
#
# Collectives: Open MPI's all-reduce (default and segmented ring), and gloo where it is installed.
# TCP: gloo's ring over the loopback; and, as root, on slow links between network namespaces: the ring
# compared with a plain connection, the time that overlap saves, and hierarchical compared with the
# ring on two nodes.
# Start-up: from the command to its end, 2 to 64 ranks.
# Training: PyTorch's DistributedDataParallel, where it is installed.
# --quick: fewer sizes and rounds, a few minutes; without it, about half an hour.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=$here/../../build/release
quick=
for argument in "$@"; do
  case $argument in
    --quick) quick=--quick ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "run.sh: unknown option '$argument': there is --quick" >&2; exit 6 ;;
    *) dir=$argument ;;
  esac
done
[ -x "$dir/bin/all_reduce_perf" ] || { echo "run.sh: no programs in '$dir/bin': run make build first" >&2; exit 6; }
dir=$(cd "$dir" && pwd)

"$here/collectives.sh" "$dir" $quick
if [ -x "$dir/peers/allreduce_gloo" ]; then
  echo
  python3 "$here/tcp.py" "$dir" ${quick:+--rounds 2 --factor 16 --max 16777216}
fi
if [ "$(id -u)" = 0 ]; then
  echo
  python3 "$here/link.py" "$dir"
  echo
  python3 "$here/nodes.py" "$dir" ${quick:+--rounds 1}
  echo
  python3 "$here/overlap.py" "$dir" ${quick:+--rounds 1}
fi
echo
python3 "$here/startup.py" "$dir" ${quick:+--rounds 2}
if [ -x "$here/training.sh" ]; then
  echo
  "$here/training.sh" "$dir" ${quick:+2}
fi
