// Controlplane is the programs of a Kubernetes control plane in one file, for
// tests: each is upstream's own, with its own flags, and runs in a process of its own.
//
//	controlplane etcd FLAGS
//	controlplane kube-apiserver FLAGS
//	controlplane kube-controller-manager FLAGS
//	controlplane kube-scheduler FLAGS
//
// Package controlplane of the main module starts them. One file instead of four
// saves disk and link time: nearly all of their code is the same.
package main

import (
	"fmt"
	"os"
	"strings"
	_ "time/tzdata" // time zones of CronJobs

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	name := ""
	if len(os.Args) > 1 {
		name = os.Args[1]
		// The rest of each program must see what it would see alone.
		os.Args = append([]string{name}, os.Args[2:]...)
	}
	command := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllermanager.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	}[name]
	switch {
	case name == "etcd":
		etcdmain.Main(os.Args)
	case command != nil:
		os.Exit(cli.Run(command()))
	default:
		fmt.Fprintf(os.Stderr, "controlplane: no program %q (%s)\n", name,
			strings.Join([]string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}, ", "))
		os.Exit(2)
	}
}
