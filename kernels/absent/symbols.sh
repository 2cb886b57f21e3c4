#!/bin/sh
# symbols.sh OUT.c LIBRARY...: writes C source that defines every device function that the libraries
# call but do not define. Each is an alias of a function that calls ringsmith_no_devices()
# (absent.cpp).
set -eu
out=$1
shift
devices='^(cu(da)?[A-Z]|_Z[0-9]+cu(da)?[A-Z]|_ZN9ringsmith7kernels4cuda|_ZN9ringsmith4comm17make_device_group)'
{
  echo '/* made by kernels/absent/symbols.sh */'
  echo 'void ringsmith_no_devices(void);'
  echo 'static void absent(void) { ringsmith_no_devices(); }'
  nm -A "$@" 2>/dev/null | awk 'NF < 2 { next } $(NF-1) == "U" { wanted[$NF] = 1 } $(NF-1) ~ /^[TWV]$/ { defined[$NF] = 1 }
    END { for (name in wanted) if (!(name in defined)) print name }' | grep -E "$devices" | sort |
    grep -vE '^(_Z[0-9]+)?(cudaGetDeviceCount|cudaGetLastError|cudaGetErrorName|cudaGetErrorString)' |
    sed 's/.*/void &(void) __attribute__((alias("absent")));/'
} > "$out"
