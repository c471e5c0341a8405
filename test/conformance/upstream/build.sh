#!/usr/bin/env bash
# Builds upstream's node tests, their runner and the programs of their images
# into the folder given.
set -euo pipefail
out=$(realpath -m "${1:?usage: build.sh FOLDER}")
cd "$(dirname "$0")"
mkdir -p "$out"
export CGO_ENABLED=0
go build -ldflags '-s -w' -o "$out/ginkgo" github.com/onsi/ginkgo/v2/ginkgo
for program in agnhost nonewprivs; do
	go build -ldflags '-s -w' -o "$out/$program" "k8s.io/kubernetes/test/images/$program"
done
install -m 0644 "$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)"/test/images/agnhost/porter/localhost.{crt,key} "$out"
(cd ../../.. && go build -ldflags '-s -w' -o "$out/fetch" ./test/conformance/fetch)
go test -c -ldflags '-s -w' -o "$out/e2e_node.test" k8s.io/kubernetes/test/e2e_node
