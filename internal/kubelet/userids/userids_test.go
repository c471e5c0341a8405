package userids

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// folders makes the folders of pods.
func folders(t *testing.T, pods ...string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "with [brackets]")
	for _, pod := range pods {
		if err := os.MkdirAll(podfiles.PodFolder(dir, types.UID(pod)), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func from(first, count uint32) func(context.Context, uint32) (podfiles.UserIDs, error) {
	return func(context.Context, uint32) (podfiles.UserIDs, error) {
		return podfiles.UserIDs{First: first, Count: count}, nil
	}
}

func of(t *testing.T, u *Users, pod string) podfiles.UserIDs {
	t.Helper()
	ids, err := u.Of(t.Context(), types.UID(pod))
	if err != nil {
		t.Fatalf("%s: %v", pod, err)
	}
	return ids
}

// TestOf holds that no two pods share IDs, that a pod keeps its own over a
// restart, and that they are free again when its folder is gone.
func TestOf(t *testing.T) {
	dir := folders(t, "a", "b", "c", "plain")
	cfg := Config{Dir: dir, Pods: 2, Host: from(2*Unit, 2*Unit)}
	u := New(cfg)
	a, b := of(t, u, "a"), of(t, u, "b")
	if want := (podfiles.UserIDs{First: 2 * Unit, Count: Unit}); a != want {
		t.Errorf("the first pod: got %v, want %v", a, want)
	}
	if want := (podfiles.UserIDs{First: 3 * Unit, Count: Unit}); b != want {
		t.Errorf("the second pod: got %v, want %v", b, want)
	}
	if _, err := u.Of(t.Context(), "c"); err == nil || !strings.Contains(err.Error(), "could not find an empty slot") {
		t.Errorf("a third pod: got %v", err)
	}
	u = New(cfg)
	if again := of(t, u, "b"); again != b {
		t.Errorf("after a restart: got %v, want %v", again, b)
	}
	if err := os.RemoveAll(podfiles.PodFolder(dir, "a")); err != nil {
		t.Fatal(err)
	}
	if c := of(t, u, "c"); c != a {
		t.Errorf("after another has gone: got %v, want %v", c, a)
	}
	if _, err := u.Of(t.Context(), "../b"); err == nil {
		t.Error("a UID leads out of the pods' folder")
	}
	const upstream = `{"uidMappings":[{"hostId":196608,"containerId":0,"length":65536}],"gidMappings":[{"hostId":196608,"containerId":0,"length":65536}]}`
	if text, err := os.ReadFile(filepath.Join(podfiles.PodFolder(dir, "b"), "userns")); err != nil || string(text) != upstream {
		t.Errorf("got %s, %v; want upstream's form %s", text, err, upstream)
	}
}

// TestOtherSize holds that IDs of pods from before the number was changed are
// not given away.
func TestOtherSize(t *testing.T) {
	dir := folders(t, "old", "new")
	if got := of(t, New(Config{Dir: dir, Pods: 1, Host: from(3*Unit, 3*Unit)}), "old"); got.First != 3*Unit {
		t.Fatalf("got %v", got)
	}
	if got := of(t, New(Config{Dir: dir, Pods: 1, PerPod: 2 * Unit, Host: from(2*Unit, 6*Unit)}), "new"); got != (podfiles.UserIDs{First: 4 * Unit, Count: 2 * Unit}) {
		t.Errorf("got %v", got)
	}
}

func TestAtOnce(t *testing.T) {
	names := strings.Split("abcdefghijklmnopqrst", "")
	u := New(Config{Dir: folders(t, names...), Host: from(Unit, 200*Unit)})
	var mu sync.Mutex
	seen := map[uint32]bool{}
	var wg sync.WaitGroup
	for _, name := range names {
		wg.Go(func() {
			ids, err := u.Of(t.Context(), types.UID(name))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[ids.First] {
				t.Errorf("%s: %v, %v: others have them too", name, ids, err)
			}
			seen[ids.First] = true
		})
	}
	wg.Wait()
}

func TestDamagedFile(t *testing.T) {
	dir := folders(t, "old", "damaged", "new")
	u := New(Config{Dir: dir, Host: from(Unit, 200*Unit)})
	old := of(t, u, "old")
	path := filepath.Join(podfiles.PodFolder(dir, "damaged"), "userns")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, pod := range []types.UID{"damaged", "new"} {
		if _, err := u.Of(t.Context(), pod); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want an error that names the file", pod, err)
		}
	}
	if got := of(t, u, "old"); got != old {
		t.Errorf("one that had its IDs: got %v, want %v", got, old)
	}
}

func TestHost(t *testing.T) {
	tests := map[string]struct {
		perPod uint32
		host   podfiles.UserIDs
		hostIs error
		want   string
	}{
		"no unit":            {perPod: 1000, want: "no multiple of 65536"},
		"the host's own":     {host: podfiles.UserIDs{First: 0, Count: 200 * Unit}, want: "it must be 65536 at least"},
		"an odd beginning":   {host: podfiles.UserIDs{First: 100000, Count: 200 * Unit}, want: "multiples of 65536"},
		"an odd number":      {host: podfiles.UserIDs{First: Unit, Count: 200*Unit + 1}, want: "multiples of 65536"},
		"not enough":         {host: podfiles.UserIDs{First: Unit, Count: 100 * Unit}, want: "not enough for 110 pods"},
		"it cannot be known": {hostIs: errors.New("away"), want: "away"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			u := New(Config{Dir: folders(t, "a"), PerPod: test.perPod, Host: func(context.Context, uint32) (podfiles.UserIDs, error) {
				return test.host, test.hostIs
			}})
			if _, err := u.Of(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	for _, perPod := range []uint32{Unit, 3 * Unit} {
		got := allBut(perPod)
		if end := uint64(got.First) + uint64(got.Count); got.First != perPod || end > math.MaxUint32+1 || end < math.MaxUint32-uint64(perPod) {
			t.Errorf("%d for each: got %v", perPod, got)
		}
	}
}

func TestParseSubIDs(t *testing.T) {
	tests := map[string]struct {
		want podfiles.UserIDs
		err  string
	}{
		"0: kubelet 65536 7208960\n": {want: podfiles.UserIDs{First: 65536, Count: 7208960}},
		"":                           {err: "answers"},
		"0: kubelet 65536 65536\n1: kubelet 262144 65536": {err: "2 ranges"},
		"0: other 65536 65536":                            {err: "answers"},
		"0: kubelet 4294967296 65536":                     {err: "out of range"},
	}
	for text, test := range tests {
		got, err := parseSubIDs(text)
		if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%q: got %v, %v; want %v, %q", text, got, err, test.want, test.err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}`))
	f.Add([]byte(`{"uidMappings":[{"hostId":4294967295,"length":2}],"gidMappings":[{"hostId":4294967295,"length":2}]}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		ids, err := parse(text)
		if err != nil {
			return
		}
		path := filepath.Join(t.TempDir(), "userns")
		if err := write(path, ids); err != nil {
			t.Fatal(err)
		}
		if again, err := read(path); again != ids || err != nil {
			t.Errorf("%q is %v, and written again %v, %v", text, ids, again, err)
		}
	})
}
