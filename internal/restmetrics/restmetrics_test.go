package restmetrics_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-dev/holdfast/internal/restmetrics"
)

func TestRequests(t *testing.T) {
	api := httptest.NewServer(http.NotFoundHandler())
	defer api.Close()
	registry := prometheus.NewRegistry()
	config := &rest.Config{Host: api.URL}
	config.Wrap(restmetrics.New(registry).Wrap)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	host := strings.TrimPrefix(api.URL, "http://")
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}); err == nil {
		t.Fatal("an API without nodes has one")
	}
	api.Close()
	if err := client.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}); err == nil {
		t.Fatal("an API that is not there deleted a node")
	}
	want := `
# HELP rest_client_requests_total Requests to the API, by the status of the answer, method and host.
# TYPE rest_client_requests_total counter
rest_client_requests_total{code="404",host="HOST",method="GET"} 1
rest_client_requests_total{code="<error>",host="HOST",method="DELETE"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(strings.ReplaceAll(want, "HOST", host)), "rest_client_requests_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(registry, "rest_client_request_duration_seconds"); n != 2 || err != nil {
		t.Errorf("%d series of durations, %v, want 2", n, err)
	}
}
