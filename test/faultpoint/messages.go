package faultpoint

import (
	"sync"
	"time"

	"google.golang.org/grpc"
)

// messages are those that the runtime sends on one stream.
type messages struct {
	to   grpc.ServerStream
	stop chan struct{}
	wg   sync.WaitGroup

	mu   sync.Mutex // guards sending, and the field below
	late []byte     // comes after the next one
}

func newMessages(to grpc.ServerStream) *messages {
	return &messages{to: to, stop: make(chan struct{})}
}

// end waits for messages that would come later, which then do not.
func (m *messages) end() {
	close(m.stop)
	m.wg.Wait()
}

// pass does with a message what a fault wants.
func (m *messages) pass(message []byte, f Fault) error {
	if f.Again > 0 {
		m.wg.Go(func() { m.repeat(message, f.Again) })
	}
	if f.Lose {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.Late && m.late == nil {
		m.late = message
		return nil
	}
	sent := [][]byte{message}
	if f.Twice {
		sent = append(sent, message)
	}
	if m.late != nil {
		sent = append(sent, m.late)
		m.late = nil
	}
	for _, one := range sent {
		if err := m.to.SendMsg(&one); err != nil {
			return err
		}
	}
	return nil
}

func (m *messages) repeat(message []byte, after time.Duration) {
	select {
	case <-time.After(after):
		m.mu.Lock()
		defer m.mu.Unlock()
		_ = m.to.SendMsg(&message) // the next one says what is wrong
	case <-m.stop:
	}
}
