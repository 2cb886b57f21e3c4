#!/usr/bin/env bash
# run.sh CASE [BUILD_DIR]: runs a short training on 2 ranks in an unusual environment. Its model must equal the
# model of the same training in the usual environment, byte for byte.
#
#   one-core      both ranks on one core
#   load          next to eight busy programs
#   ranks-64      64 ranks, each with 1,024 open files at most: an all-reduce
#   docker-shm    /dev/shm of 64 MB, as in Docker; mpirun, which uses it, and ringrun, which does
#                 not
#   no-shm        no user may write to /dev/shm
#   no-ptrace     no process may access another: ptrace, process_vm_readv and pidfd_getfd are
#                 refused
#   no-ipv6       only IPv4 (a network namespace)
#   only-ipv6     no IPv4; ranks that share memory, and ranks that use TCP
#   host-name     a host name that does not resolve
#   other-user    a user without a home, a name or a group
#   spaces        programs, folders and files with spaces in their names
#   no-home       HOME, USER, TMPDIR, LANG and TERM are unset
#   locale        LANG=de_DE.UTF-8, which writes 0,5
#   memory        a memory cgroup of 512 MiB
#   build-paths   make BUILD= with spaces, missing parents, or in a folder without write permission;
#                 read-only sources
#
# Exit status 77: not run, with a line that gives the reason. Cases that need root say so.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
what=${1:?a case; see the head of this file}
build=$(realpath "${2:-$here/../../build/release}")
work=$(mktemp -d)
cleanup=(:)
trap 'for act in "${cleanup[@]}"; do $act || true; done; rm -rf "$work"' EXIT

not_run() { echo "surroundings: NOT RUN: $1" >&2; exit 77; }
die() { echo "surroundings: $what: $*" >&2; exit 1; }
as_root() { [ "$(id -u)" = 0 ] || not_run "only root can make these surroundings"; }
namespaces() {
  as_root
  unshare "$@" true 2> /dev/null || not_run "no right to make namespaces here (a container?)"
}

# train RUN_DIR [BIN [COMMAND...]]: runs the training. BIN: the programs' folder, by default the
# build's. COMMAND: starts ringrun.
options=(--hidden 16 --draw 200 --steps 6 --batch 8 --no-trace --progress off --timeout 60)
train() {
  local out=$1 bin=${2:-$build/bin}
  shift $(($# < 2 ? 1 : 2))
  "$@" timeout 100 "$bin/ringrun" --standalone --nproc-per-node 2 -- "$bin/train_mlp" "${options[@]}" --run-dir "$out" \
    > "$work/log" 2>&1 || { cat "$work/log" >&2; die "the training failed"; }
}
same() { cmp "$work/plain/model.safetensors" "$1/model.safetensors" || die "another model than without these surroundings"; }
train_here() { train "$work/here" "$build/bin" "$@"; same "$work/here"; }
plain() { train "$work/plain"; }

case $what in
  one-core) plain; train_here taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')" ;;
  load)
    plain
    busy=()
    for _ in 1 2 3 4 5 6 7 8; do (while :; do :; done) & busy+=($!); done
    cleanup+=("kill ${busy[*]}")
    train_here
    ;;
  ranks-64)
    (ulimit -n 1024; timeout 100 "$build/bin/ringrun" --standalone --nproc-per-node 64 -- "$build/bin/all_reduce_perf" \
      -b 1K -e 1K -n 1 --timeout 60 > "$work/log" 2>&1) || { cat "$work/log" >&2; die "64 ranks failed"; }
    ;;
  docker-shm)
    namespaces --mount
    plain
    in_docker() { unshare --mount --propagation private sh -c 'mount -t tmpfs -o size=64m shm /dev/shm && exec "$@"' sh "$@"; }
    train_here in_docker
    in_docker env RINGSMITH_DEADLINE=100 "$here/../support/mpirun.sh" 2 "$build/bin/train_mlp" "${options[@]}" \
      --run-dir "$work/mpi" > "$work/log" 2>&1 || { cat "$work/log" >&2; die "mpirun failed"; }
    same "$work/mpi"
    ;;
  no-shm)
    namespaces --mount
    plain
    train_here unshare --mount --propagation private sh -c 'mount -t tmpfs -o ro none /dev/shm && exec "$@"' sh
    ;;
  no-ptrace) plain; train_here python3 "$here/without_ptrace.py" ;;
  no-ipv6)
    namespaces --net
    plain
    train_here unshare --net sh -c 'ip link set lo up && ip -6 addr flush dev lo && exec "$@"' sh
    ;;
  only-ipv6)
    namespaces --net
    plain
    six() { unshare --net sh -c 'ip link set lo up && ip addr del 127.0.0.1/8 dev lo && exec "$@"' sh "$@"; }
    six ip -6 addr show dev lo | grep -q inet6 || not_run "no IPv6 here"
    train_here six
    options+=(--transport tcp)
    train "$work/tcp" "$build/bin" six
    same "$work/tcp"
    ;;
  host-name)
    namespaces --uts
    plain
    train_here unshare --uts sh -c 'hostname nobody-knows-this-host && exec "$@"' sh
    ;;
  other-user)
    as_root
    setpriv --reuid 54321 --regid 54321 --clear-groups test -x "$build/bin/train_mlp" 2> /dev/null ||
      not_run "other users cannot reach the programs: a folder above the build is closed to them"
    plain
    mkdir -m 777 "$work/open"
    chmod 755 "$work"
    train "$work/open/here" "$build/bin" env -i PATH="$PATH" setpriv --reuid 54321 --regid 54321 --clear-groups
    same "$work/open/here"
    ;;
  spaces)
    plain
    mkdir -p "$work/my programs" "$work/my runs"
    cp "$build/bin/ringrun" "$build/bin/train_mlp" "$work/my programs/"
    train "$work/my runs/the first" "$work/my programs"
    same "$work/my runs/the first"
    ;;
  no-home) plain; train_here env -u HOME -u USER -u LOGNAME -u TMPDIR -u LANG -u TERM ;;
  locale)
    plain
    # Compiles the locale, because few systems have it. Without the locale's sources the variables must do no harm.
    localedef -i de_DE -f UTF-8 "$work/de_DE.UTF-8" > /dev/null 2>&1 || echo "surroundings: no sources of de_DE here: the variables alone"
    train_here env LOCPATH="$work" LANG=de_DE.UTF-8 LC_ALL=de_DE.UTF-8
    python3 -c 'import json, sys; [json.loads(line) for line in open(sys.argv[1])]' "$work/here/metrics.jsonl"
    ;;
  memory)
    as_root
    group=/sys/fs/cgroup/memory/ringsmith-$$ limit=memory.limit_in_bytes
    [ -d /sys/fs/cgroup/memory ] || { group=/sys/fs/cgroup/ringsmith-$$; limit=memory.max; }
    mkdir "$group" 2> /dev/null && cleanup+=("rmdir $group") && [ -w "$group/$limit" ] ||
      not_run "no memory cgroup can be made here"
    echo 536870912 > "$group/$limit"
    plain
    train_here sh -c 'echo $$ > "$0/cgroup.procs" && exec "$@"' "$group"
    ;;
  build-paths)
    command -v cmake > /dev/null && command -v ninja > /dev/null || not_run "no cmake or ninja"
    top=$(cd "$here/../.." && pwd)
    unset MAKEFLAGS MAKEOVERRIDES MAKELEVEL  # set by the make that runs this test
    make -C "$top" configure BUILD="$work/b c/d" > "$work/log" 2>&1 || { cat "$work/log" >&2; die "BUILD with a space"; }
    [ -f "$work/b c/d/release/build.ninja" ] || die "make configured elsewhere"
    echo file > "$work/file"
    ! make -C "$top" configure BUILD="$work/file" > "$work/log" 2>&1 || die "a file was taken for a folder"
    grep -qF "make: cannot write to '$work/file': make BUILD=/a/folder/of/yours configure" "$work/log" ||
      { cat "$work/log" >&2; die "no remedy"; }
    namespaces --mount
    read_only() { unshare --mount --propagation private sh -c 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && cd "$0" && exec "$@"' "$top" "$@"; }
    read_only true 2> /dev/null || not_run "the sources cannot be mounted read-only here"
    read_only make configure BUILD="$work/elsewhere" > "$work/log" 2>&1 || { cat "$work/log" >&2; die "read-only sources, BUILD elsewhere"; }
    ;;
  *) die "no such case" ;;
esac
echo "surroundings: $what: passed"
