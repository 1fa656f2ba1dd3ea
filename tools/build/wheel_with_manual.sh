#!/usr/bin/env bash
# Adds the man pages and the shell completion of `laxity` to a wheel, where man and the shells look for them beside the
# directory of the command. They are made from the command itself, and so cannot be there when the wheel is built.
#
#   tools/build/wheel_with_manual.sh WHEEL MANUAL DIRECTORY
set -euo pipefail

wheel=$1 manual=$2 directory=$3
python=$(cd "$(dirname "$0")/../.." && pwd)/.venv/bin/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m wheel unpack "$wheel" --dest "$work" >/dev/null
tree=$(echo "$work"/*)
share=$tree/$(basename "$tree").data/data/share
mkdir -p "$share"/{man/man1,bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
# Pages of the programs that are not Python are in their Debian packages.
for page in "$manual"/man/*.1; do
    case $(basename "$page") in
    laxity-bandwidth* | laxity-media* | laxity-protect*) ;;
    *) cp "$page" "$share/man/man1/" ;;
    esac
done
cp "$manual/completion/laxity.bash" "$share/bash-completion/completions/laxity"
cp "$manual/completion/_laxity" "$share/zsh/site-functions/"
cp "$manual/completion/laxity.fish" "$share/fish/vendor_completions.d/"
"$python" -m wheel pack "$tree" --dest-dir "$directory" >/dev/null
