package nodeshutdown

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
)

// endPods ends all pods in order, each group within its period, and returns
// those that it asked to end. What does not end in its time is left to end while
// the next ones are asked.
func (m *Manager) endPods(ctx context.Context) (ended []*v1.Pod) {
	if m.cfg.Known != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-m.cfg.Known:
		}
	}
	began := time.Now()
	m.keep(state{StartTime: began})
	defer func() {
		m.keep(state{StartTime: began, EndTime: time.Now()})
		m.cfg.Log.Info("pods have ended for the machine to go down", "count", len(ended), "took", time.Since(began).Round(time.Millisecond))
	}()
	for _, g := range plan(m.cfg.Periods, m.cfg.Pods.Active()) {
		until := time.Now().Add(g.Grace)
		for i, wave := range g.waves {
			if ctx.Err() != nil {
				return ended
			}
			// Each gets its share, so that one that hangs takes nothing from the next.
			share := time.Until(until) / time.Duration(len(g.waves)-i)
			ended = append(ended, wave...)
			m.endWave(ctx, wave, share)
		}
	}
	return ended
}

// endWave ends pods at once and waits for them.
func (m *Manager) endWave(ctx context.Context, pods []*v1.Pod, share time.Duration) {
	for _, p := range pods {
		seconds := grace(p, share)
		m.cfg.Log.Info("ending a pod as the machine goes down", "pod", p.Namespace+"/"+p.Name, "podUID", p.UID, "grace", seconds)
		m.cfg.Pods.End(p, seconds)
	}
	ctx, cancel := context.WithTimeout(ctx, share)
	defer cancel()
	for _, p := range pods {
		if err := m.cfg.Pods.WaitFinished(ctx, p.UID); err != nil {
			m.cfg.Log.Warn("pods have not ended in their time, going on", "pod", p.Namespace+"/"+p.Name, "podUID", p.UID, "err", err)
			return
		}
	}
}

func (m *Manager) keep(s state) {
	if err := m.metrics.keep(m.cfg.StateFile, s); err != nil {
		m.cfg.Log.Warn("note when the machine went down", "err", err)
	}
}
