#!/usr/bin/env bash
# run.sh [short]: tests PyTorch's backend (labs/torch). Exit status 77: not run, with a line that
# gives the reason.
#
#   short   run by ctest: each collective on a few sizes, a training run of each model, a kill, a
#           mismatch, a timeout
#   (all)   `make test-torch`: 1 to 4 ranks, all sizes and layouts, all features, gloo's programs,
#           20 kills, PyTorch's own tests
set -eu
cd "$(dirname "$0")"
python=/usr/bin/python3
export PYTHONDONTWRITEBYTECODE=1
if [ "${1:-}" = short ]; then
  "$python" collectives.py --worlds 2 --short || exit $?
  "$python" training.py --worlds 2 --short
  "$python" faults.py --short
else
  "$python" collectives.py || exit $?
  "$python" training.py
  "$python" programs.py
  "$python" features.py
  "$python" faults.py --kills "${RINGSMITH_TEST_KILLS:-20}"
  "$python" suite.py --world 3
fi
