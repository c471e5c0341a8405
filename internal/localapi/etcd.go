package localapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

const (
	// maxSocketPath is what Linux accepts in a sockaddr_un, less the final 0.
	maxSocketPath = 107
	// storeQuota is far above what one node's objects need; at the quota etcd
	// refuses writes instead of filling the disk.
	storeQuota = 1 << 30
	// snapshotEntries bounds the log entries that etcd keeps in memory; its
	// default of 10,000 is for followers, which a single member has not.
	snapshotEntries, catchUpEntries = 2000, 100
	// lockTimeout is for the database's own lock, which nobody else can have
	// while we hold the store's.
	lockTimeout = time.Second
)

// etcd is the embedded store: one member that serves on a unix socket.
type etcd struct {
	server   *embed.Etcd
	socket   string
	stopping *atomic.Bool
}

// startEtcd starts the store in dir and waits until it takes writes. A write
// that it acknowledged was synced to disk.
func startEtcd(ctx context.Context, dir, runDir string, log *slog.Logger) (*etcd, error) {
	if err := os.MkdirAll(runDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the store's socket: %w", err)
	}
	socket := filepath.Join(runDir, "etcd.sock")
	if len(socket) > maxSocketPath {
		return nil, fmt.Errorf("the path of the store's socket, %s, is longer than %d bytes: choose a shorter run folder", socket, maxSocketPath)
	}
	if err := checkDatabase(dir); err != nil {
		return nil, damaged(dir, err)
	}
	stopping := new(atomic.Bool)
	server, err := launch(etcdConfig(dir, socket, zapLogger(log, stopping)))
	if err != nil {
		return nil, damaged(dir, err)
	}
	e := &etcd{server, socket, stopping}
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		e.stop()
		return nil, damaged(dir, err)
	case <-ctx.Done():
		e.stop()
		return nil, ctx.Err()
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		e.stop()
		return nil, fmt.Errorf("protect the store's socket: %w", err)
	}
	return e, nil
}

// checkDatabase opens the database once, for etcd opens it in a goroutine of
// its own, where damage ends the process and nobody can say what to do.
func checkDatabase(dir string) error {
	file := filepath.Join(dir, "member", "snap", "db")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil // a new store
	}
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if err != nil {
		return fmt.Errorf("open %s: %w", file, err)
	}
	return db.Close()
}

// launch starts etcd and turns a panic, which is how etcd reports some kinds
// of damage to its files, into an error.
func launch(cfg *embed.Config) (server *embed.Etcd, err error) {
	defer func() {
		if r := recover(); r != nil {
			server, err = nil, fmt.Errorf("%v", r)
		}
	}()
	return embed.StartEtcd(cfg)
}

func etcdConfig(dir, socket string, log *zap.Logger) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = "holdfast"
	cfg.Dir = dir
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ListenPeerUrls = nil // a single member has no peers
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: socket}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log)
	cfg.QuotaBackendBytes = storeQuota
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = snapshotEntries, catchUpEntries
	cfg.MaxSnapFiles, cfg.MaxWalFiles = 2, 2
	// There is nobody to hear a heartbeat: a tick costs a wake-up, and an
	// election of a few ticks costs its length at every start.
	cfg.TickMs, cfg.ElectionMs = 100, 500
	cfg.AutoCompactionRetention = "0" // the API server compacts
	cfg.EnableGRPCGateway = false
	cfg.Metrics = "basic"
	return cfg
}

// stop closes the store and waits until it has ended.
func (e *etcd) stop() {
	e.stopping.Store(true)
	e.server.Close()
	<-e.server.Server.StopNotify()
}

// client returns a new client that calls the store directly. It works until
// the store is stopped.
func (e *etcd) client() *clientv3.Client { return v3client.New(e.server.Server) }

// endpoint is the store's address, for health checks.
func (e *etcd) endpoint() string { return "unix://" + e.socket }

// ErrDamagedStore is returned when the store's files cannot be read.
var ErrDamagedStore = errors.New("the store is damaged")

// damaged says that the store in dir cannot be opened because of err, and what
// helps. A full disk is no damage: the store is whole, and nothing must be moved.
func damaged(dir string, err error) error {
	const least = 64 << 20 // bytes: what etcd takes ahead for its log
	var disk unix.Statfs_t
	if errors.Is(err, unix.ENOSPC) || unix.Statfs(dir, &disk) == nil && disk.Bfree*uint64(disk.Bsize) < least {
		return fmt.Errorf("the disk of %s has too little room, the store needs 64 MiB to start: %w (free some space and start again; nothing is lost)", dir, err)
	}
	return fmt.Errorf("%w: open %s: %w (put back a copy, or move the folder away to start empty: pods from the manifest folder come back by themselves, objects made through the API do not)",
		ErrDamagedStore, dir, err)
}
