package objects

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// wantGets says how often ConfigMaps were read since the last time, and that
// none was listed or watched.
func (w *world) wantGets(before *int, want int) {
	w.t.Helper()
	synctest.Wait()
	n := w.called("get configmaps")
	if got := n - *before; got != want {
		w.t.Errorf("%d reads of ConfigMaps, want %d", got, want)
	}
	*before = n
	if n := w.called("list configmaps") + w.called("watch configmaps"); n != 0 {
		w.t.Errorf("%d lists and watches of ConfigMaps", n)
	}
}

func TestCacheStrategy(t *testing.T) {
	runWith(t, Config{Strategy: kubeletconfig.TTLCacheChangeDetectionStrategy}, func(_ *testing.T, w *world) {
		w.put("cm", "1", false)
		gets := w.called("get configmaps")
		w.store.Hold(podOf("p1", "cm"))
		w.wantValue("cm", "1")
		w.wantNews("p1")
		w.put("cm", "2", false)
		w.wantNews()
		w.wantValue("cm", "1")
		w.wantGets(&gets, 1)
		time.Sleep(time.Minute) // in the bubble: it is old now
		w.wantNews("p1")
		w.wantValue("cm", "2")
		w.wantGets(&gets, 1)

		// A pod that comes sees what is there when it comes, and shares the reads.
		w.put("cm", "3", false)
		w.store.Hold(podOf("p2", "cm"))
		w.wantValue("cm", "3")
		w.wantGets(&gets, 1)
		if news := w.news(); len(news) != 2 {
			w.t.Errorf("told %v, want both pods", news)
		}
		w.store.Hold(podOf("p2", "cm")) // it holds it already
		w.wantGets(&gets, 0)

		w.fail(errors.New("no route"))
		time.Sleep(5 * time.Minute)
		w.wantFaults("ConfigMap ns/cm")
		w.wantValue("cm", "3")
		w.fail(nil)
		time.Sleep(time.Minute)
		w.wantFaults()

		w.store.Release("p1")
		w.store.Release("p2")
		gets = w.called("get configmaps")
		time.Sleep(10 * time.Minute)
		w.wantGets(&gets, 0)
	})
}

// TestCacheAsksAfterHold has a pod come while an answer from before is under way.
func TestCacheAsksAfterHold(t *testing.T) {
	runWith(t, Config{Strategy: kubeletconfig.TTLCacheChangeDetectionStrategy}, func(t *testing.T, w *world) {
		w.put("cm", "1", false)
		w.store.Hold(podOf("p1", "cm"))
		w.wantValue("cm", "1")
		w.put("cm", "2", false)
		slow := make(chan struct{})
		state := func(value string) *v1.ConfigMap {
			return &v1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cm", UID: "cm", ResourceVersion: value}, Data: map[string]string{"k": value},
			}
		}
		w.answerOnce(func() runtime.Object {
			<-slow
			w.answerOnce(func() runtime.Object {
				time.Sleep(time.Millisecond) // who takes the first answer has it by then
				return state("2")
			})
			return state("1")
		})
		time.Sleep(time.Minute)
		synctest.Wait() // the slow answer is under way
		w.store.Hold(podOf("p2", "cm"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.AfterFunc(time.Millisecond, func() { close(slow) })
		cm, err := w.store.GetConfigMap(ctx, "ns", "cm")
		if err != nil || cm.Data["k"] != "2" {
			t.Errorf("got %v, %v, want the answer that was asked for after the pod came", cm, err)
		}
	})
}

func TestGetStrategy(t *testing.T) {
	runWith(t, Config{Strategy: kubeletconfig.GetChangeDetectionStrategy}, func(_ *testing.T, w *world) {
		w.put("cm", "1", false)
		w.store.Hold(podOf("p1", "cm"))
		w.wantNews("p1")
		gets := w.called("get configmaps")
		w.wantValue("cm", "1")
		w.put("cm", "2", false)
		w.wantValue("cm", "2")
		w.wantGets(&gets, 2)
		time.Sleep(time.Minute)
		w.wantNews("p1") // so that its volume gets the change, too
		w.wantGets(&gets, 1)

		w.fail(errors.New("no route"))
		w.wantValue("cm", "2")
		w.fail(nil)
		if err := w.api.CoreV1().ConfigMaps("ns").Delete(w.t.Context(), "cm", metav1.DeleteOptions{}); err != nil {
			w.t.Fatal(err)
		}
		w.wantValue("cm", "")
	})
}

// TestImmutableIsReadOnce by every strategy.
func TestImmutableIsReadOnce(t *testing.T) {
	runWith(t, Config{Strategy: kubeletconfig.TTLCacheChangeDetectionStrategy}, func(_ *testing.T, w *world) {
		w.put("cm", "1", true)
		w.store.Hold(podOf("p1", "cm"))
		w.wantValue("cm", "1")
		gets := w.called("get configmaps")
		time.Sleep(time.Hour)
		w.store.Hold(podOf("p2", "cm"))
		w.wantValue("cm", "1")
		w.wantGets(&gets, 0)
	})
}

func TestAge(t *testing.T) {
	age := func() time.Duration { return 5 * time.Minute }
	runWith(t, Config{Strategy: kubeletconfig.TTLCacheChangeDetectionStrategy, Age: age}, func(_ *testing.T, w *world) {
		w.put("cm", "1", false)
		w.store.Hold(podOf("p1", "cm"))
		w.wantValue("cm", "1")
		gets := w.called("get configmaps")
		time.Sleep(5*time.Minute - time.Second)
		w.wantGets(&gets, 0)
		time.Sleep(time.Second)
		w.wantGets(&gets, 1)
	})
}
