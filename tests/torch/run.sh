#!/usr/bin/env bash
# run.sh [short]: tests PyTorch's backend (labs/torch). Exit status 77: not run, with a line that
# gives the reason.
#
#   short   run by ctest: each collective on a few sizes, a training run of each model, a kill, a
#           mismatch, a timeout
#   (all)   `make test-torch`: 1 to 4 ranks, all sizes and layouts, all features, gloo's programs,
#           20 kills, PyTorch's own tests; then an MLP's speed beside gloo's
#
# RINGSMITH_TORCH_BUILD: the folder of the built backend; RINGSMITH_RINGRUN: the program ringrun, if it
# is not build/release/bin/ringrun. RINGSMITH_TEST_KILLS: number of kills.
#
# Each program aborts ranks that hang, and prints their stacks. If the program itself hangs, its
# deadline here ends it, and Python prints where it was. All programs run, also after a failure.
set -u
cd "$(dirname "$0")" || exit
python=/usr/bin/python3
export PYTHONDONTWRITEBYTECODE=1 PYTHONFAULTHANDLER=1
failed=

# tests MINUTES PROGRAM...
tests() {
  local minutes=$1 status=0 begin=$SECONDS
  shift
  echo "torch: $*"
  timeout --signal=ABRT --kill-after=30 "${minutes}m" "$python" "$@" || status=$?
  [ $status != 77 ] || exit 77
  if [ $status = 124 ] || [ $status = 134 ] || [ $status = 137 ]; then
    echo "torch: $* was aborted after $minutes minutes: it hung" >&2
  fi
  [ $status = 0 ] || failed+=" $1"
  echo "torch: $1: $((SECONDS - begin)) s, exit status $status"
}

if [ "${1:-}" = short ]; then
  tests 10 collectives.py --worlds 2 --short
  tests 10 training.py --worlds 2 --short
  tests 10 faults.py --short
else
  tests 5 functions.py
  tests 10 hangs.py
  tests 40 collectives.py
  tests 40 training.py
  tests 40 programs.py
  tests 20 launch.py ${RINGSMITH_RINGRUN:+--ringrun "$RINGSMITH_RINGRUN"}
  tests 60 features.py
  tests 30 faults.py --kills "${RINGSMITH_TEST_KILLS:-20}"
  tests 60 suite.py --world 3
  tests 30 ../bench/torch_ddp.py
fi
[ -z "$failed" ] || { echo "torch: failed:$failed" >&2; exit 1; }
