package localapi

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// startStore runs a store alone until the test ends.
func startStore(t *testing.T, quota int64) *etcd {
	t.Helper()
	dir := t.TempDir()
	e, err := startEtcd(t.Context(), storeConfig{dir: dir, runDir: filepath.Join(dir, "run"), quota: quota, log: testLog})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.stop)
	return e
}

// putMany writes count values of size bytes, each under a key of its own.
func putMany(t *testing.T, client *clientv3.Client, prefix string, count, size int, opts ...clientv3.OpOption) error {
	t.Helper()
	value := strings.Repeat("x", size)
	for i := range count {
		if _, err := client.Put(t.Context(), fmt.Sprintf("%s/%d", prefix, i), value, opts...); err != nil {
			return err
		}
	}
	return nil
}

// At its quota etcd takes nothing more until somebody says so. Here what was
// deleted is given back and it goes on by itself.
func TestQuotaIsLeftAgain(t *testing.T) {
	e := startStore(t, 48<<20)
	client := e.client()
	full := guarded{kubernetes.Client{Client: client}, e.guard}
	put := func(key string, size int) error {
		_, err := full.OptimisticPut(t.Context(), key, make([]byte, size), 0, kubernetes.PutOptions{})
		return err
	}
	for i := range 60 {
		if err := put(fmt.Sprintf("/a/%d", i), 1<<20); err != nil {
			break
		}
	}
	err := put("/b", 1)
	if err == nil || !strings.Contains(err.Error(), "is full: delete objects") {
		t.Fatalf("got %v, want what to do", err)
	}
	if err := e.tidy(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	if err := put("/b", 1); err == nil {
		t.Error("nothing was deleted, and it takes objects")
	}
	if _, err := client.Delete(t.Context(), "/a", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	// A reader that is slow to go keeps what was freed a little longer: the next
	// look finds it.
	var refused error
	for range 10 {
		if err := e.tidy(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		if refused = put("/b", 1); refused == nil {
			break
		}
	}
	if refused != nil {
		t.Errorf("there is room again: %v", refused)
	}
	if size := e.server.Server.Backend().Size(); size > 1<<20 {
		t.Errorf("the database has %d bytes, want them given back", size)
	}
	if got, want := allocated(t, databaseFile(e.dir)), e.allocated; want == 0 || got < want {
		t.Errorf("%d of %d bytes of the database have blocks", got, want)
	}
}

// Events expire with their lease; the room of the old ones is used for the new.
func TestEventsAreBounded(t *testing.T) {
	e := startStore(t, 0)
	client := e.client()
	var after []int64
	for range 3 {
		lease, err := client.Grant(t.Context(), 3600)
		if err != nil {
			t.Fatal(err)
		}
		if err := putMany(t, client, "/registry/events/default", 3000, 800, clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Revoke(t.Context(), lease.ID); err != nil { // as when it expires
			t.Fatal(err)
		}
		if err := e.forget(t.Context(), client); err != nil { // as the API server does after five minutes
			t.Fatal(err)
		}
		e.server.Server.Backend().ForceCommit()
		after = append(after, e.server.Server.Backend().Size())
	}
	if after[2] > after[0]+after[0]/4 {
		t.Errorf("sizes after each round: %d, want no growth", after)
	}
}

func allocated(t *testing.T, file string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

func testEventsExpire(t *testing.T, s *Server) {
	client := clientFor(t, s.AdminConfig())
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "expires", Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Namespace: "default"},
	}
	if _, err := client.CoreV1().Events("default").Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	store := s.store().client()
	got, err := store.Get(t.Context(), storePrefix+"/events/default/expires")
	if err != nil || len(got.Kvs) != 1 {
		t.Fatal(got, err)
	}
	lease, err := store.TimeToLive(t.Context(), clientv3.LeaseID(got.Kvs[0].Lease))
	if err != nil {
		t.Fatal(err)
	}
	if least, most := int64(eventTTL.Seconds()), int64(eventTTL.Seconds())+120; lease.GrantedTTL < least || lease.GrantedTTL > most {
		t.Errorf("an event lives %d s, want %d", lease.GrantedTTL, least)
	}
}
