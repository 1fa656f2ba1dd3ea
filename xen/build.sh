#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds the Xen hypervisor from Debian's source package with Laxity's schedulers in it, and prints the path of
# the file to boot. What has not changed since the last time is not built again.
#
#   xen/build.sh release|debug|measured
#
# release: what runs on a host. debug: with Xen's assertions, and without what no test runs. measured: with the cost
# of each decision in the trace.
set -euo pipefail

variant=${1:-release}
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
cache=${LAXITY_XEN_CACHE:-$root/target/xen}
build=$cache/hypervisor/$variant
log=$build/build.log

# shellcheck source=source.sh
. "$here/source.sh"

[[ -f $here/config/$variant ]] || die "there is no variant '$variant'" "known: $(ls "$here/config" | xargs)"

# Program and its Debian package.
missing=()
for entry in gcc:gcc make:make flex:flex bison:bison python3:python3 patch:patch dpkg-source:dpkg-dev \
    apt-get:apt flock:util-linux; do
    command -v "${entry%%:*}" >/dev/null || missing+=("${entry##*:}")
done
[[ -f /usr/include/stdlib.h ]] || missing+=(libc6-dev)
((!${#missing[@]})) || die "the hypervisor cannot be built without: ${missing[*]}" \
    "install them as root: apt-get install ${missing[*]}"

mkdir -p "$source" "$build"
exec 9>"$cache/lock"
flock 9

fetch_source

# The tree of this variant: anew when patches have changed, otherwise as it was left.
inputs() {
    cat "$here"/patches/* "$here/config/$variant" "$source"/tree/debian/changelog "${BASH_SOURCE[0]}"
    ls "$root/policy/src"
}
if [[ ! -f $build/inputs || $(<"$build/inputs") != "$(inputs | sha256sum)" ]]; then
    rm -rf "$build/tree" "$build/inputs" "$build/built"
    mkdir -p "$build/tree"
    cp -a "$source"/tree/{xen,config,Config.mk} "$build/tree/"
    patches=(laxity freed-unit)
    [[ $variant != debug ]] || patches+=(selftest)
    [[ $variant != measured ]] || patches+=(measure)
    for name in "${patches[@]}"; do
        patch --silent --directory "$build/tree" -p1 <"$here/patches/$name.patch" >"$log" 2>&1 ||
            die "xen/patches/$name.patch does not apply to this version of Xen" "see $log"
    done
    # Links, not copies: what is compiled are the project's own files. Relative links go on to be right where a
    # checkout is moved or copied.
    laxity=$build/tree/xen/common/sched/laxity
    mkdir -p "$laxity/include"
    ln -sr "$here"/adapter/* "$root"/policy/src/*.[ch] "$laxity/"
    ln -sr "$root/policy/include/laxity" "$root"/policy/*.def "$here/include/laxity_op.h" "$here/adapter/laxity_xen_types.h" \
        "$laxity/include/"
    inputs | sha256sum >"$build/inputs"
fi

# Make would look at each of Xen's files, for seconds: those of the project are the only ones that change.
# $build/built is as old as the beginning of the last build that succeeded.
changed() {
    find "$here/adapter" "$here/include" "$root/policy/src" "$root/policy/include" "$root"/policy/*.def \
        -newer "$build/built" -print -quit
}
if [[ -f $build/built && -f $build/xen && -z $(changed) ]]; then
    echo "$build/xen"
    exit
fi
rm -f "$build/built"
touch "$build/begun"

# Nothing of the machine that builds is in what is built.
export XEN_BUILD_DATE='-' XEN_BUILD_TIME='' XEN_BUILD_HOST=laxity XEN_WHOAMI=laxity XEN_DOMAIN=
export KBUILD_DEFCONFIG=/dev/null
unset MAKEFLAGS MFLAGS MAKELEVEL
[[ -f $build/tree/xen/.config ]] || cp "$here/config/$variant" "$build/tree/xen/.config"
echo "building the hypervisor ($variant)" >&2
# Without xen.efi, which takes as long to link as xen itself: boot loaders take xen.
{
    make -C "$build/tree/xen" olddefconfig &&
        make -C "$build/tree/xen" -j"$(nproc)" efi-y= build
} >"$log" 2>&1 || {
    grep -E ' error: |: \*\*\* ' "$log" | head -5 >&2 || true
    die 'the hypervisor did not build' "see $log"
}
cp "$build/tree/xen/xen" "$build/xen.new"
cmp -s "$build/xen.new" "$build/xen" && rm "$build/xen.new" || mv "$build/xen.new" "$build/xen"
mv "$build/begun" "$build/built"
echo "$build/xen"
