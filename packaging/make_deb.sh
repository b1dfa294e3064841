#!/usr/bin/env bash
# Makes a Debian package of a built program, with dpkg's own tools only.
#
#   packaging/make_deb.sh PROGRAM FOLDER    writes FOLDER/tally_VERSION_ARCH.deb
#   packaging/make_deb.sh --name FOLDER     only prints that path
#
# The libraries it depends on are asked of dpkg-shlibdeps, so they are those of the system it is
# built on.  The same input gives the same bytes: times come from the last commit.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=$(sed -n 's/^project(tally VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
arch=$(dpkg --print-architecture)
name="tally_${version}_$arch.deb"

if [[ $1 == --name ]]; then
  printf '%s/%s\n' "$2" "$name"
  exit
fi
program=$(realpath "$1")
folder=$(realpath "$2")
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)
export SOURCE_DATE_EPOCH

work="$folder/package"
tree="$work/tree"
rm -rf "$work"
mkdir -p "$work/debian"
umask 022

install -D -m 755 "$program" "$tree/usr/bin/tally"
strip --strip-unneeded "$tree/usr/bin/tally"
install -D -m 644 "$root/packaging/tally.bash" "$tree/usr/share/bash-completion/completions/tally"
install -D -m 644 "$root/packaging/_tally" "$tree/usr/share/zsh/vendor-completions/_tally"
install -D -m 644 "$root/docs/tally.1" "$tree/usr/share/man/man1/tally.1"
docs="$tree/usr/share/doc/tally"
install -D -m 644 "$root/README.md" "$docs/README.md"
for one in design exactness formats glossary; do
  [[ -f $root/docs/$one.md ]] && install -D -m 644 "$root/docs/$one.md" "$docs/$one.md"
done
install -m 644 "$root/CHANGELOG.md" "$docs/changelog"
{
  printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n'
  printf 'Upstream-Name: tally\n\nFiles: *\nCopyright: 2026 The Tally authors\nLicense: MIT\n'
  sed -n '/^Permission/,$ { s/^$/./; s/^/ /; p }' "$root/LICENSE"
} >"$docs/copyright"
gzip -9n "$docs/changelog" "$tree/usr/share/man/man1/tally.1"

# dpkg-shlibdeps wants to stand in a source package.
printf 'Source: tally\n\nPackage: tally\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O "tree/usr/bin/tally" 2>shlibdeps.log |
  sed -n 's/^shlibs:Depends=//p')
[[ -n $depends ]] || { cat "$work/shlibdeps.log" >&2; echo "no dependencies found" >&2; exit 1; }

mkdir -p "$tree/DEBIAN"
cat >"$tree/DEBIAN/control" <<CONTROL
Package: tally
Version: $version
Architecture: $arch
Maintainer: The Tally authors <tally@localhost>
Installed-Size: $(du -sk --apparent-size "$tree/usr" | cut -f1)
Depends: $depends
Section: devel
Priority: optional
Description: exact execution profiles of unmodified programs
 Tally counts how often every basic block and every control-flow edge of a
 Linux x86-64 program ran: exactly, without its source, a debug build or
 hardware counters, and close to native speed.  A count is exact, or Tally
 says which count is not, and why.
CONTROL
(cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
find "$tree" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group --build "$tree" "$folder/$name" >/dev/null
printf 'made: %s\n' "${folder#"$root"/}/$name"
