#!/bin/sh
# Vets the source of the control plane's binary, once: `go vet` walks every
# package below it, which takes a minute and a half for one file of ours.
#
#	vet.sh FOLDER
#
# The stamp in the folder carries a digest of all that the verdict depends on,
# the Go version among it.
set -eu
out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")"

go=${GO:-go}
export CGO_ENABLED=0
digest=$({ cat main.go go.mod go.sum vet.sh && "$go" env GOVERSION; } | sha256sum | cut -c1-16)
stamp=$out/vetted-$digest
[ ! -f "$stamp" ] || exit 0

# With the flags of the build (build.sh), so that both share a cache.
echo "plane: vetting main.go and what is below it, a minute or two" >&2
"$go" vet -mod=readonly -trimpath .
rm -f "$out"/vetted-*
: >"$stamp"
