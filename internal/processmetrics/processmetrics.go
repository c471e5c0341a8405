// Package processmetrics tells under upstream's names what program a process is
// and what it uses: kubernetes_build_info, go_* and process_*.
package processmetrics

import (
	goruntime "runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/holdfast-dev/holdfast/internal/version"
)

// Register adds the metrics of this process to a registry, which must not have
// them yet.
func Register(to prometheus.Registerer) {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubernetes_build_info", Help: "Always 1; its labels are the version of Kubernetes that the program is built from.",
	}, []string{"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform"})
	info.With(buildInfo()).Set(1)
	to.MustRegister(info,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// buildInfo reads what the linker knows. The commit is this program's own.
func buildInfo() prometheus.Labels {
	labels := prometheus.Labels{
		"git_version": version.Kubernetes, "git_commit": "", "git_tree_state": "", "build_date": "",
		"go_version": goruntime.Version(), "compiler": goruntime.Compiler, "platform": goruntime.GOOS + "/" + goruntime.GOARCH,
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(version.Kubernetes, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	labels["major"], labels["minor"] = major, minor
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return labels
	}
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			labels["git_commit"] = setting.Value
		case "vcs.time":
			labels["build_date"] = setting.Value
		case "vcs.modified":
			labels["git_tree_state"] = map[string]string{"true": "dirty", "false": "clean"}[setting.Value]
		}
	}
	return labels
}
