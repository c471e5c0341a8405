// Command configuration prints what upstream's kubelet takes for its
// configuration: with "defaults" the fields that have one, as YAML, and with
// "flags" the names of its flags, each with what it is without a value. Their
// output is in internal/kubeletconfig/testdata, and holds our reading to it.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	defaults "k8s.io/kubernetes/pkg/kubelet/apis/config/v1beta1"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "defaults":
		return printDefaults()
	case len(args) == 1 && args[0] == "flags":
		return printFlags()
	default:
		return errors.New("usage: configuration defaults|flags")
	}
}

func printDefaults() error {
	var k v1beta1.KubeletConfiguration
	defaults.SetDefaults_KubeletConfiguration(&k)
	text, err := yaml.Marshal(&k)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

func printFlags() error {
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		return err
	}
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	options.NewKubeletFlags().AddFlags(fs)
	options.AddKubeletConfigFlags(fs, config)
	options.AddGlobalFlags(fs)
	fs.VisitAll(func(f *pflag.Flag) { fmt.Printf("%s\t%s\n", f.Name, f.NoOptDefVal) })
	return nil
}
