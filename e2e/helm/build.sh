#!/bin/sh
# Builds helm, once, and prints the path of the binary on standard output.
# Progress goes to standard error. Only the tests of the chart need it.
#
#	build.sh FOLDER
#
# The binary is in a folder whose name carries a digest of its sources: while
# they are unchanged it is used as it is. The flags stay the same, since each
# combination of them fills a build cache of its own.
set -eu
out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")"

digest=$(cat go.mod go.sum build.sh | sha256sum | cut -c1-16)
folder=$out/helm-$digest
if [ -x "$folder/helm" ]; then
	echo "$folder/helm"
	exit 0
fi

# Several test binaries may ask at once: the first one builds, the others wait.
if command -v flock >/dev/null 2>&1; then
	exec 9>"$out/helm.lock"
	flock 9
	if [ -x "$folder/helm" ]; then
		echo "$folder/helm"
		exit 0
	fi
fi

command -v go >/dev/null 2>&1 || {
	echo "helm: the Go toolchain is not on PATH; it builds helm, which the tests of the chart run" >&2
	exit 1
}

export CGO_ENABLED=0
version_of() { awk -v module="$1" '$1 == module {print $2; exit}' go.mod; }
# What helm's own build sets: its version, and that of Kubernetes when no cluster is asked.
minor=$(version_of k8s.io/client-go | cut -d. -f2)
ld="-s -w -X helm.sh/helm/v3/internal/version.version=$(version_of helm.sh/helm/v3)"
for package in pkg/lint/rules pkg/chartutil; do
	ld="$ld -X helm.sh/helm/v3/$package.k8sVersionMajor=1 -X helm.sh/helm/v3/$package.k8sVersionMinor=$minor"
done

echo "helm: building helm $(version_of helm.sh/helm/v3), two to three minutes on two cores the first time" >&2
mkdir -p "$folder"
trap 'rm -f "$folder/helm.part"' EXIT
go build -mod=readonly -trimpath -ldflags "$ld" -o "$folder/helm.part" helm.sh/helm/v3/cmd/helm >&2
mv "$folder/helm.part" "$folder/helm"
echo "$folder/helm"
