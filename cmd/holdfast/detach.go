package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/internal/control"
	"github.com/holdfast-dev/holdfast/internal/instance"
	"github.com/holdfast-dev/holdfast/internal/node"
)

// detach starts this command again in a session of its own, without --detach,
// shows its progress, and returns when the node is ready or has failed. The
// node's output goes to <root-dir>/logs/up.out and its log to
// <root-dir>/logs/holdfast.log.
func detach(cmd *cobra.Command, cfg node.Config, f *upFlags) error {
	start := time.Now()
	cfg, err := cfg.Complete()
	if err != nil {
		return err
	}
	if in, err := instance.Open(cfg.RootDir); err == nil {
		if pid, running := in.Running(); running {
			fmt.Fprintf(cmd.OutOrStdout(), "The node in %s runs already, as process %s.\n", in.Root, pid)
			different, err := node.Differences(in, cfg)
			for _, d := range different {
				fmt.Fprintf(cmd.OutOrStdout(), "It goes on with %s: settings are read when it starts.\n", d)
			}
			return err
		}
	}
	logs := filepath.Join(cfg.RootDir, "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return fmt.Errorf("folder for logs: %w", err)
	}
	out, err := os.Create(filepath.Join(logs, "up.out"))
	if err != nil {
		return err
	}
	defer out.Close()
	log, err := os.OpenFile(logPath(cfg.RootDir), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args, err := childArgs(cfg, f)
	if err != nil {
		return err
	}
	// The child outlives this command: it is not tied to its context.
	child := exec.CommandContext(context.WithoutCancel(cmd.Context()), self, args...)
	child.Stdout, child.Stderr = out, log
	child.Dir = "/"
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return fmt.Errorf("start the node: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	if err := follow(cmd, cfg.RootDir, out.Name(), ended); err != nil {
		return err
	}
	in, err := instance.Open(cfg.RootDir)
	if err != nil {
		return err
	}
	printWelcome(cmd.OutOrStdout(), in, cfg.ManifestDir, time.Since(start))
	return nil
}

// logPath is the log of a node that runs in the background.
func logPath(root string) string { return filepath.Join(root, "logs", "holdfast.log") }

// childArgs returns the command line of the process in the background. Paths
// are absolute: it does not stay in this folder. What has no flag it reads from
// the file itself.
func childArgs(cfg node.Config, f *upFlags) ([]string, error) {
	args := []string{
		"up", "--detached", "--root-dir", cfg.RootDir, "--manifest-dir", cfg.ManifestDir, "--node-name", cfg.NodeName,
		"--api-port", strconv.Itoa(*cfg.APIPort), "--kubelet-port", strconv.Itoa(*cfg.KubeletPort),
	}
	if f.manifestURL != "" {
		args = append(args, "--manifest-url", f.manifestURL)
	}
	if len(cfg.BindAddress) > 0 {
		args = append(args, "--bind-address", strings.Join(cfg.BindAddress, ","))
	}
	if len(cfg.APINames) > 0 {
		args = append(args, "--api-name", strings.Join(cfg.APINames, ","))
	}
	if cfg.ContainerRuntimeEndpoint != "" {
		args = append(args, "--container-runtime-endpoint", cfg.ContainerRuntimeEndpoint)
	}
	if cfg.PodCIDR != "" {
		args = append(args, "--pod-cidr", cfg.PodCIDR)
	}
	if cfg.ImageCredentialProviderConfig != "" {
		args = append(args, "--image-credential-provider-config", cfg.ImageCredentialProviderConfig)
	}
	if cfg.ImageCredentialProviderBinDir != "" {
		args = append(args, "--image-credential-provider-bin-dir", cfg.ImageCredentialProviderBinDir)
	}
	if f.config != "" {
		path, err := filepath.Abs(f.config)
		if err != nil {
			return nil, err
		}
		args = append(args, "--config", path)
	}
	if f.verbose {
		args = append(args, "--verbose")
	}
	return args, nil
}

// follow copies the child's output until the node says that it is ready, or
// ends.
func follow(cmd *cobra.Command, root, output string, ended <-chan error) error {
	shown, err := os.Open(output)
	if err != nil {
		return err
	}
	defer shown.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case err := <-ended:
			_, copied := io.Copy(cmd.OutOrStdout(), shown)
			return errors.Join(fmt.Errorf("the node ended while it started: %w; the last lines of its log:\n%s",
				err, tail(logPath(root), 2048)), copied)
		case <-cmd.Context().Done():
			return cmd.Context().Err()
		}
		ready := isReady(cmd.Context(), root) // before the copy: its steps are all printed
		if _, err := io.Copy(cmd.OutOrStdout(), shown); err != nil {
			return err
		}
		if ready {
			return nil
		}
	}
}

// isReady reports whether the node says that it is ready.
func isReady(ctx context.Context, root string) bool {
	in, err := instance.Open(root)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	report, err := control.NewClient(in.ControlSocket()).Report(ctx)
	return err == nil && report.Ready
}

// tail returns about the last n bytes of a file.
func tail(path string, n int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > n {
		if _, err := f.Seek(-n, io.SeekEnd); err != nil {
			return ""
		}
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return ""
	}
	return string(text)
}
