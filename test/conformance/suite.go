package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// A Suite is upstream's program of node tests, and how to run it.
type Suite struct {
	Ginkgo  string // the runner
	Program string // the tests
	Dir     string // gets the log and the report; the tests' working folder
	StandIn string // a program that calls StandIn
	// Procs is how many tests run at once. Those that need the node for
	// themselves run after the others, alone.
	Procs int
	// Timeout bounds the whole run.
	Timeout time.Duration
}

// List returns every test of the program.
func (s *Suite) List(ctx context.Context) ([]Spec, error) {
	specs, trouble, err := s.ginkgo(ctx, "list", nil, []string{"--dry-run"}, nil)
	if err == nil && len(trouble) > 0 {
		err = fmt.Errorf("list the tests: %v", trouble)
	}
	return specs, err
}

// Run runs those tests against a node and returns what came of them, and what
// else went wrong.
func (s *Suite) Run(ctx context.Context, n *Node, specs []Spec) (ran []Spec, trouble []string, err error) {
	wanted := map[string]bool{}
	options := []string{
		"--procs=" + strconv.Itoa(s.Procs), "--timeout=" + s.Timeout.String(), "--keep-going",
		"--poll-progress-after=0",
	}
	for _, spec := range specs {
		wanted[spec.Name] = true
		options = append(options, "--focus="+regexp.QuoteMeta(spec.Name)+"$")
	}
	configz, err := n.configz(ctx)
	if err == nil {
		err = saveBase(s.Dir, configz)
	}
	if err != nil {
		return nil, nil, err
	}
	env, err := n.standIn(s.StandIn)
	if err != nil {
		return nil, nil, err
	}
	all, trouble, err := s.ginkgo(ctx, "run", env, options, []string{
		"--host=" + n.host, "--bearer-token=" + n.token, "--node-name=" + nodeName,
		"--container-runtime-endpoint=" + n.endpoint, "--prepull-images=false",
		"--config-dir=" + filepath.Join(s.Dir, "kubelet.conf.d"),
	})
	for _, spec := range all {
		if wanted[spec.Name] {
			ran = append(ran, spec)
		}
	}
	return ran, trouble, err
}

// ginkgo runs the runner. That tests failed is no error; the report says so.
func (s *Suite) ginkgo(ctx context.Context, name string, env, options, flags []string) (specs []Spec, trouble []string, err error) {
	log, err := os.Create(filepath.Join(s.Dir, name+".log"))
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	program, err := s.link()
	if err != nil {
		return nil, nil, err
	}
	report := name + ".json"
	args := append([]string{"--json-report=" + report, "--output-dir=" + s.Dir, "--no-color", "--silence-skips"}, options...)
	args = append(args, program, "--", "--start-services=false", "--stop-services=false")
	args = append(args, flags...)
	cmd := exec.CommandContext(ctx, s.Ginkgo, args...)
	// In the middle of a test it cleans up when it is asked to stop.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 2 * time.Minute
	cmd.Dir = s.Dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	runErr := cmd.Run()
	specs, trouble, err = readReport(filepath.Join(s.Dir, report))
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("run the tests: %w (see %s)", errors.Join(runErr, ctx.Err()), log.Name()), err)
	}
	return specs, trouble, ctx.Err()
}

// link returns the program's name in the working folder: the runner runs it in
// the folder where it is, and tests write files there.
func (s *Suite) link() (string, error) {
	program, err := filepath.Abs(s.Program)
	if err != nil {
		return "", err
	}
	link := filepath.Join(s.Dir, filepath.Base(program))
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return link, os.Symlink(program, link)
}
