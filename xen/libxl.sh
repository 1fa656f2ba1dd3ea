#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Builds libxl with network buffering, which Debian's is without, from Debian's source package, and prints the directory
# of what it made: libxenlight and the libraries of its own version that it needs, and libxl-save-helper. They go where
# Debian's are; xl stays Debian's.
#
#   xen/libxl.sh
#
# xen/libxl/*.patch are applied; each says why. What has not changed since the last time is not built again.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
cache=${LAXITY_XEN_CACHE:-$root/target/xen}
build=$cache/libxl
log=$build/build.log

# shellcheck source=source.sh
. "$here/source.sh"

# Program and its Debian package; and a file and the package that has it.
missing=()
for entry in gcc:gcc make:make perl:perl python3:python3 patch:patch iasl:acpica-tools pkg-config:pkg-config \
    dpkg-source:dpkg-dev apt-get:apt flock:util-linux; do
    command -v "${entry%%:*}" >/dev/null || missing+=("${entry##*:}")
done
for entry in stdlib.h:libc6-dev yajl/yajl_gen.h:libyajl-dev uuid/uuid.h:uuid-dev zlib.h:zlib1g-dev \
    libnl3/netlink/netlink.h:libnl-3-dev libnl3/netlink/route/qdisc/plug.h:libnl-route-3-dev; do
    [[ -f /usr/include/${entry%%:*} ]] || missing+=("${entry##*:}")
done
((!${#missing[@]})) || die "libxl with network buffering cannot be built without: ${missing[*]}" \
    "install them as root: apt-get install ${missing[*]}"

mkdir -p "$source" "$build"
exec 9>"$cache/lock"
flock 9
fetch_source

inputs() { cat "$here"/libxl.sh "$here"/libxl/*.patch "$source"/tree/debian/changelog | sha256sum; }
if [[ -f $build/inputs && $(<"$build/inputs") == "$(inputs)" ]]; then
    echo "$build/made"
    exit
fi
echo 'building libxl with network buffering, some minutes once' >&2
rm -rf "$build"
mkdir -p "$build/tree" "$build/made"
cp -a "$source"/tree/{tools,xen,config,Config.mk,version.sh} "$build/tree/"
for patch in "$here"/libxl/*.patch; do
    patch --silent --directory "$build/tree" -p1 <"$patch" >"$log" 2>&1 ||
        die "${patch#"$root/"} does not apply to this version of Xen" "see $log"
done

# What `configure` would find out: nothing but these libraries is built, and where things are is as in Debian's package.
libexec=/usr/lib/xen-4.17
cat >"$build/tree/config/Paths.mk" <<END
prefix := /usr
bindir := /usr/bin
sbindir := /usr/sbin
libdir := /usr/lib/x86_64-linux-gnu
includedir := /usr/include
libexecdir := /usr/lib
sysconfdir := /etc
localstatedir := /var
LIBEXEC := $libexec
LIBEXEC_BIN := $libexec/bin
SHAREDIR := /usr/share
XEN_RUN_DIR := /var/run/xen
XEN_LOG_DIR := /var/log/xen
XEN_LIB_DIR := /var/lib/xen
XEN_RUN_STORED := /var/run/xenstored
CONFIG_DIR := /etc
XEN_LOCK_DIR := /var/lock
XEN_PAGING_DIR := /var/lib/xen/xenpaging
XEN_DUMP_DIR := /var/lib/xen/dump
XENFIRMWAREDIR := $libexec/boot
XEN_CONFIG_DIR := /etc/xen
XEN_SCRIPT_DIR := /etc/xen/scripts
PKG_INSTALLDIR := /usr/lib/x86_64-linux-gnu/pkgconfig
END
cat >"$build/tree/config/Tools.mk" <<END
-include \$(XEN_ROOT)/config/Paths.mk
CONFIG_WERROR := n
PYTHON := python3
PERL := perl
IASL := iasl
AWK := awk
PTHREAD_CFLAGS := -pthread
PTHREAD_LDFLAGS := -pthread
LIBNL3_LIBS := $(pkg-config --libs libnl-3.0 libnl-route-3.0)
LIBNL3_CFLAGS := $(pkg-config --cflags libnl-3.0 libnl-route-3.0)
CONFIG_LIBNL := y
CONFIG_PV_SHIM := n
END
cat >"$build/tree/tools/config.h" <<END
#define HAVE_LIBYAJL 1
#define HAVE_LIBZ 1
#define HAVE_PIPE2 1
#define HAVE_SYS_EVENTFD_H 1
#define HAVE_UTMP_H 1
#define HAVE_YAJL_YAJL_VERSION_H 1
#define INCLUDE_ENDIAN_H <endian.h>
#define LIBEXEC_BIN "$libexec/bin"
#define QEMU_XEN_PATH "/usr/libexec/xen-qemu-system-i386"
#define STUBDOM_QMP_PROXY_PATH "$libexec/bin/vchan-socket-proxy"
#define XENFIRMWAREDIR "$libexec/boot"
#define XEN_CONFIG_DIR "/etc/xen"
#define XEN_DUMP_DIR "/var/lib/xen/dump"
#define XEN_LIB_DIR "/var/lib/xen"
#define XEN_LOCK_DIR "/var/lock"
#define XEN_LOG_DIR "/var/log/xen"
#define XEN_RUN_DIR "/var/run/xen"
#define XEN_SCRIPT_DIR "/etc/xen/scripts"
END

unset MAKEFLAGS MFLAGS MAKELEVEL
make_in() { make -C "$build/tree/tools/$1" -j"${LAXITY_JOBS:-$(nproc)}" XEN_TARGET_ARCH=x86_64 "${@:2}"; }
build_all() {
    make_in include || return
    local library
    for library in toolcore toollog evtchn gnttab call foreignmemory devicemodel ctrl hypfs store guest; do
        make_in "libs/$library" all || return
    done
    make_in libs/light libxenlight.so libxl-save-helper
}
build_all >"$log" 2>&1 || {
    grep -E ' error: |: \*\*\* ' "$log" | head -5 >&2 || true
    die 'libxl did not build' "see $log"
}
for library in ctrl guest light; do
    for path in "$build/tree/tools/libs/$library"/libxen*.so.4.17; do
        cp -L "$path" "$build/made/"
    done
done
cp "$build/tree/tools/libs/light/libxl-save-helper" "$build/made/"
strip --strip-unneeded "$build/made"/*
inputs >"$build/inputs"
echo "$build/made"
