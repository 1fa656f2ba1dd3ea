#!/usr/bin/env bash
# Sees to the programs that Laxity is built and tested with. As root on Debian it installs what is missing;
# otherwise it says what is, and fails only for what nothing works without.
set -euo pipefail

# program, its Debian package, and what it is for; "needed" where nothing works without.
programs=(
    'gcc gcc needed'
    'g++ g++ the fuzzers'
    'clang clang the fuzzer of the policies'
    'clang-format clang-format the formatting of C'
    'flex flex the hypervisor'
    'bison bison the hypervisor'
    'patch patch the hypervisor'
    'dpkg-source dpkg-dev the hypervisor'
    'cpio cpio the tests of images'
    'qemu-system-x86_64 qemu-system-x86 the emulated machine'
    'ssh openssh-client runs on other hosts'
    'tshark tshark the tests of captures'
    'espeak-ng espeak-ng the reference speech, made anew'
    'rtpengine rtpengine-daemon the tests of another media server'
    'redis-server redis-server the tests of another media server'
    'kamailio kamailio the tests of SIP'
    'openssl openssl the keys of the signalling appliance'
    'sipp sip-tester the tests of SIP'
    'tc iproute2 the tests of bandwidth'
    'mke2fs e2fsprogs the tests of disks'
    'qemu-img qemu-utils the tests of disks'
    'systemd-analyze systemd the unit of the bandwidth daemon'
    'etcd etcd-server the witness of protection'
    'dnsmasq dnsmasq-base sites of balancers'
    'dig bind9-dnsutils the tests of sites'
    'mmdebstrap mmdebstrap the tests of packages'
    'mandoc mandoc the tests of packages'
    'chromium chromium the tests of pages'
    'chromedriver chromium-driver the tests of pages'
    'iasl acpica-tools libxl with network buffering'
    'pkg-config pkg-config libxl with network buffering'
)

missing=()
for entry in "${programs[@]}"; do
    read -r program package purpose <<<"$entry"
    command -v "$program" >/dev/null || missing+=("$package")
done
python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
# PESQ is built from its sources. Where Python did not come from Debian it has its headers.
python3 -c 'import pathlib, sys, sysconfig
sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())' || missing+=(python3-dev)
python3 -c 'import ctypes; ctypes.CDLL("libspandsp.so.2")' 2>/dev/null || missing+=(libspandsp2)
[[ -f /usr/lib/x86_64-linux-gnu/kamailio/modules/tls.so ]] || missing+=(kamailio-tls-modules)
# Codecs, whose costs are measured; Opus is also scored in captures.
for entry in libopus.so.0:libopus0 libbcg729.so.0:libbcg729-0; do
    python3 -c "import ctypes; ctypes.CDLL('${entry%%:*}')" 2>/dev/null || missing+=("${entry##*:}")
done
# clang brings its sanitizers' runtime in a package of its own.
if ! compgen -G '/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer*' >/dev/null; then
    missing+=(libclang-rt-14-dev)
fi

# Xen's headers and the static library of xenstore, for the programs that run in dom0 and in guests.
[[ -f /usr/include/xenstore.h ]] || missing+=(libxen-dev)

# What libxl with network buffering is built of: xen/libxl.sh.
for entry in libnl3/netlink/netlink.h:libnl-3-dev libnl3/netlink/route/qdisc/plug.h:libnl-route-3-dev \
    yajl/yajl_gen.h:libyajl-dev uuid/uuid.h:uuid-dev zlib.h:zlib1g-dev; do
    [[ -f /usr/include/${entry%%:*} ]] || missing+=("${entry##*:}")
done

if ((${#missing[@]})) && [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "installing Debian packages: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # Another checkout may be installing the same: apt waits for nobody who has the lists. Servers that
    # a package starts do not keep the lock.
    exec 9</var/lib/dpkg
    flock 9
    apt-get update -qq 9<&-
    apt-get install -y -qq -o DPkg::Lock::Timeout=600 --no-install-recommends "${missing[@]}" >/dev/null 9<&-
    exec 9<&-
elif ((${#missing[@]})); then
    echo "missing Debian packages: ${missing[*]}"
    echo "install them as root (apt-get install ${missing[*]}); tests that need them are skipped"
fi

for entry in "${programs[@]}"; do
    read -r program package purpose <<<"$entry"
    if [[ $purpose == needed ]] && ! command -v "$program" >/dev/null; then
        echo "error: nothing can be built without $program (Debian package $package)" >&2
        exit 1
    fi
done
command -v cargo >/dev/null || {
    echo 'error: nothing can be built without Rust 1.88 or newer (cargo)' >&2
    exit 1
}
