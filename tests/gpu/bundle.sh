#!/usr/bin/env bash
# bundle.sh [ARCHIVE]: packs everything that a cluster node without internet needs into one archive.
#
# The node provides g++, cmake, make, python3, and for devices the CUDA toolkit. The archive
# provides the sources as committed, and the Debian packages that the build needs, unpacked. Nothing
# is installed: `source env.sh` points the tools to the packages.
#
#   tar xzf ringsmith-offline.tar.gz && cd ringsmith-offline && source env.sh && make test-gpu
set -eu
cd "$(dirname "$0")/../.."
archive=$(realpath -m "${1:-build/ringsmith-offline.tar.gz}")
# What the node has: its tools, and what every Debian or Ubuntu has. Of the rest nothing is needed that only serves the
# compiler of Fortran, which libopenmpi-dev depends on, or ssh, which mpirun needs only for other nodes.
brought="g++ cmake make python3 apt passwd debconf debianutils"
unneeded='/(gfortran[^/_]*|libgfortran-[0-9]+-dev|openssh-client|libfido2-[0-9]+|libcbor[0-9.]*|libedit2)_'
wanted=$(sed -n 's/^PACKAGES := //p' Makefile)

# names PACKAGE...: prints the URIs of these packages and all their dependencies, as apt would install them on an
# empty system. The cache must be empty, because apt does not list packages that it has already fetched.
names() {
  apt-get -o Dir::State::status=/dev/null -o Dir::Cache::archives="$work/cache" --no-install-recommends \
    --print-uris -qq install "$@" | sed -E "s/^'([^']*)'.*/\1/"
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/cache/partial"
echo "offline-bundle: looking for packages (apt)"
# shellcheck disable=SC2086
names $wanted | sort > "$work/all"
# Keeps libssl3 in the bundle, because libssl-dev's links point to its files in the same folder.
# shellcheck disable=SC2086
names $brought | grep -v /libssl3 | sort > "$work/brought"
comm -23 "$work/all" "$work/brought" | grep -vE "$unneeded" > "$work/uris"
[ -s "$work/uris" ] || { echo "offline-bundle: apt named no packages; run apt-get update first" >&2; exit 1; }

tree=$work/ringsmith-offline
mkdir -p "$tree/deps" "$work/debs"
git archive HEAD | tar x -C "$tree"
echo "offline-bundle: fetching $(wc -l < "$work/uris") packages"
(cd "$work/debs" && sed 's|.*/||; s/_.*//' "$work/uris" | xargs apt-get -qq download 2> "$work/errors") ||
  { cat "$work/errors" >&2; exit 1; }
for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$tree/deps"; done
# Some packages still use /lib, which is in /usr on current systems.
for folder in bin lib sbin; do
  [ ! -d "$tree/deps/$folder" ] || { cp -a "$tree/deps/$folder" "$tree/deps/usr/"; rm -rf "${tree:?}/deps/$folder"; }
done
rm -rf "$tree"/deps/usr/share/{doc,man,locale,lintian,bug} "$tree"/deps/var
find "$tree/deps" -name '*.a' -size +4M -delete  # static copies of shared libraries
find "$tree/deps" -name '*.a' -xtype l -delete
broken=$(find "$tree/deps" -name '*.so' -xtype l)
[ -z "$broken" ] || { echo "offline-bundle: these libraries are in no package of the bundle: $broken" >&2; exit 1; }
# Each library that the bundle's files load must be in the bundle or on the node. The packages are installed here, so
# dpkg knows which of them has a library.
find "$tree/deps" -type f \( -name '*.so*' -o -perm /111 \) -exec readelf -d {} + 2> /dev/null |
  sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u > "$work/needed"
find "$tree/deps" -name '*.so*' -printf '%f\n' | sort -u > "$work/files"
comm -23 "$work/needed" "$work/files" | sed 's|^|*-linux-gnu/|' | xargs dpkg -S 2> /dev/null | sed 's/:.*//' | sort -u \
  > "$work/needs"
comm -23 "$work/all" "$work/brought" | sed 's|.*/||; s/_.*//; s/%2b/+/g' | sort -u > "$work/ours"
comm -12 "$work/needs" "$work/ours" > "$work/absent"
[ ! -s "$work/absent" ] || { echo "offline-bundle: the bundle needs and lacks: $(xargs < "$work/absent")" >&2; exit 1; }

cat > "$tree/env.sh" << 'ENV'
# source env.sh: makes the tools of this shell find the bundle's packages.
deps=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/deps
arch=$(uname -m)-linux-gnu
export PATH=$deps/usr/bin:$PATH
export LD_LIBRARY_PATH=$deps/usr/lib/$arch:$deps/usr/lib/$arch/openblas-pthread:$deps/usr/lib/$arch/pmix2/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LIBRARY_PATH=$deps/usr/lib/$arch
export CPATH=$deps/usr/include:$deps/usr/include/$arch
export CMAKE_PREFIX_PATH=$deps/usr
export OPAL_PREFIX=$deps/usr   # Open MPI finds its parts relative to this
export PMIX_INSTALL_PREFIX=$deps/usr
export RINGSMITH_NO_DEPS=1     # make installs nothing
export OMPI_MCA_mca_base_component_show_load_errors=0  # no warnings about parts for unused networks
export PMIX_MCA_pcompress_base_silence_warning=1
command -v ssh > /dev/null || export OMPI_MCA_plm=isolated  # mpirun on this node alone needs no ssh
# Debian's alternatives are links that the installation would create.
for tool in mpirun:orterun mpiexec:orterun mpicc:mpicc.openmpi mpicxx:mpicxx.openmpi; do
  [ -e "$deps/usr/bin/${tool%%:*}" ] || ln -s "${tool##*:}" "$deps/usr/bin/${tool%%:*}"
done
ENV
mkdir -p "$(dirname "$archive")"
tar czf "$archive" -C "$work" ringsmith-offline
# Time on a device can be short, and copying the archive to it takes part of that time.
most=$((60 << 20))
[ "$(stat -c %s "$archive")" -le $most ] || {
  echo "offline-bundle: '$archive' has $(stat -c %s "$archive") bytes, at most $most are to be carried: which package is new?" >&2
  exit 1
}
echo "offline-bundle: $archive, $(du -h "$archive" | cut -f1); on the node: tar xzf, source env.sh, make test-gpu"
