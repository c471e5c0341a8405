package checkpointer

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/checkpointfile"
	"github.com/holdfast-dev/holdfast/internal/kubelet/fault"
	"github.com/holdfast-dev/holdfast/internal/retry"
)

// listPoll is the time between two looks whether the runtime was listed.
const listPoll = 20 * time.Millisecond

// restored is what Restore gave back.
type restored struct {
	answer  answer
	pods    map[types.UID]bool
	refused []string // pods that are too old to be started, by namespace/name
	age     time.Duration
	at      time.Time // when Restore was called; zero: never
}

// unusable is a file that is there and cannot be used.
type unusable struct {
	key checkpointfile.Key
	failure
}

// Restore returns the pods that the node ran when the API last answered, to be
// run as they were, without a new admission. A pod whose file cannot be read is
// left out, and so is each that does not run yet if the checkpoint is too old:
// Faults tells of them. It waits until it is known what runs; if ctx ends before,
// it returns none.
func (c *Checkpointer) Restore(ctx context.Context) []*v1.Pod {
	for !c.cfg.Listed() {
		if !retry.Sleep(ctx, listPoll) {
			return nil
		}
	}
	files, err := c.cfg.Folder.Files()
	if err != nil {
		c.cfg.Log.Warn("checkpoint cannot be read", "err", err)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mu.failure = failure{err, time.Now()}
		return nil
	}
	r := restored{pods: map[types.UID]bool{}, at: time.Now()}
	var pods []*v1.Pod
	for i := range files {
		f := &files[i]
		switch {
		case f.Err != nil:
		case f.Key.Kind == checkpointfile.Answer:
			f.Err = json.Unmarshal(f.Object, &r.answer)
		case f.Key.Kind == checkpointfile.Pod:
			pod := &v1.Pod{}
			if f.Err = json.Unmarshal(f.Object, pod); f.Err == nil {
				pods = append(pods, pod)
			}
		}
		if f.Err != nil {
			c.cfg.Log.Warn("part of the checkpoint cannot be used", "object", f.Key.String(), "file", f.Name, "err", f.Err)
			c.unusable(*f)
		}
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	r.age = ageOf(r.answer, r.at)
	pods = slices.DeleteFunc(pods, func(pod *v1.Pod) bool {
		refuse := c.tooOld(r) && !c.cfg.Runs(pod.UID) && pod.DeletionTimestamp == nil
		if refuse {
			r.refused = append(r.refused, pod.Namespace+"/"+pod.Name)
		} else {
			r.pods[pod.UID] = true
		}
		return refuse
	})
	if len(pods)+len(r.refused) > 0 {
		c.cfg.Log.Warn("the API does not answer: pods run from the checkpoint", "pods", len(pods), "refused", len(r.refused), "answered", r.answer.Answered)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.restored = r
	return pods
}

// ageOf returns how long ago the API last answered: by the clock, or as long as
// the node has run since, if that is longer. A clock that was set back says
// nothing.
func ageOf(a answer, now time.Time) time.Duration {
	return max(now.Sub(a.Answered), a.Offline)
}

// tooOld reports whether nothing may be started. A checkpoint that does not say
// how old it is, is too old.
func (c *Checkpointer) tooOld(r restored) bool {
	return c.cfg.MaxAge > 0 && (r.age > c.cfg.MaxAge || r.answer.Answered.IsZero())
}

// Restored reports whether a pod runs as it was kept: the API has not said since
// the start what became of it.
func (c *Checkpointer) Restored(uid types.UID) bool {
	c.mu.Lock()
	here := c.mu.restored.pods[uid]
	c.mu.Unlock()
	if !here {
		return false
	}
	_, seen := c.cfg.Pods()
	return !seen
}

// Since returns as of when the node runs its pods from the checkpoint. ok is
// false if it does not, because the API has answered.
func (c *Checkpointer) Since() (answered time.Time, ok bool) {
	if c == nil {
		return time.Time{}, false
	}
	c.mu.Lock()
	r := c.mu.restored
	c.mu.Unlock()
	if r.at.IsZero() || len(r.pods)+len(r.refused) == 0 {
		return time.Time{}, false
	}
	_, seen := c.cfg.Pods()
	return r.answer.Answered, !seen
}

// Faults tells that pods run from the checkpoint, which could not be started, and
// what of it cannot be read or written.
func (c *Checkpointer) Faults() []fault.Fault {
	if c == nil {
		return nil
	}
	_, seen := c.cfg.Pods()
	c.mu.Lock()
	defer c.mu.Unlock()
	var faults []fault.Fault
	if r := c.mu.restored; !seen {
		faults = append(faults, c.restoredFaults(r)...)
	}
	for name, u := range c.mu.unusable {
		faults = append(faults, fault.Fault{Object: cmp.Or(u.key.String(), "File "+name), Message: "what is kept of it cannot be used: " + explain(u.err), Since: u.since})
	}
	if f := c.mu.failure; f.err != nil {
		faults = append(faults, fault.Fault{Object: "Checkpoint", Message: "cannot be kept up to date: " + f.err.Error(), Since: f.since})
	}
	return faults
}

func (c *Checkpointer) restoredFaults(r restored) []fault.Fault {
	var faults []fault.Fault
	when := "a time that is not known"
	if !r.answer.Answered.IsZero() {
		when = r.answer.Answered.UTC().Format(time.RFC3339)
	}
	if len(r.pods) > 0 {
		faults = append(faults, fault.Fault{Object: "Pods", Since: r.at, Message: fmt.Sprintf(
			"%d of them run from the checkpoint of %s, as the API has not answered since the start", len(r.pods), when)})
	}
	if len(r.refused) > 0 {
		faults = append(faults, fault.Fault{Object: "Checkpoint", Since: r.at, Message: fmt.Sprintf(
			"it is of %s, %v old, and pods are started from it for %v only; not started: %s. They start when the API answers, or with a longer maxAge",
			when, r.age.Round(time.Minute), c.cfg.MaxAge, strings.Join(r.refused, ", "))})
	}
	return faults
}

func (c *Checkpointer) unusable(f checkpointfile.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, ok := c.mu.unusable[f.Name]
	if !ok {
		u.since = time.Now()
	}
	u.key, u.err = f.Key, f.Err
	c.mu.unusable[f.Name] = u
}

func (c *Checkpointer) usable(file string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.unusable, file)
}
