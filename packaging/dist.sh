#!/bin/sh
# Makes the archive of one version from a finished binary, and its checksum: packaging/dist.sh VERSION BINARY DIRECTORY.
# The same binary and sources give the same bytes, whoever runs this, wherever and whenever.
set -eu
export LC_ALL=C
umask 022

version=$1 binary=$2 directory=$3
sources=$(cd "$(dirname "$0")/.." && pwd)
case $binary in */*) ;; *) binary=./$binary ;; esac
# When the sources are from; SOURCE_DATE_EPOCH says it where there is no history.
when=${SOURCE_DATE_EPOCH:-$(git -C "$sources" log -1 --format=%ct)}
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*) arch=$(uname -m) ;;
esac

mkdir -p "$directory"
work=$(mktemp -d "$directory/.dist.XXXXXX")
trap 'rm -rf "$work"' EXIT
top=$work/refit
mkdir -p "$top/etc/systemd"
"$binary" stamp --version "$version" "$binary" "$top/refit" >&2
chmod 755 "$top/refit"
ln -s refit "$top/refitctl"
ln -s refit "$top/refit-update"
install -m 644 "$sources"/packaging/systemd/refit.service "$sources"/packaging/systemd/refit-update.* "$top/etc/systemd/"
install -m 644 "$sources/LICENSE" "$sources/README.md" "$top/"

# As the binary itself writes it, so without a leading v.
told=$("$top/refit" version)
version=$(expr "$told" : 'refit v\([^ ]*\) (')
edition=$(expr "$told" : '.*(\([a-z-]*\))$')
name=refit-$edition-v$version-linux-$arch-bin.tar.gz
tar --create --directory "$work" --format=gnu --sort=name --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' \
  --mtime="@$when" refit >"$work/tar"
gzip -n "-${DIST_GZIP_LEVEL:-9}" <"$work/tar" >"$work/$name"
(cd "$work" && sha256sum "$name" >"$name.sha256")
# The checksum last: whoever sees it sees the archive that it belongs to.
mv "$work/$name" "$directory/$name"
mv "$work/$name.sha256" "$directory/$name.sha256"
echo "$directory/$name"
