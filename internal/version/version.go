// Package version names the build.
package version

// Version is set by the linker; see the Makefile.
var Version = "unknown"

// Kubernetes is the version of the Kubernetes API and libraries inside.
const Kubernetes = "v1.37.2"
