package podsync

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/cri/crifake"
	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

func TestPullReasons(t *testing.T) {
	const other = "reg.example/app:2"
	for _, test := range []struct{ said, reason, message string }{
		{"not found", "ErrImagePull", `pull "reg.example/app:2": not found`},
		{"RegistryUnavailable: no route", "RegistryUnavailable", "image pull failed for reg.example/app:2 because the registry is unavailable: no route"},
		{"SignatureValidationFailed: who is that", "SignatureValidationFailed", "image pull failed for reg.example/app:2 because the signature validation failed: who is that"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			w := newWorld(t, nil)
			w.fake.Inject(crifake.Fault{Op: "PullImage", Err: errors.New(test.said)})
			w.main().Image = other
			w.mustSync()
			w.wantWait("main", test.reason, test.message)
			w.wantEvents(
				`Normal Pulling Pulling image "reg.example/app:2"`,
				`Warning Failed Failed to pull image "reg.example/app:2": pull "reg.example/app:2": `+test.said,
				"Warning Failed Error: "+test.reason,
			)
			w.mustSync()
			w.wantWait("main", "ImagePullBackOff", `Back-off pulling image "reg.example/app:2": `+test.reason+": "+test.message)
		})
	}
}

func TestGate(t *testing.T) {
	enter := func(t *testing.T, g *gate) func() {
		t.Helper()
		leave, err := g.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	gateOf := func(p Pulls) *gate { return newGate(Config{Pulls: p}.withDefaults().Pulls) }
	waits := func(t *testing.T, g *gate) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := g.enter(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want a wait that the deadline ends", err)
		}
	}
	for name, test := range map[string]struct {
		pulls Pulls
		n     int // pulls that may go on at once; 0: all of 100
	}{
		"one by one as upstream": {Pulls{}, 1},
		"three":                  {Pulls{MaxParallel: 3}, 3},
		"any number":             {Pulls{MaxParallel: -1, QPS: -1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := gateOf(test.pulls)
				var leave func()
				for range test.n {
					leave = enter(t, g)
				}
				if test.n == 0 {
					for range 100 {
						enter(t, g)
					}
					return
				}
				waits(t, g)
				leave()
				enter(t, g)
				waits(t, g)
			})
		})
	}
	t.Run("five in a second, ten at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := gateOf(Pulls{})
			try := func() (begun int) {
				for range 100 {
					if leave, err := g.enter(t.Context()); err == nil {
						leave()
						begun++
					} else if err.Error() != "pull QPS exceeded" {
						t.Fatal(err)
					}
				}
				return begun
			}
			for _, want := range []int{10, 0} {
				if got := try(); got != want {
					t.Errorf("got %d pulls at once, want %d", got, want)
				}
			}
			time.Sleep(time.Second)
			if got := try(); got != 5 {
				t.Errorf("got %d pulls a second later, want 5", got)
			}
		})
	})
}

// TestSerialPulls is upstream's "serialize image pull": the event of a pull says
// how long it waited for another.
func TestSerialPulls(t *testing.T) {
	for name, test := range map[string]struct {
		parallel int
		atOnce   int // pulls at the runtime while the first hangs
	}{
		"one by one":   {0, 1},
		"side by side": {5, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Pulls.MaxParallel = test.parallel })
			back := w.fake.Inject(crifake.Fault{Op: "PullImage", Hang: true})
			done := make(chan error)
			for i := range 2 {
				image := fmt.Sprintf("reg.example/app%d:1", i)
				w.fake.OfferImage(image)
				pod := w.pod.DeepCopy()
				pod.Name, pod.UID = image, types.UID(image)
				go func() {
					_, err := w.puller.ensure(t.Context(), pod, &v1.Container{Name: "c", Image: image, ImagePullPolicy: v1.PullAlways}, nil)
					done <- err
				}()
			}
			var events []string
			for pulling := 0; pulling < 2; { // both have said so, and one waits
				e := <-w.events.Events
				if strings.Contains(e, "Pulling image") {
					pulling++
				}
				events = append(events, e)
			}
			for len(w.fake.Calls("PullImage")) < test.atOnce {
				<-time.After(time.Millisecond)
			}
			<-time.After(20 * time.Millisecond)
			if n := len(w.fake.Calls("PullImage")); n != test.atOnce {
				t.Errorf("%d pulls at once, want %d", n, test.atOnce)
			}
			back()
			for range 2 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			events = append(events, w.eventsSoFar()...)
			var pulled []string
			for _, e := range events {
				if strings.HasPrefix(e, "Normal Pulled Successfully pulled image") {
					pulled = append(pulled, e)
				}
			}
			if len(pulled) != 2 || len(strings.Fields(strings.TrimPrefix(pulled[0], "Normal Pulled "))) != 13 {
				t.Errorf("got events %q, want two in upstream's 13 words", pulled)
			}
		})
	}
}

// slowProviders answer for their image only when they are let go.
type slowProviders struct {
	image string
	asked chan struct{}
	letGo chan struct{}
}

func (p slowProviders) Credentials(_ context.Context, _ *v1.Pod, image string) ([]podfiles.Credential, error) {
	if image == p.image {
		close(p.asked)
		<-p.letGo
	}
	return nil, nil
}

// TestSlowProvider: while a program looks for credentials of one image, another
// is pulled, though pulls are one by one.
func TestSlowProvider(t *testing.T) {
	slow := slowProviders{"reg.example/slow:1", make(chan struct{}), make(chan struct{})}
	w := newWorld(t, func(c *Config) { c.Providers = slow })
	ensure := func(image string) error {
		w.fake.OfferImage(image)
		_, err := w.puller.ensure(t.Context(), w.pod, &v1.Container{Name: "c", Image: image}, nil)
		return err
	}
	done := make(chan error)
	go func() { done <- ensure(slow.image) }()
	<-slow.asked
	if err := ensure("reg.example/other:1"); err != nil {
		t.Error(err)
	}
	close(slow.letGo)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
