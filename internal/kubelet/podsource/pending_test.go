package podsource

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/desired"
)

// A model is what a receiver knows from deliveries, by UID; the value is the
// version.
type model map[types.UID]string

// take does what a delivery says, and returns what is wrong with it.
func (m model) take(d desired.Delivery) error {
	if d.Kind == desired.Full {
		clear(m)
		if len(d.Gone) > 0 {
			return fmt.Errorf("a full set takes %v away", d.Gone)
		}
	}
	for _, uid := range d.Gone {
		if _, ok := m[uid]; !ok {
			return fmt.Errorf("%s goes and was never there", uid)
		}
		delete(m, uid)
	}
	for _, p := range d.Pods {
		if d.Kind == desired.Delta && m[p.UID] == p.ResourceVersion {
			return fmt.Errorf("%s is told again in the same version", p.UID)
		}
		m[p.UID] = p.ResourceVersion
	}
	names := map[types.NamespacedName]types.UID{}
	for uid := range m {
		name := types.NamespacedName{Name: string(uid[:1])}
		if other, twice := names[name]; twice {
			return fmt.Errorf("%s and %s have one name", uid, other)
		}
		names[name] = uid
	}
	return nil
}

// checkPending does what steps say to a pending and to a model that gets every
// whole set, and lets a receiver take now and then.
func checkPending(steps []byte) error {
	p, there, receiver := newPending(), map[string]*corev1.Pod{}, model{}
	version := 0
	put := func(name string, uid types.UID) {
		version++
		pod := &corev1.Pod{}
		pod.Name, pod.UID, pod.ResourceVersion = name, uid, fmt.Sprint(version)
		there[name] = pod
	}
	receive := func() error {
		d, ok := p.take("api")
		if !ok {
			return nil
		}
		return receiver.take(d)
	}
	seen := false
	for i, step := range steps {
		name := string(rune('a' + step>>4&3))
		old := there[name]
		switch what := step & 15; {
		case !seen || what == 0: // a whole set, in which pods have come, changed and gone
			seen = true
			if step>>6&1 == 1 {
				delete(there, name)
			} else {
				put(name, types.UID(fmt.Sprintf("%s-%d", name, i)))
			}
			var all []*corev1.Pod
			for _, pod := range there {
				all = append(all, pod)
			}
			p.replace(all)
		case what < 5 && old == nil:
			put(name, types.UID(fmt.Sprintf("%s-%d", name, i)))
			p.set(there[name])
		case what < 8 && old != nil:
			put(name, old.UID)
			p.set(there[name])
		case what < 12 && old != nil:
			delete(there, name)
			p.remove(old.UID)
		case what < 14:
			if err := receive(); err != nil {
				return err
			}
		}
		if got := p.count(); got != len(there) {
			return fmt.Errorf("counts %d pods, want %d", got, len(there))
		}
	}
	if err := receive(); err != nil {
		return err
	}
	want := model{}
	for _, pod := range there {
		want[pod.UID] = pod.ResourceVersion
	}
	if !maps.Equal(receiver, want) {
		return fmt.Errorf("in the end (-got +want):\n%s", cmp.Diff(receiver, want))
	}
	if d, ok := p.take("api"); ok {
		return fmt.Errorf("there is more: %s", say(d))
	}
	return nil
}

// FuzzPending: whatever happens and however slow the receiver is, it ends up
// with what whole sets would have told it, and hears nothing needless.
func FuzzPending(f *testing.F) {
	f.Add([]byte{0, 12, 1, 8, 1, 12, 0x11, 5, 9, 0x18, 13})
	f.Fuzz(func(t *testing.T, steps []byte) {
		if err := checkPending(steps); err != nil {
			t.Error(err)
		}
	})
}

func TestPendingRandom(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		steps := make([]byte, random.IntN(200))
		for i := range steps {
			steps[i] = byte(random.Uint32())
		}
		if err := checkPending(steps); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
