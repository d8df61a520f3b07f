#!/bin/sh
# Copies the image from its archive to a registry that the nodes can reach:
#
#	airgap-registry.sh harvester-load-balancer-amd64.oci.tar registry.example.com/rancher/harvester-load-balancer:v0.1.0
#
# Further arguments go to skopeo, such as --dest-creds=USER:PASSWORD, or --dest-tls-verify=false for a registry without TLS.
set -eu
[ $# -ge 2 ] || {
	echo "usage: airgap-registry.sh ARCHIVE IMAGE [FLAG...]" >&2
	exit 2
}
archive=$1 image=$2
shift 2
# The digest stays the same, so that it can be compared with the one that was published.
${SKOPEO:-skopeo} copy --preserve-digests "$@" "oci-archive:$archive" "docker://$image"
