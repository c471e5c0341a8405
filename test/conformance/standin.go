package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-dev/holdfast/internal/instance"
)

// Upstream's tests stop, set up and start the kubelet by "sudo systemctl". A
// stand-in of these two names, first on the tests' path, does it to the node
// under test.

const (
	standInUnit = "kubelet-conformance" // the tests look for kubelet-…
	standInEnv  = "HOLDFAST_CONFORMANCE_NODE"
	// settingsFile is where the tests write a KubeletConfiguration that the next
	// start is to take, in their folder.
	settingsFile = "kubelet-config"
	baseFile     = "kubelet-config-base"
	patience     = 2 * time.Minute
)

// standIn makes a folder with the stand-ins, and returns what the tests' need in
// their environment. program is one that calls StandIn when it has their name.
func (n *Node) standIn(program string) ([]string, error) {
	dir := filepath.Join(n.Root, "standin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, name := range []string{"sudo", "systemctl"} {
		if err := os.Symlink(program, filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
	}
	return []string{
		"PATH=" + dir + ":" + os.Getenv("PATH"),
		standInEnv + "=" + strings.Join([]string{n.Binary, n.Root, n.Mirror}, " "),
	}, nil
}

// StandIn does what sudo or systemctl are asked for, if that is the name that
// this program was called by.
func StandIn(ctx context.Context, argv []string, stdout io.Writer) (asked bool, err error) {
	switch name := filepath.Base(argv[0]); {
	case name == "sudo" && len(argv) > 1:
		path, err := exec.LookPath(argv[1])
		if err != nil {
			return true, err
		}
		return true, syscall.Exec(path, argv[1:], os.Environ())
	case name == "systemctl" && len(argv) > 1:
		of := strings.Fields(os.Getenv(standInEnv))
		if len(of) != 3 {
			return true, fmt.Errorf("systemctl: %s does not say for which node", standInEnv)
		}
		return true, (&Node{Binary: of[0], Root: of[1], Mirror: of[2]}).systemctl(ctx, argv[1], stdout)
	default:
		return false, nil
	}
}

func (n *Node) systemctl(ctx context.Context, verb string, stdout io.Writer) error {
	switch verb {
	case "list-units":
		_, err := fmt.Fprintf(stdout, "%s.service loaded active running the kubelet of the node under test\n", standInUnit)
		return err
	case "reset-failed":
		return nil
	case "stop", "kill":
		return n.stop(ctx)
	case "start":
		return n.up(ctx)
	case "restart":
		return errors.Join(n.stop(ctx), n.up(ctx))
	default:
		return fmt.Errorf("systemctl %s: the stand-in cannot do that", verb)
	}
}

// stop ends the agent; its pods run on.
func (n *Node) stop(ctx context.Context) error {
	in, err := instance.Open(n.Root)
	if err != nil {
		return err
	}
	text, running := in.Running()
	if !running {
		return nil
	}
	pid, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if _, running := in.Running(); !running {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d does not end: %w", pid, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// up starts the agent with what the tests have written for the kubelet.
func (n *Node) up(ctx context.Context) error {
	settings, err := changed(baseFile, settingsFile)
	if err != nil {
		return err
	}
	config, err := n.writeConfig(settings)
	if err != nil {
		return err
	}
	_, err = n.holdfast(ctx, "up", "--detach", "--config", config)
	return err
}

// changed returns the fields of the KubeletConfiguration in one file that differ
// from those in another; nothing if there is no such file. What became empty is
// no difference: the tests write every field, known to the node or not.
func changed(base, now string) (map[string]any, error) {
	before, err := readFields(base)
	if err != nil {
		return nil, err
	}
	after, err := readFields(now)
	if err != nil {
		return nil, err
	}
	keepChanges(after, before)
	return after, nil
}

// always are the feature gates that the tests set to what a node does in any case.
var always = map[string]any{
	"ReloadKubeletClientCAFile": true, "ReloadKubeletServerCertificateFile": true, "RotateKubeletServerCertificate": false,
}

// keepChanges removes from after what is no change.
func keepChanges(after, before map[string]any) {
	maps.DeleteFunc(after, func(name string, value any) bool {
		switch now, _ := value.(map[string]any); name {
		case "apiVersion", "kind":
			return true
		case "authentication", "x509": // fields of their own, not the keys of one
			was, _ := before[name].(map[string]any)
			keepChanges(now, was)
		case "featureGates":
			maps.DeleteFunc(now, func(gate string, on any) bool { return always[gate] == on })
		}
		return empty(value) || reflect.DeepEqual(value, before[name])
	})
}

func readFields(path string) (map[string]any, error) {
	fields := map[string]any{}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return fields, nil
	}
	if err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return fields, nil
}

func empty(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return !slices.ContainsFunc(slices.Collect(maps.Values(v)), func(v any) bool { return !empty(v) })
	case string:
		return v == "" || v == "0s"
	case float64:
		return v == 0
	case bool:
		return !v
	case []any:
		return len(v) == 0
	default:
		return v == nil
	}
}

// saveBase writes what the node's kubelet works by before any test has changed
// it, for changed.
func saveBase(dir string, configz []byte) error {
	var answer struct {
		KubeletConfig json.RawMessage `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(configz, &answer); err != nil {
		return fmt.Errorf("configz: %w", err)
	}
	text, err := yaml.JSONToYAML(answer.KubeletConfig)
	if err != nil {
		return err
	}
	err = os.Remove(filepath.Join(dir, settingsFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(filepath.Join(dir, baseFile), text, 0o644)
}
