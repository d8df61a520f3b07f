#!/bin/sh
# Makes the root file system of the image in a new folder:
#
#	rootfs.sh PROGRAM FOLDER [BILL-OF-MATERIALS]
set -eu
[ $# -eq 2 ] || [ $# -eq 3 ] || {
	echo "usage: rootfs.sh PROGRAM FOLDER [BILL-OF-MATERIALS]" >&2
	exit 2
}
here=$(cd "$(dirname "$0")" && pwd)
# The same modes whatever the user's mask.
umask 022
mkdir "$2"
mkdir -p "$2/usr/bin" "$2/usr/share/harvester-load-balancer" "$2/etc"
cp "$1" "$2/usr/bin/harvester-load-balancer"
chmod 755 "$2/usr/bin/harvester-load-balancer"
# One program under two names: charts call it by either.
ln -s harvester-load-balancer "$2/usr/bin/harvester-load-balancer-webhook"
for file in passwd group; do
	cp "$here/$file" "$2/etc/$file"
	chmod 644 "$2/etc/$file"
done
cp "$here/../LICENSE" "$2/usr/share/harvester-load-balancer/LICENSE"
chmod 644 "$2/usr/share/harvester-load-balancer/LICENSE"
if [ $# -eq 3 ]; then
	cp "$3" "$2/usr/share/harvester-load-balancer/sbom.cdx.json"
	chmod 644 "$2/usr/share/harvester-load-balancer/sbom.cdx.json"
fi
