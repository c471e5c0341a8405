package credentialprovider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	credentialproviderapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

const (
	maxAnswer = 1 << 20 // bytes of an answer
	maxWords  = 1 << 10 // bytes of what a program says of its failure
	// lastWords is how long the output of a program that has ended is waited for:
	// something that it started may hold it open.
	lastWords = time.Second
)

// run asks the program.
func (p *provider) run(ctx context.Context, repository string, who *identity) (*credentialproviderapi.CredentialProviderResponse, error) {
	request, err := json.Marshal(&credentialproviderapi.CredentialProviderRequest{
		TypeMeta:            metav1.TypeMeta{APIVersion: p.APIVersion, Kind: "CredentialProviderRequest"},
		Image:               repository,
		ServiceAccountToken: who.token, ServiceAccountAnnotations: who.annotations,
	})
	if err != nil {
		return nil, err
	}
	output, err := p.execute(ctx, request)
	if err != nil {
		return nil, err
	}
	return decode(output, p.APIVersion)
}

// execute runs the program with the request and returns its output.
func (p *provider) execute(ctx context.Context, request []byte) ([]byte, error) {
	cfg := &p.plugins.cfg
	limited, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	cmd := exec.CommandContext(limited, filepath.Join(cfg.Providers.BinDir, p.Name), p.Args...)
	cmd.Env = append([]string{}, cfg.Environ...)
	for _, e := range p.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	stdout, stderr := &bounded{max: maxAnswer}, &bounded{max: maxWords, cut: true}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), stdout, stderr
	// A group of its own, so that it ends with all that it started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = lastWords

	began := time.Now()
	err := cmd.Run()
	p.plugins.metrics.duration.WithLabelValues(p.Name).Observe(time.Since(began).Seconds())
	if errors.Is(err, exec.ErrWaitDelay) { // the program itself ended well
		err = cmd.Cancel()
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limited.Err() != nil:
		err = fmt.Errorf("it did not answer within %v", cfg.Timeout)
	case stdout.over:
		err = fmt.Errorf("its answer has more than %d bytes", maxAnswer)
	}
	if err != nil {
		p.plugins.metrics.errors.WithLabelValues(p.Name).Inc()
		if words := strings.TrimSpace(stderr.buf.String()); words != "" {
			// Not in the error, which the pod's owner reads: the program knows the
			// node's secrets, and may tell them when it complains.
			cfg.Log.Warn("image credential provider complains", "object", p.Name, "said", words)
			err = fmt.Errorf("%w (the node's log has what it said)", err)
		}
		return nil, err
	}
	return stdout.buf.Bytes(), nil
}

// errAnswer does not say more: the answer holds credentials.
var errAnswer = errors.New("its answer is no CredentialProviderResponse: a field is unknown or of another type, or it is no JSON")

// decode reads an answer, which has to be of the version of the request.
func decode(data []byte, version string) (*credentialproviderapi.CredentialProviderResponse, error) {
	var head metav1.TypeMeta
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, errAnswer
	}
	if head.APIVersion != version || head.Kind != "CredentialProviderResponse" {
		return nil, fmt.Errorf("its answer is a %q of %q: want a CredentialProviderResponse of %q", short(head.Kind), short(head.APIVersion), version)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	answer := &credentialproviderapi.CredentialProviderResponse{}
	if err := dec.Decode(answer); err != nil {
		return nil, errAnswer
	}
	if dec.More() {
		return nil, errAnswer
	}
	if answer.CacheDuration != nil && answer.CacheDuration.Duration < 0 {
		return nil, fmt.Errorf("its answer has cacheDuration %v, less than none", answer.CacheDuration.Duration)
	}
	return answer, nil
}

// short bounds what stands in place of a name.
func short(text string) string {
	if len(text) > 80 {
		return text[:80] + "…"
	}
	return text
}

// bounded keeps so many bytes of what is written to it. Without cut, whoever
// writes more is stopped. The buffer is not embedded: it would read by itself,
// without a bound.
type bounded struct {
	buf  bytes.Buffer
	max  int
	cut  bool
	over bool
}

func (b *bounded) Write(data []byte) (int, error) {
	room := b.max - b.buf.Len()
	if len(data) <= room {
		return b.buf.Write(data)
	}
	b.over = true
	if !b.cut {
		return 0, errors.New("too much")
	}
	b.buf.Write(data[:max(room, 0)])
	return len(data), nil
}
