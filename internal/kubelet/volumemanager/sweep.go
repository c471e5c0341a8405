package volumemanager

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
)

// Sweep has the volumes and the folder removed of every pod on disk that known
// denies, other than those whose volumes are wanted. It only lists folders and
// returns; the work goes on behind, and is tried again. known must say yes to
// every pod that some source wants or of which anything runs, so do not call
// it before all sources have been seen.
func (m *Manager) Sweep(ctx context.Context, known func(types.UID) bool) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	uids, err := m.cfg.Folders.Pods(ctx)
	for _, uid := range uids {
		if known(uid) {
			continue
		}
		m.mu.Lock()
		st := m.stateLocked(uid)
		if st.intent != wanted && !st.sweep {
			m.cfg.Log.Info("removing the folder of a pod that is gone", "podUID", uid)
			st.sweep = true
			m.dropLocked(st) // again, if it goes already: its folder goes too now
		}
		m.mu.Unlock()
	}
	return err
}
