#!/usr/bin/env bash
# Builds the control plane's programs, one file, to the path given. The version
# that they call themselves is that of the module.
set -euo pipefail
out=$(realpath -m "${1:?usage: build.sh FILE}")
cd "$(dirname "$0")"
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
IFS=. read -r major minor _ <<<"${version#v}"
of=k8s.io/component-base/version
mkdir -p "$(dirname "$out")"
CGO_ENABLED=0 go build -ldflags "-s -w -X $of.gitVersion=$version -X $of.gitMajor=$major -X $of.gitMinor=$minor" -o "$out" .
