#!/bin/sh
# Builds the programs that Holdfast runs pods with, from the modules pinned in
# this folder's go.mod:
#
#   OUTDIR/{containerd,containerd-shim-runc-v2,ctr,runc,demo}
#   OUTDIR/cni/{bridge,host-local,loopback,portmap}
#
# Usage: runtime/build.sh OUTDIR
#
# go build is incremental, so a second run takes seconds. runc is the only one
# that needs C: it enters namespaces before the Go runtime starts. It is linked
# statically so that all of these run on any distribution; libseccomp's headers
# and its static library (Debian: libseccomp-dev) must be there.
set -eu

if [ $# -ne 1 ]; then
	echo "usage: $0 OUTDIR" >&2
	exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)

if ! pkg-config --exists libseccomp 2>/dev/null && [ ! -e /usr/include/seccomp.h ]; then
	echo "$0: libseccomp's headers are missing: apt-get install libseccomp-dev" >&2
	exit 1
fi

# One file is replaced in one step: the old program may be running.
# build CGO TAGS LDFLAGS NAME PACKAGE
build() {
	echo "build $4"
	CGO_ENABLED=$1 go build -C "$here" -trimpath -tags "$2" -ldflags "-s -w $3" -o "$out/$4.new" "$5"
	if cmp -s "$out/$4.new" "$out/$4"; then
		rm -f "$out/$4.new"
	else
		mv -f "$out/$4.new" "$out/$4"
	fi
}

# version MODULE prints the pinned version, stamped into the programs.
version() { go list -C "$here" -m -f '{{.Version}}' "$1"; }

containerd=github.com/containerd/containerd/v2
stamp="-X $containerd/version.Version=$(version $containerd)"
# Snapshotters and tracing that a node on overlayfs never loads.
trim="no_aufs no_btrfs no_devmapper no_zfs no_erofs no_tracing urfave_cli_no_docs"

build 0 "$trim" "$stamp" containerd "$containerd/cmd/containerd"
build 0 "$trim" "$stamp" containerd-shim-runc-v2 "$containerd/cmd/containerd-shim-runc-v2"
build 0 "$trim" "$stamp" ctr "$containerd/cmd/ctr"

build 1 "seccomp netgo osusergo urfave_cli_no_docs" \
	"-extldflags -static -X main.version=$(version github.com/opencontainers/runc)" \
	runc github.com/opencontainers/runc

mkdir -p "$out/cni"
plugins=github.com/containernetworking/plugins
about="-X $plugins/pkg/utils/buildversion.BuildVersion=$(version $plugins)"
build 0 "" "$about" cni/bridge "$plugins/plugins/main/bridge"
build 0 "" "$about" cni/loopback "$plugins/plugins/main/loopback"
build 0 "" "$about" cni/host-local "$plugins/plugins/ipam/host-local"
build 0 "" "$about" cni/portmap "$plugins/plugins/meta/portmap"

if [ -d "$here/../cmd/demo" ]; then
	echo "build demo"
	CGO_ENABLED=0 go build -C "$here/.." -trimpath -ldflags "-s -w -buildid=" -o "$out/demo.new" ./cmd/demo
	if cmp -s "$out/demo.new" "$out/demo"; then rm -f "$out/demo.new"; else mv -f "$out/demo.new" "$out/demo"; fi
fi
