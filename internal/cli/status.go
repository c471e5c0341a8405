package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/internal/control"
)

// PrintReport writes what a node runs and what is wrong with it.
func PrintReport(w io.Writer, r *control.Report, format Format, now time.Time) error {
	if done, err := format.Data(w, r); done {
		return err
	}
	switch {
	case r.PID == 0:
		fmt.Fprintf(w, "Node %s is not running (root folder %s).\n", r.Node, r.RootDir)
	case r.Ready:
		fmt.Fprintf(w, "Node %s is ready: process %d, up %s.\n", r.Node, r.PID, Age(r.Started, now))
	default:
		fmt.Fprintf(w, "Node %s is not ready: process %d, up %s.\n", r.Node, r.PID, Age(r.Started, now))
	}
	if format == Wide {
		fmt.Fprintf(w, "Version      %s\nInstance     %s\nRoot folder  %s\nManifests    %s\nAPI          %s\nKubeconfig   %s\n",
			r.Version, r.ID, r.RootDir, r.ManifestDir, strings.Join(append([]string{r.API}, r.APIOutside...), " "), r.Kubeconfig)
	}
	if format == Wide && len(r.Certificates) > 0 {
		fmt.Fprintln(w)
		if err := printCertificates(w, r.Certificates); err != nil {
			return err
		}
	}
	if len(r.Parts) > 0 {
		fmt.Fprintln(w)
		if err := printParts(w, r.Parts, now); err != nil {
			return err
		}
	}
	if len(r.Sources) > 0 {
		fmt.Fprintln(w)
		if err := printSources(w, r.Sources, now); err != nil {
			return err
		}
	}
	if len(r.Pods) > 0 {
		fmt.Fprintln(w)
		if err := printPods(w, r.Pods, format, now); err != nil {
			return err
		}
	}
	if len(r.Images) > 0 {
		fmt.Fprintln(w)
		if err := printImages(w, r.Images); err != nil {
			return err
		}
	}
	printFaults(w, r.Faults, now)
	return nil
}

func printCertificates(w io.Writer, certificates []control.Certificate) error {
	grid := NewGrid(w, "certificate", "expires", "file")
	for _, c := range certificates {
		expires := "never"
		if !c.Expires.IsZero() {
			expires = c.Expires.UTC().Format(time.DateOnly)
		}
		grid.Row(c.Name, expires, c.File)
	}
	return grid.Flush()
}

func printParts(w io.Writer, parts []control.Part, now time.Time) error {
	grid := NewGrid(w, "part", "state", "since", "message")
	for _, p := range parts {
		grid.Row(p.Name, p.State, Age(p.Since, now), p.Message)
	}
	return grid.Flush()
}

func printPods(w io.Writer, pods []control.Pod, format Format, now time.Time) error {
	heads := []string{"namespace", "pod", "source", "ready", "status", "restarts", "age"}
	if format == Wide {
		heads = append(heads, "ip", "message")
	}
	grid := NewGrid(w, heads...)
	for _, p := range pods {
		status := p.Phase
		if p.Reason != "" {
			status = p.Reason
		}
		row := []any{p.Namespace, p.Name, p.Source, fmt.Sprintf("%d/%d", p.Ready, p.Total), status, p.Restarts, Age(p.Started, now)}
		if format == Wide {
			row = append(row, p.IP, p.Message)
		}
		grid.Row(row...)
	}
	return grid.Flush()
}

func printImages(w io.Writer, images []control.Image) error {
	grid := NewGrid(w, "image archive", "state", "images")
	for _, i := range images {
		grid.Row(i.File, i.State, strings.Join(i.Names, " "))
	}
	return grid.Flush()
}

func printFaults(w io.Writer, faults []control.Fault, now time.Time) {
	if len(faults) == 0 {
		fmt.Fprintln(w, "\nNothing is wrong.")
		return
	}
	fmt.Fprintln(w, "\nWrong:")
	for _, f := range faults {
		printFault(w, f, now)
	}
}

// FaultLine writes a fault on one line: place, object, field, what is wrong.
func FaultLine(f control.Fault) string {
	var parts []string
	switch {
	case f.File != "" && f.Line > 0:
		parts = append(parts, fmt.Sprintf("%s:%d", visible(f.File), f.Line))
	case f.File != "":
		parts = append(parts, visible(f.File))
	}
	for _, s := range []string{f.Object, f.Field, f.Message} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ": ")
}
