package podvolumes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// PodCertificate is what the api holds by the volume and the place in it.
func (a api) PodCertificate(_ context.Context, pod *v1.Pod, volume string, source int) (*Certificate, error) {
	c, ok := a[fmt.Sprintf("%s %s %d", pod.UID, volume, source)].(*Certificate)
	if !ok {
		return nil, errors.New("it is not issued yet")
	}
	return c, nil
}

func TestPodCertificate(t *testing.T) {
	chain := Certificates("# issued today\n" + pemOf("pod") + "the next:\n" + pemOf("ca"))
	issued := api{"uid v 1": &Certificate{Key: []byte("KEY\n"), Chain: chain}}
	other := v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{}}
	tests := []struct {
		name   string
		source v1.PodCertificateProjection
		api    api
		want   map[string]string // path → content
		err    string
	}{
		{"in one file", v1.PodCertificateProjection{CredentialBundlePath: "all.pem"}, issued, map[string]string{"all.pem": "KEY\n" + pemOf("pod", "ca")}, ""},
		{"in two", v1.PodCertificateProjection{KeyPath: "key", CertificateChainPath: "cert"}, issued, map[string]string{"key": "KEY\n", "cert": pemOf("pod", "ca")}, ""},
		{"not yet", v1.PodCertificateProjection{CredentialBundlePath: "all.pem"}, nil, nil, `waiting for certificate of pod ns/web (volume "v"): it is not issued yet`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := projected(nil, other, v1.VolumeProjection{PodCertificate: &tt.source})
			got, err := Resolve(t.Context(), pod(nil, v), &v, tt.api, Host{})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || !errors.Is(err, ErrWaiting) {
					t.Errorf("err = %v", err)
				}
				return
			}
			files := map[string]string{}
			for path, f := range got.Files {
				files[path] = string(f.Data)
			}
			if diff := cmp.Diff(files, tt.want); err != nil || diff != "" {
				t.Errorf("%v (-got +want):\n%s", err, diff)
			}
		})
	}
	t.Run("for the user that the pod runs as", func(t *testing.T) {
		runAs := func(p *v1.Pod) { p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64(1000))} }
		v := projected(nil, other, v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{KeyPath: "key"}})
		got, err := Resolve(t.Context(), pod(runAs, v), &v, issued, Host{})
		if f := got.Files["key"]; err != nil || f.Mode != 0o600 || f.UID == nil || *f.UID != 1000 {
			t.Errorf("%+v, %v", f, err)
		}
	})
}
