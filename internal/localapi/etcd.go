package localapi

import (
	"cmp"
	"context"
	"errors"
	"expvar"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

const (
	// maxSocketPath is what Linux accepts in a sockaddr_un, less the final 0.
	maxSocketPath = 107
	// storeQuota is far above what one node's objects need; at the quota etcd
	// refuses writes instead of filling the disk.
	storeQuota = 256 << 20
	// snapshotEntries bounds the log that etcd keeps on disk; its default of
	// 10,000 is for followers, which a single member has not.
	snapshotEntries, catchUpEntries = 500, 50
	// logSegment is what etcd takes ahead on the disk for its log, two or three
	// times; its own default of 64 MB is most of a small machine's store.
	logSegment = 4 << 20
	// batchInterval and batchLimit say when the database is brought up to the
	// log, after that time or that many writes. What was acknowledged is in the
	// log, which is synced at each write, so this costs no safety: only what a
	// start after a crash reads again. etcd's default of 100 ms writes some
	// 40 KiB for each renewal of a lease, and wakes ten times a second.
	batchInterval, batchLimit = 30 * time.Second, 500
	// tick is raft's clock. There is nobody to hear a heartbeat, and elect does
	// not wait for it.
	tick = time.Second
	// electInterval is how often a start asks to be the leader until it is.
	electInterval = 5 * time.Millisecond
)

// etcd is the embedded store: one member that serves on a unix socket.
type etcd struct {
	server *embed.Etcd
	dir    string
	socket string
	quota  int64
	log    *slog.Logger
	death  *death
	guard  *guard

	allocated int64 // length of the database that has its blocks; keepHouse alone
}

// setLogSegment is once for the process: it is a variable of etcd's.
var setLogSegment = sync.OnceFunc(func() { wal.SegmentSizeBytes = logSegment })

// storeConfig says where a store is.
type storeConfig struct {
	dir    string // of its files; exists
	runDir string // of its socket; made, mode 0700
	quota  int64  // bytes that its database may grow to; default: storeQuota
	log    *slog.Logger
	elect  time.Duration // how often a start asks to be the leader; default: electInterval
}

// startEtcd starts a store and waits until it takes writes. A write that it
// acknowledged was synced to disk.
func startEtcd(ctx context.Context, cfg storeConfig) (*etcd, error) {
	setLogSegment()
	cfg.quota = cmp.Or(cfg.quota, storeQuota)
	if err := os.MkdirAll(cfg.runDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the store's socket: %w", err)
	}
	socket := filepath.Join(cfg.runDir, "etcd.sock")
	if len(socket) > maxSocketPath {
		return nil, fmt.Errorf("the path of the store's socket, %s, is longer than %d bytes: choose a shorter run folder", socket, maxSocketPath)
	}
	if err := checkRoom(cfg.dir); err != nil {
		return nil, err
	}
	if err := checkFiles(cfg.dir); err != nil {
		return nil, damaged(cfg.dir, err)
	}
	death := newDeath()
	server, err := launch(etcdConfig(cfg, socket, zapLogger(cfg.log, death)), death)
	if err != nil {
		return nil, damaged(cfg.dir, err)
	}
	e := &etcd{server: server, dir: cfg.dir, socket: socket, log: cfg.log, quota: cfg.quota, death: death}
	if err := e.elect(ctx, cmp.Or(cfg.elect, electInterval)); err != nil {
		e.stop()
		return nil, err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		e.stop()
		return nil, fmt.Errorf("protect the store's socket: %w", err)
	}
	// Until then the database does not know its own version.
	server.Server.Backend().ForceCommit()
	e.guard = newGuard(e)
	e.preallocate()
	return e, nil
}

// launch starts etcd. Some kinds of damage make it panic, here or in another
// goroutine; either comes back as an error, and what was started stays as it
// is until the process ends, which is soon.
func launch(cfg *embed.Config, death *death) (*embed.Etcd, error) {
	type result struct {
		server *embed.Etcd
		err    error
	}
	launched := make(chan result, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				launched <- result{nil, fmt.Errorf("%v", r)}
			}
		}()
		server, err := embed.StartEtcd(cfg)
		launched <- result{server, err}
	}()
	select {
	case r := <-launched:
		return r.server, r.err
	case <-death.done:
		return nil, death.err
	}
}

// elect makes the only member the leader, and waits until it serves. Left
// alone it would wait out an election timeout for a leader that there cannot be.
// The message is the one by which a leader that goes hands over.
//
// It waits until raft counts as applied what the log has. Before that raft looks
// through the rest of the log at every election, and dies if etcd, a moment
// ahead of it, has dropped the beginning.
func (e *etcd) elect(ctx context.Context, every time.Duration) error {
	self := uint64(e.server.Server.MemberID())
	read := make(chan struct{})
	look, stop := context.WithCancel(ctx)
	defer stop()
	// If raft is dead nobody answers it; then it ends with the process.
	go func() {
		again := time.NewTicker(every)
		defer again.Stop()
		for !replayed(self) {
			select {
			case <-again.C:
			case <-look.Done():
				return
			}
		}
		close(read)
	}()
	again := time.NewTicker(every)
	defer again.Stop()
	var ask <-chan time.Time // nil: not yet
	for {
		select {
		case <-e.server.Server.ReadyNotify():
			return nil
		case <-read:
			read, ask = nil, again.C
		case <-ask:
			err := e.server.Server.Process(ctx, &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), To: &self, From: &self})
			if err != nil && !errors.Is(err, raft.ErrStopped) { // then Err says why
				return fmt.Errorf("start the store: %w", err)
			}
		case err := <-e.server.Err():
			return damaged(e.dir, err)
		case <-e.death.done:
			return damaged(e.dir, e.death.err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// replayed reports whether raft counts all that is committed as applied. Of a
// member that does not lead neither changes any more then. A published variable
// is the only door at which etcd shows this.
func replayed(member uint64) bool {
	published, ok := expvar.Get("raft.status").(expvar.Func)
	if !ok {
		return false
	}
	status, ok := published.Value().(raft.Status)
	return ok && status.ID == member && status.Applied == status.GetCommit()
}

func etcdConfig(store storeConfig, socket string, log *zap.Logger) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = "holdfast"
	cfg.Dir = store.dir
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ListenPeerUrls = nil // a single member has no peers
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: socket}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log)
	cfg.QuotaBackendBytes = store.quota
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = snapshotEntries, catchUpEntries
	cfg.MaxSnapFiles, cfg.MaxWalFiles = 2, 2
	cfg.BackendBatchInterval, cfg.BackendBatchLimit = batchInterval, batchLimit
	cfg.TickMs, cfg.ElectionMs = uint(tick.Milliseconds()), uint(5*tick.Milliseconds()) // 5 is the least
	cfg.AutoCompactionRetention = "0"                                                   // the API server compacts
	cfg.EnableGRPCGateway = false
	cfg.Metrics = "basic"
	return cfg
}

// stop closes the store and waits until it has ended. One that died cannot be
// closed; its files are as after a crash.
func (e *etcd) stop() {
	e.death.stopping.Store(true)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		e.server.Close()
		<-e.server.Server.StopNotify()
	}()
	select {
	case <-closed:
	case <-e.death.done:
	}
}

// client returns a new client that calls the store directly. It works until
// the store is stopped.
func (e *etcd) client() *clientv3.Client { return v3client.New(e.server.Server) }

// endpoint is the store's address, for health checks.
func (e *etcd) endpoint() string { return "unix://" + e.socket }

// ended waits until the store has ended by itself, and says why.
func (e *etcd) ended(ctx context.Context) error {
	select {
	case err := <-e.server.Err():
		return fmt.Errorf("the store stopped: %w", err)
	case <-e.death.done:
		return broken(e.dir, e.death.err)
	case <-ctx.Done():
		return nil
	}
}
