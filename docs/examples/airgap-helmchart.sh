#!/bin/sh
# Writes a HelmChart object that contains the packed chart, so that the cluster downloads nothing but the image:
#
#	helm package charts/harvester-load-balancer
#	airgap-helmchart.sh harvester-load-balancer-0.1.0.tgz registry.example.com >helmchart.yaml
#	kubectl apply -f helmchart.yaml
set -eu
[ $# -eq 2 ] && [ -r "$1" ] || {
	echo "usage: airgap-helmchart.sh CHART.tgz REGISTRY" >&2
	exit 2
}
cat <<EOF
apiVersion: helm.cattle.io/v1
kind: HelmChart
metadata:
  name: harvester-lb
  namespace: kube-system
spec:
  targetNamespace: harvester-system
  failurePolicy: abort
  chartContent: $(base64 <"$1" | tr -d '\n')
  valuesContent: |
    image:
      repository: $2/rancher/harvester-load-balancer
EOF
