package podworker

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
)

var update = flag.Bool("update", false, "rewrite the traces in testdata")

// TestTraces runs the commands in each file of testdata ("> " before each) and
// compares the steps that follow each command with the lines below it.
//
//	create|update UID NAME [static] [gen=N] [phase=P] [deleting=GRACE] [mirror=UID]
//	kill|remove UID NAME [grace=N] [static]
//	orphan UID NAME
//	poke UID
//	known UID...
//	answer UID STEP ANSWER       see fakeSyncer
//	release UID STEP
//	wait DURATION
//	states
//	restart                      the agent: cancelled, then new workers
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/*.trace")
	if err != nil || len(files) == 0 {
		t.Fatalf("traces: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".trace"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(t *testing.T) { got = runTrace(t, string(text)) })
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(text), got); diff != "" {
				t.Errorf("trace (-want +got):\n%s", diff)
			}
		})
	}
}

type tracer struct {
	t       *testing.T
	syncer  *fakeSyncer
	workers *Workers
	stop    func()
}

func runTrace(t *testing.T, text string) string {
	tr := &tracer{t: t, syncer: newFakeSyncer(t)}
	tr.start()
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || line == "" {
			fmt.Fprintln(&out, line)
		}
		command, ok := strings.CutPrefix(line, "> ")
		if !ok {
			continue
		}
		fmt.Fprintln(&out, line)
		for _, l := range tr.do(strings.Fields(command)) {
			fmt.Fprintln(&out, l)
		}
	}
	tr.stop()
	for _, l := range tr.syncer.take() {
		fmt.Fprintln(&out, l)
	}
	return out.String()
}

func (tr *tracer) start() {
	tr.workers = New(Config{Log: slog.New(slog.DiscardHandler), Syncer: tr.syncer, Cache: freshCache{}})
	tr.stop = runtest.Start(tr.t, tr.workers.Run)
}

func (tr *tracer) do(f []string) []string {
	switch verb := f[0]; verb {
	case "create", "update", "kill", "remove", "orphan":
		tr.workers.Update(parseRequest(tr.t, verb, f[1:]))
	case "poke":
		tr.workers.Poke(types.UID(f[1]))
	case "known":
		tr.workers.SyncKnown(func(uid types.UID) bool { return slices.Contains(f[1:], string(uid)) })
	case "answer":
		tr.syncer.answer(f[1]+" "+f[2], strings.Join(f[3:], " "))
	case "release":
		tr.syncer.unblock(f[1] + " " + f[2])
	case "wait":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			tr.t.Fatal(err)
		}
		time.Sleep(d)
	case "restart":
		tr.stop()
		tr.start()
	case "states":
		return tr.states()
	default:
		tr.t.Fatalf("unknown command %q", verb)
	}
	synctest.Wait()
	lines := tr.syncer.take()
	if f[0] == "restart" || f[0] == "known" {
		slices.Sort(lines) // of several pods, in no order
	}
	return lines
}

func (tr *tracer) states() []string {
	var lines []string
	for _, info := range tr.workers.Snapshot() {
		line := fmt.Sprintf("= %s %s", info.UID, info.State)
		if info.Removed {
			line += " removed"
		}
		if tr.workers.CouldHaveRunning(info.UID) {
			line += " could-run"
		}
		if failure := tr.failure(info.UID); failure != "" {
			line += " failing: " + failure
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func (tr *tracer) failure(uid types.UID) string {
	tr.workers.mu.Lock()
	defer tr.workers.mu.Unlock()
	return tr.workers.mu.workers[uid].failure
}

func parseRequest(t *testing.T, verb string, f []string) lifecycle.Request {
	if verb == "orphan" {
		return lifecycle.Request{
			Kind:   lifecycle.Remove,
			Orphan: &lifecycle.Orphan{UID: types.UID(f[0]), Namespace: "default", Name: f[1]},
		}
	}
	req := lifecycle.Request{Pod: testPod(f[0], f[1])}
	req.Kind = map[string]lifecycle.Kind{
		"create": lifecycle.Create, "update": lifecycle.Update, "kill": lifecycle.Kill, "remove": lifecycle.Remove,
	}[verb]
	for _, option := range f[2:] {
		key, value, _ := strings.Cut(option, "=")
		number, _ := strconv.ParseInt(value, 10, 64)
		switch key {
		case "static":
			req.Pod.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		case "gen":
			req.Pod.Generation = number
		case "phase":
			req.Pod.Status.Phase = v1.PodPhase(value)
		case "deleting":
			req.Pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			req.Pod.DeletionGracePeriodSeconds = &number
		case "mirror":
			req.Mirror = testPod(value, f[1])
		case "grace":
			req.Grace = &number
		default:
			t.Fatalf("unknown option %q", option)
		}
	}
	return req
}
