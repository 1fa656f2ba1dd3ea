# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only
# What the scripts that build parts of Xen share: Debian's source of it, and how they complain. Sourced, with $cache set.

version='4.17.5+72-g01140da4e8-1' # Debian 12's; another 4.17 serves where this one is gone
source=$cache/source

die() {
    echo "error: $1" >&2
    [[ -z ${2:-} ]] || echo "  $2" >&2
    exit 1
}

# Debian's source package, by name, through this machine's own package sources.
fetch_source() {
    [[ ! -d $source/tree ]] || return 0
    echo 'fetching the source of Xen 4.17' >&2
    local work=$source/fetch lists=$source/fetch/lists
    rm -rf "$work"
    mkdir -p "$work/sources" "$lists/partial"
    local file
    for file in /etc/apt/sources.list.d/*.sources; do
        [[ -f $file ]] && sed -E 's/^Types:.*/Types: deb-src/' "$file" >"$work/sources/$(basename "$file")"
    done
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [[ -f $file ]] && sed -nE 's/^deb(-src)? /deb-src /p' "$file" >"$work/sources/$(basename "$file" .list).list"
    done
    local apt=(apt-get -qq -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$work/sources"
        -o "Dir::State::Lists=$lists" -o APT::Sandbox::User=root)
    "${apt[@]}" update >"$work/log" 2>&1 || true # a source that has no source packages is no harm
    (cd "$work" && { "${apt[@]}" source --download-only "xen=$version" >>log 2>&1 ||
        "${apt[@]}" source --download-only xen >>log 2>&1; }) ||
        die "Debian's source package xen could not be fetched" "see $work/log; it is in Debian 12, main"
    local description
    description=$(ls "$work"/xen_4.17*.dsc 2>/dev/null) ||
        die "this machine's package sources have no Xen 4.17" "Debian 12 (bookworm) has it"
    dpkg-source --no-check -x "$description" "$work/tree" >>"$work/log" 2>&1 ||
        die "Debian's source package xen could not be unpacked" "see $work/log"
    rm -rf "$source/tree"
    mv "$work/tree" "$source/tree"
    rm -rf "$work"
}
