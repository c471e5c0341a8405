package localapi

import "github.com/prometheus/client_golang/prometheus"

// setStore tells the other methods of the store that serves; nil: none.
func (s *Server) setStore(store *etcd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.store = store
}

func (s *Server) store() *etcd {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.store
}

// Shortage says why the API takes no new objects at the moment, and what
// helps; "" if it does.
func (s *Server) Shortage() string {
	if store := s.store(); store != nil {
		return store.guard.shortage(true)
	}
	return ""
}

// registerMetrics makes the store's size known, under etcd's names for it.
func (s *Server) registerMetrics(r prometheus.Registerer) {
	for name, m := range map[string]struct {
		help string
		read func(*etcd) int64
	}{
		"etcd_mvcc_db_total_size_in_bytes":        {"Size of the store's database, in bytes.", func(e *etcd) int64 { return e.server.Server.Backend().Size() }},
		"etcd_mvcc_db_total_size_in_use_in_bytes": {"What of the store's database is in use, in bytes.", func(e *etcd) int64 { return e.server.Server.Backend().SizeInUse() }},
		"etcd_server_quota_backend_bytes":         {"What the store may grow to, in bytes.", func(*etcd) int64 { return storeQuota }},
	} {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: m.help}, func() float64 {
			if store := s.store(); store != nil {
				return float64(m.read(store))
			}
			return 0
		}))
	}
}
