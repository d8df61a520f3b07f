#!/bin/sh
# Makes go.mod and go.sum anew. Run it only when the version below moves; the
# results are committed, so that a build needs no resolution step.
set -eu
cd "$(dirname "$0")"

helm=v3.19.5

rm -f go.mod go.sum
go mod init github.com/harvester/harvester-load-balancer/e2e/helm
go get -tool "helm.sh/helm/v3/cmd/helm@$helm"
