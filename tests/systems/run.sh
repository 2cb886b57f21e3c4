#!/usr/bin/env bash
# run.sh [--cache FOLDER] [--keep] [--fresh] [ROW...]: runs the commands of README on bare systems
# created for it: Debian minbase with make, git, ca-certificates and sudo, an ordinary user, a clone
# of this checkout's HEAD, and nothing else.
#
#   run.sh --list                the rows: all of them are run if none is named
#   run.sh --bare                the commands that Debian 12 and 13 have without any package of
#                                ours: bare.txt
#   build/systems/ROW.N.log      output of the row's command N; table.txt: the table
#   build/systems/cache          (--cache) SUITE.tar, the base system; SUITE.packages and
#                                SUITE.ccache: a repeat downloads no package and compiles only files
#                                that changed
#   --fresh                      compiles everything: only then are the table's seconds valid for a
#                                bare machine
#   --keep                       leaves the system in build/systems/ROW; otherwise it is removed
#
# Needs root, and debootstrap or mmdebstrap, but no container engine. The packages come from the
# mirror that this machine uses (RINGSMITH_MIRROR: another). JOBS: number of concurrent compilers.
# Each system has its own mounts and processes, which end with it, whatever happens. A command has
# two hours. Exit status 1 if a command failed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
work=$top/build/systems
export JOBS=${JOBS:-$(nproc)}
readonly LIMIT=7200  # seconds that a command may take
readonly USERNAME=reader
readonly CCACHE=home/$USERNAME/.cache/ccache
readonly UNIT='make build; make test ONLY=unit'
readonly TORCH='make torch; make test-torch'

# row | suite | compiler | packages | the system it represents | commands
ROWS="bookworm-g++     | bookworm | g++     |        | Debian 12                      | make train; make test
bookworm-clang   | bookworm | clang++ | clang  | Debian 12                      | make train; make test
trixie-g++       | trixie   | g++     |        | Debian 13                      | make train; make test
trixie-clang     | trixie   | clang++ | clang  | Debian 13                      | make train; make test
trixie-g++-13    | trixie   | g++-13  | g++-13 | Ubuntu 24.04's compiler, json  | $UNIT
sid-g++          | sid      | g++     |        | Debian's next release          | $UNIT
sid-clang        | sid      | clang++ | clang  | Debian's next release          | $UNIT
bookworm-torch   | bookworm | g++     |        | PyTorch 1.13, Python 3.11      | $TORCH
trixie-torch     | trixie   | g++     |        | PyTorch 2.6, Python 3.13       | $TORCH
sid-torch        | sid      | g++     |        | the newest PyTorch             | $TORCH"

stop() { echo "systems: $*" >&2; exit 6; }
say() { printf '%s systems: %s\n' "$(date +%T)" "$*"; }
field() { awk -F ' *[|] *' -v row="$1" -v n="$2" '$1 == row { print $n }' <<< "$ROWS"; }

# ---- one command inside (this file again, as the first process of the new system) ----
if [ "${1:-}" = --inside ]; then
  root=$2 packages=$3 objects=$4
  shift 4
  # pivot_root requires a mount point, and a mere chroot would have no user namespaces.
  mount --bind "$root" "$root"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/dev/shm"
  mount --rbind /sys "$root/sys"
  mount -t proc proc "$root/proc"
  mount --bind "$packages" "$root/var/cache/apt/archives"
  [ -z "$objects" ] || [ ! -d "$root/$CCACHE" ] || mount --bind "$objects" "$root/$CCACHE"
  mkdir -p "$root/.host"
  cd "$root"
  pivot_root . .host
  umount -l /.host
  cd /
  "$@" || exit $?  # not exec: as the first process, bash reaps orphaned processes
  exit 0
fi

# ---- the command line ----
cache='' keep='' fresh='' bare='' rows=()
while [ $# -gt 0 ]; do
  case $1 in
    --list) echo "$ROWS" | cut -d'|' -f1,5,6; exit 0 ;;
    --cache) [ $# -gt 1 ] || stop "--cache needs a folder"; cache=$2; shift ;;
    --keep) keep=1 ;;
    --fresh) fresh=1 ;;
    --bare) bare=1 ;;
    *) [ -n "$(field "$1" 2)" ] || stop "no row '$1'; there are: $(cut -d' ' -f1 <<< "$ROWS" | xargs)"
       rows+=("$1") ;;
  esac
  shift
done
[ ${#rows[@]} -gt 0 ] || mapfile -t rows < <(cut -d' ' -f1 <<< "$ROWS")
[ "$(id -u)" = 0 ] || stop "needs root to make systems and to enter them: sudo make test-systems"
for program in git tar unshare pivot_root; do
  command -v $program > /dev/null || stop "no $program here: apt install git tar util-linux"
done
unshare --mount --pid --fork true 2> /dev/null || stop "no right to make namespaces: in a container, with --privileged"
cache=${cache:-$work/cache}
mkdir -p "$work" "$cache"
cache=$(cd "$cache" && pwd)

mirror=${RINGSMITH_MIRROR:-}
if [ -z "$mirror" ] && command -v apt-get > /dev/null; then
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 -E '/debian/?$') || true
fi
mirror=${mirror:-http://deb.debian.org/debian}

base() {  # SUITE: makes cache/SUITE.tar, once
  local suite=$1 include=make,git,ca-certificates,sudo
  [ ! -f "$cache/$suite.tar" ] || return 0
  say "$suite: making the base system from $mirror"
  rm -rf "$work/base" "$work/base.tar"
  if command -v mmdebstrap > /dev/null; then
    mmdebstrap --quiet --variant=minbase --include=$include --aptopt='Acquire::Check-Valid-Until "false"' \
      "$suite" "$work/base.tar" "$mirror" > "$work/$suite.base.log" 2>&1 || return 1
  elif command -v debootstrap > /dev/null; then
    debootstrap --variant=minbase --include=$include "$suite" "$work/base" "$mirror" > "$work/$suite.base.log" 2>&1 &&
      tar -C "$work/base" -cf "$work/base.tar" . || return 1
    rm -rf "$work/base"
  else
    stop "neither mmdebstrap nor debootstrap here: apt install mmdebstrap"
  fi
  mv "$work/base.tar" "$cache/$suite.tar"
}

if [ -n "$bare" ]; then
  base bookworm >&2 && base trixie >&2 || stop "the base systems could not be made"
  commands() { tar -tf "$cache/$1.tar" | grep -E '^\./(usr/)?s?bin/[^/]+$' | sed 's,.*/,,' | sort -u; }
  sed '/^$/q' "$here/bare.txt"
  comm -12 <(commands bookworm) <(commands trixie) | tr '\n' ' ' | fold -s -w 118 | sed 's/ *$//'
  echo
  exit 0
fi

# enter COMMAND...: runs the command in the system. Its processes and mounts end together. Call enter in a subshell,
# which it replaces.
root='' packages='' objects=''
enter() {
  exec timeout --kill-after=5 $LIMIT unshare --mount --propagation private --pid --fork --kill-child \
    "$here/run.sh" --inside "$root" "$packages" "$objects" "$@" < /dev/null
}
as_root() (
  enter /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive /bin/sh -c "$1"
)
# as_user COMPILER COMMAND: runs the command with a login's environment, the compiler, and no settings of this machine.
# Start as_user as a job, whose process it replaces, so that the trap below ends it.
as_user() {
  local c=${1/clang++/clang}
  enter /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin /usr/sbin/runuser -u $USERNAME -- /usr/bin/env -i \
    HOME=/home/$USERNAME USER=$USERNAME LOGNAME=$USERNAME SHELL=/bin/bash TERM=dumb PATH=/usr/local/bin:/usr/bin:/bin \
    JOBS="$JOBS" RINGSMITH_WERROR=1 CXX="$1" CC="${c/g++/gcc}" /bin/bash -c "cd ~/ringsmith && $2"
}

prepare() {  # ROW SUITE PACKAGES
  local suite=$2
  rm -rf "$root"
  mkdir -p "$root" "$packages"/partial
  tar -C "$root" -xf "$cache/$suite.tar"
  cp -L /etc/resolv.conf "$root/etc/resolv.conf"
  printf '127.0.0.1 localhost\n127.0.1.1 %s\n::1 localhost\n' "$(hostname)" > "$root/etc/hosts"
  # The mirror may be a snapshot, whose dates have expired.
  echo 'Acquire::Check-Valid-Until "false";' > "$root/etc/apt/apt.conf.d/10systems"
  as_root "command -v sudo > /dev/null && [ -z '$3' ] ||
           { apt-get update -qq && apt-get install -y -qq --no-install-recommends sudo $3; }" || return 1
  # Debian's libraries are built by the newest compiler, and need its C++ library. An older compiler would link its
  # own, older library.
  as_root 'for own in /usr/lib/gcc/*/*/libstdc++.so; do [ ! -e "$own" ] || ln -sf /lib/*/libstdc++.so.6 "$own"; done'
  as_root "useradd --create-home --shell /bin/bash $USERNAME" || return 1
  echo "$USERNAME ALL=(ALL) NOPASSWD: ALL" > "$root/etc/sudoers.d/$USERNAME"
  chmod 440 "$root/etc/sudoers.d/$USERNAME"
  git -c safe.directory='*' clone --quiet --no-local "file://$top" "$root/home/$USERNAME/ringsmith" || return 1
  git -c safe.directory='*' -C "$root/home/$USERNAME/ringsmith" checkout --quiet --detach "$head" || return 1
  [ -z "$objects" ] || mkdir -p "$objects" "$root/$CCACHE"
  as_root "chown -R $USERNAME: /home/$USERNAME"
}

versions() {  # COMPILER: one line with the versions with which the row was built
  as_root "v() { dpkg-query -W -f='\${Version}' \"\$1\" 2> /dev/null | sed -E 's/^[0-9]+://; s/[-+~].*//'; }
    printf 'Debian %s, %s %s, CMake %s, Open MPI %s, fmt %s, json %s,\n  Catch2 %s, CLI11 %s, Python %s%s' \
      \"\$(cat /etc/debian_version)\" $1 \"\$($1 -dumpfullversion 2> /dev/null || $1 -dumpversion)\" \"\$(v cmake)\" \
      \"\$(v libopenmpi-dev)\" \"\$(v libfmt-dev)\" \"\$(v nlohmann-json3-dev)\" \"\$(v catch2)\" \"\$(v libcli11-dev)\" \
      \"\$(v python3)\" \"\$(torch=\$(v python3-torch); echo \"\${torch:+, PyTorch \$torch}\")\""
}

# follow LOG PID ROW: prints a line per minute to show the progress. Sets first_step to the seconds until the first
# step of make train.
follow() {
  local log=$1 pid=$2 begin=$SECONDS next=60
  first_step=''
  while kill -0 "$pid" 2> /dev/null; do
    sleep 1
    [ -n "$first_step" ] || ! grep -qE '(^|[] ])[0-9]+/[0-9]+ +loss ' "$log" || first_step=$((SECONDS - begin))
    if [ $((SECONDS - begin)) -ge $next ]; then
      next=$((next + 60))
      say "$3: $(((SECONDS - begin) / 60)) min: $(tr '\r' '\n' < "$log" | grep -v '^ *$' | tail -n 1 | cut -c1-40)"
    fi
  done
}

# ---- the rows ----
head=$(git -c safe.directory='*' -C "$top" rev-parse HEAD)
git -c safe.directory='*' -C "$top" diff --quiet HEAD || say "changes that are not committed are left out: HEAD is tested"
table=$work/table.txt failed=0
trap 'kill $(jobs -p) 2> /dev/null && wait || true' EXIT
{
  echo "Bare systems, $(date +%F), commit ${head:0:12}, JOBS=$JOBS on $(nproc) cores, $(uname -m)${fresh:+, --fresh}"
  printf '\n%-46s %4s %6s %6s %7s %7s\n' "row, command" exit passed failed skipped seconds
} > "$table"

row() {  # ROW
  local name=$1 suite compiler extra commands command code begin log pid n=0 counts about passed bad skipped
  suite=$(field "$name" 2) compiler=$(field "$name" 3) extra=$(field "$name" 4)
  IFS=';' read -ra commands <<< "$(field "$name" 6)"
  root=$work/$name packages=$cache/$suite.packages objects=$cache/$suite.ccache about=''
  [ -z "$fresh" ] || objects=''
  rm -f "$work/$name".*.log
  say "$name: $(field "$name" 5)"
  printf '%s\n' "$name ($(field "$name" 5))" >> "$table"
  if ! base "$suite" || ! prepare "$name" "$suite" "$extra" > "$work/$name.0.log" 2>&1; then
    tail -n 5 "$work/$suite.base.log" "$work/$name.0.log" 2> /dev/null || true
    printf '  %-44s %4s\n' "the base system could not be made" - >> "$table"
    failed=1
    return
  fi
  for command in "${commands[@]}"; do
    command=${command# } log=$work/$name.$((++n)).log begin=$SECONDS code=0 counts=''
    say "$name: $command"
    : > "$log"
    as_user "$compiler" "$command" > "$log" 2>&1 &
    pid=$!
    follow "$log" $pid "$name"
    wait $pid || code=$?
    [ "$code" != 124 ] && [ "$code" != 137 ] || echo "systems: not ended after $LIMIT s; killed" >> "$log"
    counts=$(grep -oE '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped' "$log" | tail -n 1) || true
    read -r passed _ bad _ skipped _ <<< "${counts:-- - - - - -}"
    printf '  %-44.44s %4d %6s %6s %7s %7d\n' "$command" "$code" "$passed" "$bad" "$skipped" $((SECONDS - begin)) >> "$table"
    [ -z "$first_step" ] || printf '    %-42s %4s %6s %6s %7s %7d\n' "to the first training step" '' '' '' '' "$first_step" >> "$table"
    say "$name: $command: exit $code${counts:+, $counts}"
    if [ "$code" != 0 ]; then
      failed=1
      about+=$'\n'"$name: $command failed:"$'\n'"$(grep -aE 'error:|\*\*\*Failed|FAILED|failed:|^make' "$log" |
        tail -n 12 | cut -c1-160)"
      break  # the following commands depend on it
    fi
    ! grep -q '^Not run, and why:' "$log" ||
      about+=$'\n'"$name: not run, and why:"$'\n'"$(sed -n '/^Not run, and why:/,/^$/p' "$log" | sed 1d)"
  done
  printf '  %s\n' "$(versions "$compiler")" >> "$table"
  notes+=$about
  [ -n "$keep" ] || rm -rf --one-file-system "$root"
}
notes=''
for name in "${rows[@]}"; do row "$name"; done
printf '%s\n' "$notes" >> "$table"
echo
cat "$table"
[ $failed = 0 ] || echo "systems: failed; the logs are in $work" >&2
exit $failed
