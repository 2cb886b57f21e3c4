#!/bin/bash
# Runs N "nodes" on one machine: sets of network, UTS, IPC and mount namespaces, each with its own
# address, hostname and /dev/shm. A switch joins them. `-h` lists the commands.
# Over 300 lines because it is one small program: a node, its link, and the failures of both.
set -euo pipefail

usage() { cat <<'USAGE'
usage: netns-cluster.sh COMMAND
  up N [--rate R] [--delay D] [--loss P] [--wire W] [--seed S] [--mtu M]
                    nodes node0..node(N-1) = 10.88.0.1.. ; per link, both ways:
                    R like 1gbit (0: unlimited); node to switch: delay D like
                    200us and loss of P percent. W: auto, bridge or user
  exec NODE CMD...  run CMD on NODE, in the current directory
  all CMD...        run CMD on every node at once; output prefixed with [NODE]
  mpi CMD...        run CMD on node0 so that a plain Open MPI "mpirun" in it spans
                    the nodes: mpi mpirun -np 4 ./prog (2 slots per node)
  shape NODE|all [--rate R] [--delay D] [--loss P]   change a running link
  partition NODE    cut NODE off (frames vanish silently)
  heal NODE         undo it
  kill NODE [SIG]   signal every process on NODE (default KILL); peers see a reset
  crash NODE        partition + kill: as if the power failed; peers see silence
  status            nodes, addresses, counters
  hostfile [SLOTS]  print an mpirun hostfile
  down              end everything
  unpriv CMD...     run CMD where `up` needs no root (private user namespace)
  rsh NODE STRING   what mpirun's plm_rsh_agent calls
Environment: NETNS_CLUSTER (name, default "default": several can coexist),
NETNS_CLUSTER_DIR (state), NETNS_WIRE (prebuilt netns-wire), CXX.
USAGE
}

say() { echo "netns-cluster: $*" >&2; }
die() { say "$*"; exit 2; }

self=$(realpath -- "${BASH_SOURCE[0]}")
here=${self%/*}
export PATH=$PATH:/usr/sbin:/sbin
base=${NETNS_CLUSTER_DIR:-${TMPDIR:-/tmp}/netns-cluster.$(id -u)}
export NETNS_CLUSTER_DIR=$base NETNS_CLUSTER=${NETNS_CLUSTER:-default}
state=$base/$NETNS_CLUSTER

# --- numbers -----------------------------------------------------------------

rate_bits() {                           # 1gbit -> 1000000000
    case $1 in
        *gbit) echo $((${1%gbit} * 1000000000)) ;; *mbit) echo $((${1%mbit} * 1000000)) ;;
        *kbit) echo $((${1%kbit} * 1000)) ;; *bit) echo "${1%bit}" ;; 0) echo 0 ;;
        *) die "rate $1: want 100mbit, 1gbit, ... or 0" ;;
    esac
}
delay_ns() {                            # 200us -> 200000
    case $1 in
        *us) echo $((${1%us} * 1000)) ;; *ms) echo $((${1%ms} * 1000000)) ;;
        *ns) echo "${1%ns}" ;; 0) echo 0 ;;
        *) die "delay $1: want 200us, 5ms, ... or 0" ;;
    esac
}
loss_ppm() {                            # percent: 0.1 -> 1000
    [[ $1 =~ ^[0-9]+(\.[0-9]+)?%?$ ]] || die "loss $1: want percent, like 0.1"
    awk -v p="${1%\%}" 'BEGIN { printf "%d\n", p * 10000 + 0.5 }'
}
segments() { [ "$1" = 0 ] && echo 64 || echo 1; }   # if frames are lost: 1 TCP segment per frame
mac_of() { printf '02:58:00:00:00:%02x' $(($1 + 1)); }
addr_of() { echo "10.88.0.$(($1 + 1))"; }

# --- state: $state/{count,wire,mtu,seed,hosts}, per node pid.NODE, link.NODE ---

# $base contains a program that runs as this user (netns-wire). The folder's name is easy to guess, so another user
# may have created it first.
need_own_base() {
    [ ! -L "$base" ] && [ -d "$base" ] || die "$base is not a folder: name another by NETNS_CLUSTER_DIR"
    [ "$(stat -c %u "$base")" = "$(id -u)" ] && [ $((0$(stat -c %a "$base") & 022)) = 0 ] ||
        die "$base belongs, or is open, to another user: name another folder by NETNS_CLUSTER_DIR"
}
running() { [ -s "$state/count" ]; }
need_up() { [ ! -e "$base" ] || need_own_base; running || die "no cluster '$NETNS_CLUSTER' (up N first)"; }
holder() {                              # process that keeps NODE's namespaces alive
    [ -s "$state/pid.$1" ] || die "no node '$1'"
    cat "$state/pid.$1"
}
nodes() { local i; for ((i = 0; i < $(cat "$state/count"); i++)); do echo "node$i"; done; }
in_ns() { local pid; pid=$(holder "$1"); shift; nsenter --target "$pid" --net -- "$@"; }

enter() {                               # NODE CMD...: replaces this process
    local node=$1 pid
    pid=$(holder "$node"); shift
    [ $# -gt 0 ] || die "no command"
    # shellcheck disable=SC2016
    HOSTNAME=$node exec nsenter --target "$pid" --net --uts --ipc --mount --root -- \
        sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
}

members() {                             # PIDs on NODE, without the holder
    local keep f pid
    keep=$(holder "$1")
    for f in /proc/[0-9]*; do
        pid=${f#/proc/}
        [ "$pid" != "$keep" ] && [ "$f/ns/net" -ef "/proc/$keep/ns/net" ] && echo "$pid"
    done 2>/dev/null || :
}

signal_members() {                      # NODE SIG; repeats for KILL until none is left
    local pids round
    for round in 1 2 3 4 5; do
        pids=$(members "$1")
        [ -n "$pids" ] || return 0
        # shellcheck disable=SC2086
        kill -s "$2" $pids 2>/dev/null || :
        [ "$2" = KILL ] || return 0
        sleep 0.0$round
    done
}

# --- links -------------------------------------------------------------------

# $state/link.NODE holds: up rate_bits delay_ns loss_ppm
apply_links() {
    local i try up rate delay loss dev generation burst root
    if [ "$(cat "$state/wire")" = user ]; then
        generation=$(($(cat "$state/generation" 2>/dev/null || echo 0) + 1))
        echo $generation >"$state/generation"
        {   echo "generation $generation seed $(cat "$state/seed")"
            for ((i = 0; i < $(cat "$state/count.up"); i++)); do
                read -r up rate delay loss <"$state/link.node$i"
                echo "node$i $(mac_of "$i") $up $rate $delay $loss"
            done; } >"$state/control"
        if [ -s "$state/pid.wire" ]; then kill -HUP "$(cat "$state/pid.wire")"
        else
            # shellcheck disable=SC2094
            setsid nsenter --target "$(holder switch)" --net -- "$wire_program" \
                "$state/control" "$state/counters" </dev/null >"$state/wire.log" 2>&1 &
            echo $! >"$state/pid.wire"
        fi
        for ((i = 0; i < 500; i++)); do
            grep -qsx "generation $generation" "$state/counters" && return 0
            kill -0 "$(cat "$state/pid.wire")" 2>/dev/null || break
            sleep 0.01
        done
        cat "$state/wire.log" >&2
        die "netns-wire did not answer"
    fi
    for ((i = 0; i < $(cat "$state/count.up"); i++)); do
        read -r up rate delay loss <"$state/link.node$i"
        # State 0 drops frames silently while the carrier stays up, unlike "link set down". A link
        # that has just come up may not be ready yet ("Network is down").
        for ((try = 0; try < 100; try++)); do
            in_ns switch bridge link set dev "node$i" state $((up * 3)) 2>/dev/null && break
            [ $try -lt 99 ] || die "node$i: its port on the switch does not come up"
            sleep 0.02
        done
        [ "$(cat "$state/link.node$i")" != "$(cat "$state/applied.node$i" 2>/dev/null)" ] || continue
        burst=$((rate / 8 / 250)); [ $burst -ge 131072 ] || burst=131072
        for dev in node switch; do
            [ $dev = node ] && root=("node$i" tc qdisc replace dev eth0) ||
                root=(switch tc qdisc replace dev "node$i")
            in_ns "${root[0]}" tc qdisc del dev "${root[5]}" root 2>/dev/null || :
            if [ $dev = node ] && [ "$delay$loss" != 00 ]; then
                in_ns "${root[@]}" root handle 1: netem limit 20000 delay "$((delay / 1000))us" \
                    loss "$(awk -v p="$loss" 'BEGIN { print p / 10000 }')%"
                [ "$rate" = 0 ] || in_ns "${root[@]}" parent 1:1 handle 10: \
                    tbf rate "${rate}bit" burst "$burst" latency 50ms
            elif [ "$rate" != 0 ]; then
                in_ns "${root[@]}" root handle 1: tbf rate "${rate}bit" burst "$burst" latency 50ms
            fi
        done
        cp "$state/link.node$i" "$state/applied.node$i"
    done
}

has_netem() {
    in_ns switch tc qdisc add dev lo root netem delay 1us 2>/dev/null || return 1
    in_ns switch tc qdisc del dev lo root
}

build_wire() {                          # sets wire_program
    wire_program=${NETNS_WIRE:-$base/netns-wire}
    [ -z "${NETNS_WIRE:-}" ] && [ "$here/netns-wire.cpp" -nt "$wire_program" ] || return 0
    "${CXX:-g++}" -std=c++17 -O2 -o "$wire_program.$$" "$here/netns-wire.cpp" &&
        mv "$wire_program.$$" "$wire_program"
}

set_link() {                            # NODE|all KEY=VALUE... (up rate delay loss)
    local target=$1 node pair up rate delay loss; shift
    for node in $(nodes); do
        [ "$target" = all ] || [ "$target" = "$node" ] || continue
        read -r up rate delay loss <"$state/link.$node"
        for pair in "$@"; do
            case $pair in up=*) up=${pair#*=} ;; rate=*) rate=${pair#*=} ;;
                          delay=*) delay=${pair#*=} ;; loss=*) loss=${pair#*=} ;; esac
        done
        [ "$(cat "$state/wire")" = user ] || [ "$delay$loss" = 00 ] || has_netem ||
            die "delay and loss need sch_netem or: up --wire user"
        in_ns "$node" ip link set eth0 gso_max_segs "$(segments "$loss")"
        echo "$up $rate $delay $loss" >"$state/link.$node"
    done
    apply_links
}

# --- commands ----------------------------------------------------------------

# Runs as the holder of a node's namespaces: sets the node up, reports its pid, and sleeps forever.
hold() {                                # NODE
    hostname "$1"
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm
    [ "$1" = switch ] || mount --bind "$state/hosts" /etc/hosts
    # A new sysfs shows this node's own /sys/class/net. The cgroups must stay visible.
    if [ -d /sys/fs/cgroup ] && mkdir -p "$state/cgroup.$1" &&
        mount --rbind /sys/fs/cgroup "$state/cgroup.$1" 2>/dev/null; then
        mount -t sysfs sysfs /sys 2>/dev/null &&
            { mount --move "$state/cgroup.$1" /sys/fs/cgroup 2>/dev/null || :; }
    fi
    for f in all default; do
        echo 1 2>/dev/null >"/proc/sys/net/ipv6/conf/$f/disable_ipv6" || :
    done
    ip link set lo up
    # If the cluster was given up meanwhile, its state is gone, and no process would end this node.
    { echo $$ >"$state/pid.$1.new" && mv "$state/pid.$1.new" "$state/pid.$1"; } || exit 1
    exec sleep infinity
}

up() {
    local n=$1 wire=auto rate=0 delay=0 loss=0 seed=1 mtu=1500 i node
    shift
    [[ $n =~ ^([1-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|250)$ ]] || die "N must be 1..250"
    while [ $# -gt 0 ]; do
        [ $# -ge 2 ] || die "$1: value missing"
        case $1 in
            --rate) rate=$(rate_bits "$2") ;; --delay) delay=$(delay_ns "$2") ;;
            --loss) loss=$(loss_ppm "$2") ;; --wire) wire=$2 ;; --seed) seed=$2 ;;
            --mtu) mtu=$2 ;; *) die "up: $1?" ;;
        esac
        shift 2
    done
    case $wire in auto | bridge | user) ;; *) die "wire $wire: auto, bridge or user" ;; esac
    mkdir -p "$(dirname "$base")"; mkdir -m 700 "$base" 2>/dev/null || :
    need_own_base
    mkdir "$state" "$state/mpi" 2>/dev/null || die "cluster '$NETNS_CLUSTER' exists (down first)"
    trap 'down' EXIT
    {   echo "127.0.0.1 localhost"
        for ((i = 0; i < n; i++)); do echo "$(addr_of "$i") node$i"; done; } >"$state/hosts"
    echo "$n" >"$state/count.up"; echo "$seed" >"$state/seed"
    for node in switch $(seq -f node%.0f 0 $((n - 1))); do
        [ "$node" = switch ] || echo "1 $rate $delay $loss" >"$state/link.$node"
        setsid unshare --net --uts --ipc --mount --propagation private \
            "$self" hold "$node" </dev/null >>"$state/log" 2>&1 &
    done
    for node in switch $(seq -f node%.0f 0 $((n - 1))); do
        for ((i = 0; ; i++)); do
            [ ! -s "$state/pid.$node" ] || break
            [ $i -lt 3000 ] || { cat "$state/log" >&2; die "$node did not start"; }
            sleep 0.01
        done
    done
    if [ "$wire" = auto ]; then
        wire=bridge
        [ "$delay$loss" = 00 ] || has_netem || wire=user
    fi
    echo "$wire" >"$state/wire"
    [ "$wire" = bridge ] || build_wire
    {   [ "$wire" = user ] || echo "link add br0 mtu $mtu type bridge stp_state 0 forward_delay 0 mcast_snooping 0
                                    link set br0 up"
        for ((i = 0; i < n; i++)); do
            echo "link add node$i mtu $mtu type veth peer name eth0 mtu $mtu address $(mac_of "$i") netns $(holder "node$i")"
            [ "$wire" = user ] || echo "link set node$i master br0"
            echo "link set node$i up"
        done; } | in_ns switch ip -batch -
    for ((i = 0; i < n; i++)); do
        {   echo "link set eth0 gso_max_segs $(segments "$loss")
                  addr add $(addr_of "$i")/24 brd + dev eth0
                  link set eth0 up"; } | in_ns "node$i" ip -batch -
    done
    apply_links
    echo "$n" >"$state/count"
    trap - EXIT
}

down() {
    trap - EXIT
    local f pid
    [ -d "$state" ] || return 0
    need_own_base
    for f in "$state"/pid.*; do
        case ${f##*.} in '*' | wire | new) continue ;; esac
        signal_members "${f##*.}" KILL
        pid=$(cat "$f"); kill -KILL "$pid" 2>/dev/null || :
    done
    rm -rf "${state:?}"
}

all() {
    local node pid pids=() rc=0
    for node in $(nodes); do
        ( set +e
          ( enter "$node" "$@" ) 2>&1 </dev/null | sed -u "s/^/[$node] /"
          exit "${PIPESTATUS[0]}" ) &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || rc=$?; done
    return $rc
}

rsh() {                                 # NODE STRING: like ssh for mpirun
    local node=$1 rc=0; shift
    ( enter "$node" sh -c "$*" ) || rc=$?
    # ssh would receive nothing from a node that is cut off, so the caller must not either.
    while [ "$(cut -d' ' -f1 "$state/link.$node" 2>/dev/null)" = 0 ] && kill -0 $PPID 2>/dev/null; do
        sleep 0.2
    done
    return $rc
}

mpi() {                                 # defaults only: mpirun's own options take precedence
    nodes | sed 's/$/ slots=2/' >"$state/hostfile"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_orte_tmpdir_base=$state/mpi     # not /tmp/ompi.node0.0, which clusters would share
    export OMPI_MCA_plm_rsh_agent="$self rsh" OMPI_MCA_orte_default_hostfile=$state/hostfile
    export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_pml=${OMPI_MCA_pml:-ob1} OMPI_MCA_btl=${OMPI_MCA_btl:-self,vader,tcp}
    enter node0 "$@"
}

unpriv() {
    local dir rc=0
    dir=$(mktemp -d "${TMPDIR:-/tmp}/netns-cluster.XXXXXX")
    NETNS_CLUSTER_DIR=$dir unshare --user --map-root-user --net --mount --uts --ipc --pid \
        --fork --kill-child --mount-proc -- "$@" || rc=$?
    rm -rf "$dir"
    return $rc
}

command=${1:-help}
[ $# -eq 0 ] || shift
case $command in
    up) [ $# -ge 1 ] || die "up N"; up "$@" ;;
    hold) hold "$@" ;;
    down) down ;;
    unpriv) unpriv "$@" ;;
    help | -h | --help) usage ;;
    exec | rsh | all | mpi | shape | partition | heal | kill | crash | status | hostfile)
        need_up
        case $command in
            exec) [ $# -ge 2 ] || die "exec NODE CMD..."; enter "$@" ;;
            rsh) rsh "$@" ;;
            all) all "$@" ;;
            mpi) mpi "$@" ;;
            shape)
                [ $# -ge 3 ] || die "shape NODE|all --rate R ..."
                node=$1 pairs=(); shift
                [ "$node" = all ] || holder "$node" >/dev/null
                while [ $# -ge 2 ]; do
                    case $1 in
                        --rate) pairs+=("rate=$(rate_bits "$2")") ;;
                        --delay) pairs+=("delay=$(delay_ns "$2")") ;;
                        --loss) pairs+=("loss=$(loss_ppm "$2")") ;;
                        *) die "shape: $1?" ;;
                    esac
                    shift 2
                done
                set_link "$node" "${pairs[@]}" ;;
            partition) holder "${1:?NODE}" >/dev/null; set_link "$1" up=0 ;;
            heal) holder "${1:?NODE}" >/dev/null; set_link "$1" up=1 ;;
            kill) signal_members "${1:?NODE}" "${2:-KILL}" ;;
            crash) holder "${1:?NODE}" >/dev/null; set_link "$1" up=0; signal_members "$1" KILL ;;
            hostfile) nodes | sed "s/\$/ slots=${1:-2}/" ;;
            status)
                echo "cluster $NETNS_CLUSTER, wire $(cat "$state/wire")"
                echo "node address holder up rate(bit/s) delay(ns) loss(ppm)"
                for node in $(nodes); do
                    echo "$node $(addr_of "${node#node}") $(holder "$node") $(cat "$state/link.$node")"
                done
                [ "$(cat "$state/wire")" != user ] || {
                    apply_links; echo "port frames lost cut overflow"; tail -n +2 "$state/counters"; } ;;
        esac ;;
    *) usage >&2; exit 2 ;;
esac
