package desired

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// takeFull makes the entries of a source those of a full set.
func (p *Pods) takeFull(s *source, d Delivery, c *changes) {
	s.twins = nil
	kept, known := 0, len(s.entries)
	s.next = 0
	for i, pod := range d.Pods {
		e := s.find(s.next, pod)
		if e != nil && e.round == s.round {
			s.twins = append(s.twins, twin{pod, d.place(i)})
			continue
		}
		if e != nil && (e.pod == pod || nameOf(e.pod) == nameOf(pod)) {
			kept++
			p.renew(s, e, pod)
			e.order = s.next
			s.next++
		} else {
			if e != nil { // a new name: another pod
				known--
				p.lose(s, e, c)
			}
			e = p.put(s, pod)
		}
		e.place, e.round = d.place(i), s.round
		s.remember(e)
	}
	if kept < known {
		for _, e := range s.entries {
			if e.round != s.round {
				p.lose(s, e, c)
			}
		}
	}
	s.last = trim(s.last, s.next)
	for name := range s.shared {
		s.reorder(name)
		p.touched = append(p.touched, s.names[name])
	}
}

// trim returns the first n of a list, and lets go of the others.
func trim(list []*entry, n int) []*entry {
	clear(list[n:])
	return list[:n]
}

// takeDelta changes the entries that a delta names. What is gone and comes again
// in one delta was never away.
func (p *Pods) takeDelta(s *source, d Delivery, c *changes) {
	for i, pod := range d.Pods {
		e := s.entries[pod.UID]
		if e != nil && nameOf(e.pod) != nameOf(pod) { // another pod
			p.lose(s, e, c)
			e = nil
		}
		if e == nil {
			p.loseRestored(s, nameOf(pod), c)
			e = p.put(s, pod)
		} else {
			p.renew(s, e, pod)
		}
		e.place, e.round = d.place(i), s.round
	}
	for _, uid := range d.Gone {
		if e := s.entries[uid]; e != nil && e.round != s.round {
			p.lose(s, e, c)
		}
	}
	s.twins = slices.DeleteFunc(s.twins, func(t twin) bool {
		e := s.entries[t.pod.UID]
		return e == nil || e.round == s.round
	})
}

// takeRestored adds the pods of which the source has not spoken itself.
func (p *Pods) takeRestored(s *source, d Delivery) {
	for i, pod := range d.Pods {
		if s.entries[pod.UID] == nil && s.names[nameOf(pod)] == nil {
			e := p.put(s, pod)
			e.place, e.round, e.restored = d.place(i), s.round, true
		}
	}
}

// loseRestored lets go of a restored pod whose name the source now gives to
// another.
func (p *Pods) loseRestored(s *source, name types.NamespacedName, c *changes) {
	if e := s.names[name]; e != nil && e.restored {
		p.lose(s, e, c)
	}
}

// put adds a pod behind the others of its source.
func (p *Pods) put(s *source, pod *corev1.Pod) *entry {
	e := s.put(pod, s.next)
	s.next++
	p.touched = append(p.touched, e)
	return e
}

// renew takes a pod that is known.
func (p *Pods) renew(s *source, e *entry, pod *corev1.Pod) {
	e.restored = false
	if !s.sameVersion(e.pod, pod) {
		e.pod, e.fresh = pod, true
		p.touched = append(p.touched, e)
	}
}

// lose takes an entry away.
func (p *Pods) lose(s *source, e *entry, c *changes) {
	name := nameOf(e.pod)
	if e.stored != nil {
		c.note(OpRemove, e)
		e.stored = nil
		if s.static {
			delete(p.holders, name)
			p.freed = append(p.freed, name)
		}
	}
	s.drop(e)
	p.checkClash(name)
	if first := s.names[name]; first != nil {
		p.touched = append(p.touched, first)
	} else {
		delete(s.waiting, name)
	}
}

// settle decides what of the touched pods is in force, and notes what changed.
func (p *Pods) settle(c *changes, now time.Time) {
	for _, e := range p.touched {
		switch {
		case e.pod == nil: // it was lost later
		case e.stored != nil && len(c.source.shared) == 0:
			p.compare(c, e)
		default:
			p.resolve(c, nameOf(e.pod), now)
		}
	}
	clear(p.touched)
	p.touched = p.touched[:0]
}

// resolve decides which pod of a name is in force.
func (p *Pods) resolve(c *changes, name types.NamespacedName, now time.Time) {
	s := c.source
	first := s.names[name]
	for e := first.next; e != nil; e = e.next {
		if e.stored != nil {
			c.note(OpRemove, e)
			e.stored = nil
		}
	}
	if first.stored != nil {
		p.compare(c, first)
		return
	}
	if s.static {
		if holder := cmp.Or(p.holders[name], p.heirs[name]); holder != nil && holder != s {
			s.waiting[name] = true
			return
		}
		delete(s.waiting, name)
		p.holders[name] = s
	}
	first.stored, first.fresh = adopt(first.pod, s.name, now), false
	c.note(c.added, first)
	p.checkClash(name)
}

// compare notes what changed of a pod that is in force.
func (p *Pods) compare(c *changes, e *entry) {
	if !e.fresh {
		return
	}
	e.fresh = false
	stored, op, changed := c.source.change(e.stored, e.pod)
	if changed {
		e.stored = stored
		c.note(op, e)
		p.checkClash(nameOf(stored))
	}
}

// fill puts pods that had given way in the place of those that are gone.
func (p *Pods) fill(now time.Time) []*changes {
	if len(p.freed) == 0 {
		return nil
	}
	var filled []*changes
	for _, s := range p.ordered {
		c := &changes{source: s, added: OpAdd}
		for _, name := range p.freed {
			if s.waiting[name] && p.holders[name] == nil {
				p.resolve(c, name, now)
			}
		}
		if c.has(OpAdd) {
			filled = append(filled, c)
		}
	}
	p.freed = nil
	return filled
}

// Keep has a name wait for a static source: its pod of that name runs, from an
// earlier run of the agent. Until the source has delivered a full set no other
// static source's pod gets the name, or the order in which sources answer after
// a restart would decide what goes on running. It says nothing of sources that
// have delivered, or do not exist.
func (p *Pods) Keep(name types.NamespacedName, source string) {
	if s := p.sources[source]; s != nil && s.static && !s.seen {
		p.heirs[name] = s
	}
}

// disinherit lets others have the names that were kept for a source, now that it
// has answered.
func (p *Pods) disinherit(s *source) {
	for name, heir := range p.heirs {
		if heir == s {
			delete(p.heirs, name)
			p.freed = append(p.freed, name)
		}
	}
}
