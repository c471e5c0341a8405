package wake

import "testing"

func TestBell(t *testing.T) {
	b := NewBell()
	rung := func() bool {
		select {
		case <-b:
			return true
		default:
			return false
		}
	}
	if rung() {
		t.Error("a new bell was rung")
	}
	for range 3 {
		b.Ring()
	}
	if !rung() || rung() {
		t.Error("want that it was rung once")
	}
	b.Ring()
	if !rung() {
		t.Error("want that it was rung again")
	}
}
