package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/bench/podlife"
)

// markdown is the report for people.
func (r *report) markdown() string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "%s, version %s. %s, %d cores, %.0f GiB; Linux %s, cgroup %s; load before the run %s.\nRepeat with `make bench`.\n\n",
		r.Date.UTC().Format("2006-01-02 15:04 UTC"), r.Version, m.CPU, m.Cores, float64(m.Memory)/(1<<30), m.Kernel, m.Cgroup, m.Load)

	fmt.Fprintf(&b, "| seconds after the start of the process (%d each, the last %d) | median | min | max |\n|---|---|---|---|\n", len(r.Cold.API), len(r.Burst))
	for _, row := range []struct {
		what string
		s    podlife.Series
	}{
		{"new node: API answers", r.Cold.API},
		{"new node: ready for pods", r.Cold.Ready},
		{"new node: first pod Ready, its manifest in the folder", r.Cold.Pod},
		{"restart: API answers", r.Warm.API},
		{"restart: ready for pods", r.Warm.Ready},
		{"restart: its running pod is known as Ready", r.Warm.Pod},
		{"restart with 50 pods: API answers", r.WarmMany.API},
		{"restart with 50 pods: all known as Ready", r.WarmMany.Pod},
		{"50 manifests appear at once: all Ready, after the first write", r.Burst},
	} {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", row.what, seconds(row.s.Quantile(0.5)), seconds(row.s.Quantile(0)), seconds(row.s.Quantile(1)))
	}

	fmt.Fprintf(&b, "\n| pod through the API, seconds (%d pods, one at a time) | p50 | p90 | min | max |\n|---|---|---|---|---|\n", len(r.PodStart))
	for _, row := range []struct {
		what string
		s    podlife.Series
	}{
		{"create → Ready, image present", r.PodStart},
		{"delete → gone", r.PodDelete},
	} {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", row.what,
			seconds(row.s.Quantile(0.5)), seconds(row.s.Quantile(0.9)), seconds(row.s.Quantile(0)), seconds(row.s.Quantile(1)))
	}

	b.WriteString("\n| idle | anonymous, MiB | resident, MiB | CPU, % of a core | written, KiB a minute | containerd: anonymous, MiB | CPU, % | written, KiB a minute |\n|---|---|---|---|---|---|---|---|\n")
	for _, i := range r.Idle {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", count(i.Pods, "pod"),
			mib(i.Node.Anon), mib(i.Node.RSS), percent(i.Node.CPU, i.Over), kibPerMinute(i.Node.Written, i.Over),
			mib(i.Containerd.Anon), percent(i.Containerd.CPU, i.Over), kibPerMinute(i.Containerd.Written, i.Over))
	}
	fmt.Fprintf(&b, "| right after the %d pods above | %s | %s | | | | | |\n", len(r.PodStart)+warmUp, mib(r.AfterPods.Anon), mib(r.AfterPods.RSS))
	fmt.Fprintf(&b, "| `holdfast version`, at its peak: the floor | | %s | | | | | |\n", mib(r.VersionRSS))
	fmt.Fprintf(&b, "\nThe binary has %s MiB.", mib(r.BinarySize))
	if r.Build != nil {
		fmt.Fprintf(&b, " Compiled from nothing, with all modules there, in %s s; linked anew after a change in %s s.",
			seconds(r.Build.Cold), seconds(r.Build.Warm))
	}
	b.WriteString("\n")
	return b.String()
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()) }

func mib(bytes int64) string { return fmt.Sprintf("%.0f", float64(bytes)/(1<<20)) }

func kibPerMinute(bytes int64, over time.Duration) string {
	return fmt.Sprintf("%.0f", float64(bytes)/(1<<10)/over.Minutes())
}

func percent(used, of time.Duration) string {
	return fmt.Sprintf("%.2f", 100*used.Seconds()/of.Seconds())
}
