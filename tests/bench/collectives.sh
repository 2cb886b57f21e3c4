#!/usr/bin/env bash
# collectives.sh BUILD_DIR [--quick | options of collectives.py]: builds the peers' all-reduce
# programs and runs the comparison. Gloo is built if its headers exist (Debian, Ubuntu:
# libgloo-dev).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
dir=$1
shift
mkdir -p "$dir/peers"
flags=(-std=c++17 -O3 -march=native -I"$root")

newer() { [ ! -e "$1" ] || [ "$2" -nt "$1" ] || [ "$here/peers/bench_common.hpp" -nt "$1" ]; }
if newer "$dir/peers/allreduce_mpi" "$here/peers/allreduce_mpi.cpp"; then
  mpic++ -DOMPI_SKIP_MPICXX "${flags[@]}" "$here/peers/allreduce_mpi.cpp" -o "$dir/peers/allreduce_mpi"
fi
if echo '#include <gloo/allreduce.h>' | ${CXX:-g++} -std=c++17 -E -x c++ - > /dev/null 2>&1; then
  if newer "$dir/peers/allreduce_gloo" "$here/peers/allreduce_gloo.cpp"; then
    ${CXX:-g++} "${flags[@]}" -w "$here/peers/allreduce_gloo.cpp" -o "$dir/peers/allreduce_gloo" -lgloo -lpthread
  fi
else
  rm -f "$dir/peers/allreduce_gloo"
  echo "# gloo is not installed (Debian, Ubuntu: apt-get install libgloo-dev): left out"
fi
exec python3 "$here/collectives.py" "$dir" "$@"
