package prober

import "slices"

// set stores a worker's answer and announces its pod if the answer is new.
func (p *Prober) set(w *worker, id string, healthy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.removed {
		return
	}
	have, known := p.answers[id][w.key.kind]
	if known && have == healthy {
		return
	}
	if p.answers[id] == nil {
		p.answers[id] = map[kind]bool{}
	}
	p.answers[id][w.key.kind] = healthy
	w.answerID = id
	if w.key.kind == startup && healthy {
		// The container's other probes have waited for this.
		for _, k := range []kind{liveness, readiness} {
			if other := p.workers[key{w.key.uid, w.key.container, k}]; other != nil {
				other.wake.Ring()
			}
		}
	}
	if !slices.Contains(p.changed, w.key.uid) {
		p.changed = append(p.changed, w.key.uid)
	}
	p.wake.Ring()
}

// forget drops a worker's answer: its container was replaced.
func (p *Prober) forget(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetLocked(w.answerID, w.key.kind)
	w.answerID = ""
}

func (p *Prober) forgetLocked(id string, k kind) {
	delete(p.answers[id], k)
	if len(p.answers[id]) == 0 {
		delete(p.answers, id)
	}
}
