#!/bin/sh
# Makes go.mod and go.sum anew. Run it only when a version below moves; the
# results are committed, so that a build needs no resolution step.
#
# k8s.io/kubernetes requires its staging modules at v0.0.0 and replaces them by
# folders of its own tree. Whoever uses it as a library has to point each of
# them at the release that carries the same code.
set -eu
cd "$(dirname "$0")"

kubernetes=v1.34.4
staging=v0.34.4
etcd=v3.6.8
kube_vip=v0.9.1

rm -f go.mod go.sum
go mod init github.com/harvester/harvester-load-balancer/e2e/plane
dir=$(go mod download -json "k8s.io/kubernetes@$kubernetes" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
set -- -require="k8s.io/kubernetes@$kubernetes" \
	-require="go.etcd.io/etcd/server/v3@$etcd" \
	-require="github.com/kube-vip/kube-vip@$kube_vip" \
	-require="k8s.io/kubectl@$staging"
for module in $(awk '/=> .\/staging/{print $1}' "$dir/go.mod"); do
	set -- "$@" "-replace=$module=$module@$staging"
done
go mod edit "$@"
go mod tidy -e
