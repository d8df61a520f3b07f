#!/bin/sh
# Builds the control plane of the test bed into one static binary, once, and
# prints its path on standard output. Progress goes to standard error.
#
#	build.sh FOLDER
#
# The binary's name carries a digest of its sources: while they are unchanged
# the folder's binary is used as it is. The flags stay the same for ever on
# purpose, since each combination of them fills a build cache of its own.
set -eu
out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")"

digest=$(cat main.go go.mod go.sum build.sh | sha256sum | cut -c1-16)
binary=$out/plane-$digest
if [ -x "$binary" ]; then
	echo "$binary"
	exit 0
fi

# Several test binaries may ask at once: the first one builds, the others wait.
if command -v flock >/dev/null 2>&1; then
	exec 9>"$out/lock"
	flock 9
	if [ -x "$binary" ]; then
		echo "$binary"
		exit 0
	fi
fi

command -v go >/dev/null 2>&1 || {
	echo "plane: the Go toolchain is not on PATH; it builds the control plane that the demo and the tests run on" >&2
	exit 1
}

export CGO_ENABLED=0
kubernetes=$(awk '$1 == "k8s.io/kubernetes" {print $2; exit}' go.mod)
minor=$(echo "$kubernetes" | cut -d. -f2)
ld="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	ld="$ld -X $package.gitVersion=$kubernetes -X $package.gitMajor=1 -X $package.gitMinor=$minor -X $package.gitTreeState=clean"
	ld="$ld -X $package.gitCommit=$digest -X $package.buildDate=2026-01-01T00:00:00Z"
done

echo "plane: fetching modules" >&2
total=$(go list -mod=readonly -deps . | wc -l)
echo "plane: building Kubernetes $kubernetes, etcd, kube-vip and kubectl: up to $total packages, 5 to 15 minutes on two cores the first time" >&2

log=$(mktemp "$out/build.XXXXXX")
trap 'rm -f "$log" "$binary.part"' EXIT
if ! { go build -mod=readonly -v -trimpath -ldflags "$ld" -o "$binary.part" . 2>&1 || echo "plane: build failed" ; } |
	tee "$log" |
	awk -v total="$total" '
		/^[a-z0-9.]+(\/[^ ]+)*$/ { n++; if (n % 50 == 0) { printf "plane: %4d of %d packages\n", n, total; fflush() } next }
		{ print; fflush() }' >&2 || grep -q '^plane: build failed$' "$log"; then
	exit 1
fi
mv "$binary.part" "$binary"
echo "$binary"
