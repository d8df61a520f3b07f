#!/bin/sh
# Builds the operator of an earlier revision, by default the last one before
# addresses that are excluded, requested, shared or leased, in a folder, and
# prints its path. The build does not touch this checkout; the history must have
# the revision.
#
#	before.sh FOLDER [REVISION]
set -eu
folder=$(mkdir -p "$1" && cd "$1" && pwd)
revision=${2:-3db4e34055eb15c03c452a76c90603efcdad7f7b}
cd "$(dirname "$0")/.."
git cat-file -e "$revision^{commit}" 2>/dev/null || {
	echo "the history has no $revision; a shallow clone gets it by git fetch --unshallow" >&2
	exit 1
}
source=$folder/source
trap 'git worktree remove --force "$source" >/dev/null 2>&1 || true' EXIT
git worktree add --force --detach "$source" "$revision" >&2
(cd "$source" && CARGO_TARGET_DIR=$folder/target cargo build --locked \
	--package harvester-load-balancer --bin harvester-load-balancer >&2)
cp "$folder/target/debug/harvester-load-balancer" "$folder/harvester-load-balancer"
echo "$folder/harvester-load-balancer"
