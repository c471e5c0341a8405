package manifesturl

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/runtest"
)

// asked runs a URL for so long and returns the pauses between its requests, each
// of which ends as it is told to.
func asked(t *testing.T, node string, period, long time.Duration, answer func(n int) error) []time.Duration {
	t.Helper()
	u, err := New(Config{
		Source: Source{URL: "http://localhost", Period: metav1.Duration{Duration: period}}, Node: node, Parser: parser,
		Log: slog.New(slog.DiscardHandler), Publish: func(context.Context, Set) {},
	})
	must(t, err)
	var pauses []time.Duration
	var last time.Time
	n := 0
	u.get = func(context.Context, validators) (response, error) {
		if !last.IsZero() {
			pauses = append(pauses, time.Since(last))
		}
		last = time.Now()
		n++
		return response{body: []byte(twoPods)}, answer(n)
	}
	stop := runtest.Start(t, u.Run)
	time.Sleep(long)
	stop()
	return pauses
}

func TestPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := func(int) error { return nil }
		pauses := asked(t, "n1", 0, time.Hour, good)
		least, most, sum := time.Hour, time.Duration(0), time.Duration(0)
		for _, p := range pauses {
			least, most, sum = min(least, p), max(most, p), sum+p
		}
		mean := sum / time.Duration(len(pauses))
		if least < 18*time.Second || most > 22*time.Second || most-least < time.Second || mean < 19500*time.Millisecond || mean > 20500*time.Millisecond {
			t.Errorf("pauses from %v to %v, %v in the mean; want 20 s give or take a tenth", least, most, mean)
		}
		again, other := asked(t, "n1", 0, time.Minute, good), asked(t, "n2", 0, time.Minute, good)
		if again[0] != pauses[0] || other[0] == pauses[0] {
			t.Errorf("first pauses %v, %v, and %v of another node", pauses[0], again[0], other[0])
		}
	})
}

func TestBackOff(t *testing.T) {
	near := func(got, want time.Duration) bool { return got >= want*9/10 && got <= want*11/10 }
	synctest.Test(t, func(t *testing.T) {
		away := func(n int) error {
			switch {
			case n < 12:
				return failed("", "away")
			case n == 14:
				return &failure{message: "busy", wait: 5 * time.Minute}
			}
			return nil
		}
		pauses := asked(t, "n1", 0, time.Hour, away)
		for i, want := range []int{1, 2, 4, 8, 16, 32, 64, 128, 200, 200, 200, 20, 20, 300, 20} {
			if want := time.Duration(want) * time.Second; !near(pauses[i], want) {
				t.Errorf("pause %d: got %v, want about %v", i+1, pauses[i], want)
			}
		}
		if pauses[13] < 5*time.Minute {
			t.Errorf("asked again after %v, though the server wanted %v", pauses[13], 5*time.Minute)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		always := func(int) error { return failed("", "away") }
		pauses := asked(t, "n1", 2*time.Minute, 2*time.Hour, always)
		if last := pauses[len(pauses)-1]; !near(last, 5*time.Minute) {
			t.Errorf("a period of 2m: last pause %v, want about 5m", last)
		}
		pauses = asked(t, "n1", time.Hour, 10*time.Hour, always)
		if last := pauses[len(pauses)-1]; !near(last, time.Hour) {
			t.Errorf("a period of 1h: last pause %v, want about 1h", last)
		}
	})
}

// TestSlowServerAtStart: the last good copy waits two seconds for news, not more.
func TestSlowServerAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := t.TempDir() + "/state.json"
		var published []time.Duration
		var began time.Time
		u := func() *URL {
			u, err := New(Config{
				Source: Source{URL: "http://localhost"}, Node: "n", Parser: parser, StateFile: file, Log: slog.New(slog.DiscardHandler),
				Publish: func(context.Context, Set) { published = append(published, time.Since(began)) },
			})
			must(t, err)
			return u
		}
		first := u()
		first.get = func(context.Context, validators) (response, error) { return response{body: []byte(twoPods)}, nil }
		began = time.Now()
		stop := runtest.Start(t, first.Run)
		time.Sleep(time.Second)
		stop()
		second := u()
		second.get = func(ctx context.Context, _ validators) (response, error) {
			<-ctx.Done()
			return response{}, failed("", "too slow")
		}
		began = time.Now()
		stop = runtest.Start(t, second.Run)
		time.Sleep(time.Minute)
		stop()
		if len(published) != 2 || published[1] != 2*time.Second {
			t.Errorf("published after %v", published)
		}
	})
}
