package eviction

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/holdfast-dev/holdfast/internal/kubelet/lifecycle"
	"github.com/holdfast-dev/holdfast/internal/kubelet/reason"
)

// minGrace is how long, in seconds, a pod gets to end at a hard threshold.
const minGrace = 1

// An ending is a pod that was asked to end.
type ending struct {
	uid   types.UID
	grace int64 // seconds
}

// round looks once, ends the pods that have more than they may have, and if there
// are none does something about what is low: it gives back what nobody needs, and
// if that is not enough, ends one pod. It returns the pods that it ends.
func (m *Manager) round(ctx context.Context) []ending {
	act, seen, l := m.look(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if ended := m.evictOverLimits(ctx, l); len(ended) > 0 || ctx.Err() != nil {
		return ended
	}
	if e := m.act(ctx, act, seen, l); e != nil {
		return []ending{*e}
	}
	return nil
}

// look takes in what the node has, and returns the thresholds about which
// something is to be done.
func (m *Manager) look(ctx context.Context) (act []int, seen observations, l layout) {
	seen, l = m.observe(ctx)
	if ctx.Err() != nil {
		return nil, nil, l
	}
	var v verdict
	m.history, v = m.cfg.Policy.decide(m.history, seen, time.Now())
	m.publish(v.conditions, seen)
	return v.act, seen, l
}

// act does something about the most pressing threshold about which something can
// be done, and returns the pod that it ends. As upstream does, it takes one at a
// time; but one about which nothing can be done does not stand before the next.
func (m *Manager) act(ctx context.Context, act []int, seen observations, l layout) *ending {
	var trouble []string
	told := map[v1.ResourceName]bool{}
	for _, i := range act {
		t := m.cfg.Policy.thresholds[i]
		if name := t.signal.resource(); !told[name] {
			told[name] = true
			m.cfg.Recorder.Eventf(m.cfg.Node, v1.EventTypeWarning, reason.EvictionThresholdMet, "Attempting to reclaim %s", name)
		}
		if t.signal.isDisk() {
			m.reclaim(ctx, t.signal, l)
			seen, l = m.observe(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if !m.cfg.Policy.stillCrossed(act, t, seen) {
				m.cfg.Log.Info("room was made without ending a pod", "signal", t.signal)
				break
			}
		}
		e, why := m.evictOne(ctx, t, seen, l)
		if e != nil || ctx.Err() != nil {
			m.setTrouble("")
			return e
		}
		if why != "" {
			trouble = append(trouble, why)
		}
	}
	m.setTrouble(strings.Join(trouble, "; "))
	return nil
}

// reclaim removes from the filesystem of a signal what nobody needs: what is
// left of dead containers first, because they keep images.
func (m *Manager) reclaim(ctx context.Context, s Signal, l layout) {
	err := m.cfg.Containers(ctx)
	m.note("dead containers", err)
	if l.holdsImages(s) {
		err := m.cfg.Images(ctx)
		m.note("unused images", err)
	}
}

// evictOne ends the first pod that may go, or says why none does.
func (m *Manager) evictOne(ctx context.Context, t threshold, seen observations, l layout) (e *ending, why string) {
	if !t.crossed(seen, true) {
		return nil, "" // after the reclaim another one of the disk's is
	}
	pods := m.running()
	usages := m.measure(ctx, t.signal, l, pods)
	if ctx.Err() != nil {
		return nil, ""
	}
	order := rank(t.signal, l, pods, func(p *v1.Pod) (stats.PodStats, bool) {
		u, ok := usages[p.UID]
		return u, ok
	})
	if why := hopeless(t, seen, order); why != "" {
		return nil, fmt.Sprintf("%s: %s", low(t, seen), why)
	}
	m.metrics.age.WithLabelValues(string(t.signal)).Observe(time.Since(seen[t.signal].at).Seconds())
	first := order[0]
	grace := int64(minGrace)
	if t.soft {
		grace = m.cfg.Policy.maxPodGrace
		if own := first.pod.Spec.TerminationGracePeriodSeconds; own != nil {
			grace = min(grace, *own)
		}
	}
	text, annotations := message(t, seen[t.signal], first)
	ended := m.evict(first.pod, eviction{signal: string(t.signal), grace: grace, message: text, annotations: annotations, disrupted: true})
	return &ended, ""
}

// An eviction is how and why one pod ends.
type eviction struct {
	signal      string // as the metric names it
	grace       int64  // seconds
	message     string
	annotations map[string]string // of the event
	disrupted   bool              // for the node's sake
}

func (m *Manager) evict(pod *v1.Pod, e eviction) ending {
	m.cfg.Log.Warn("pod is evicted", "pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID, "signal", e.signal, "why", strings.TrimSpace(e.message))
	m.cfg.Recorder.AnnotatedEventf(pod, e.annotations, v1.EventTypeWarning, reason.Evicted, "%s", e.message)
	m.cfg.Statuses.End(pod.UID, reason.Evicted, e.message, e.disrupted)
	m.cfg.Workers.Update(lifecycle.Request{Kind: lifecycle.Kill, Pod: pod, Grace: &e.grace})
	m.metrics.evictions.WithLabelValues(e.signal).Inc()
	return ending{uid: pod.UID, grace: e.grace}
}

// hopeless says why no pod goes, if none does.
func hopeless(t threshold, seen observations, order []candidate) string {
	if len(order) == 0 {
		return "no pod that may be evicted uses any of it"
	}
	if !t.signal.isDisk() {
		return ""
	}
	var all int64
	for _, c := range order {
		all += c.used
	}
	if missing := t.missing(seen, true); all < missing {
		return fmt.Sprintf("all pods that may be evicted have only %v on it, so others fill it and none is evicted",
			resource.NewQuantity(all, formatOf(t.signal.resource())))
	}
	return ""
}

// low says what is low.
func low(t threshold, seen observations) string {
	o := seen[t.signal]
	return fmt.Sprintf("%s is %v, less than %v", t.signal, resource.NewQuantity(o.available, formatOf(t.signal.resource())), t.value.text(o.capacity))
}

// running are the pods that their workers keep running.
func (m *Manager) running() []*v1.Pod {
	var pods []*v1.Pod
	for _, info := range m.cfg.Workers.Snapshot() {
		if info.State == lifecycle.Syncing && info.Pod != nil {
			pods = append(pods, info.Pod)
		}
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return pods
}

// waitForEnd waits until nothing is left of pods that were asked to end, so that
// the next look sees what that gave.
func (m *Manager) waitForEnd(ctx context.Context, ended []ending) {
	var grace int64
	for _, e := range ended {
		grace = max(grace, e.grace)
	}
	limit := time.NewTimer(time.Duration(grace)*time.Second*3/2 + m.cfg.CleanWait)
	defer limit.Stop()
	poll := time.NewTicker(m.cfg.CleanPoll)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-limit.C:
			m.cfg.Log.Warn("evicted pods take long to end", "count", len(ended))
			return
		case <-poll.C:
			ended = slices.DeleteFunc(ended, func(e ending) bool { return m.isGone(e.uid) })
			if len(ended) == 0 {
				return
			}
		}
	}
}

func (m *Manager) isGone(uid types.UID) bool {
	return !slices.ContainsFunc(m.cfg.Workers.Snapshot(), func(info lifecycle.Info) bool {
		return info.UID == uid && info.State < lifecycle.Finished
	})
}

// publish takes in which conditions the node has, and tells of changes.
func (m *Manager) publish(now []v1.NodeConditionType, seen observations) {
	var why []string
	for i := range m.history.since {
		why = append(why, low(m.cfg.Policy.thresholds[i], seen))
	}
	slices.Sort(why)
	m.mu.Lock()
	before := m.mu.conditions
	m.mu.conditions, m.mu.low = now, why
	m.mu.Unlock()
	if !slices.Equal(before, now) {
		m.cfg.Log.Warn("node's pressure changed", "conditions", now, "why", strings.Join(why, "; "))
		m.cfg.Changed()
	}
}

func (m *Manager) setTrouble(text string) {
	m.mu.Lock()
	before := m.mu.trouble
	m.mu.trouble = text
	m.mu.Unlock()
	if text != "" && before == "" {
		m.cfg.Log.Error("nothing is done about what is low", "why", text)
	}
}
