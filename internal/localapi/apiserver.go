package localapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/capabilities"
)

// informerResync replays the informers' caches to their handlers, as the
// upstream API server's shared informers do.
const informerResync = 10 * time.Minute

// api is a built API server with its client and informers.
type api struct {
	prepared  preparedServer
	secure    *genericapiserver.SecureServingInfo
	client    *kubernetes.Clientset // of group system:masters, by loopback
	loopback  *rest.Config
	informers informers.SharedInformerFactory
	stop      <-chan struct{} // closed when the server stops
	storages  *storages
}

// preparedServer is upstream's own unexported prepared server.
type preparedServer struct {
	*genericapiserver.GenericAPIServer
	RunWithContext func(context.Context) error
}

// newAPI builds the API server upon the store. What it starts (the storage of
// each resource) ends with the server.
func (s *Server) newAPI(ctx context.Context, store *etcd) (*api, error) {
	// Privileged containers are the user's business on their own machine;
	// without this, validation refuses them.
	capabilities.Setup(true, 0)

	a := &api{stop: ctx.Done()}
	var err error
	if a.secure, err = s.secureServing(); err != nil {
		return nil, err
	}
	a.loopback = s.loopbackConfig()
	if a.client, err = kubernetes.NewForConfig(a.loopback); err != nil {
		return nil, fmt.Errorf("make the loopback client: %w", err)
	}
	a.informers = informers.NewSharedInformerFactoryWithOptions(a.client, informerResync, informers.WithTransform(trim))

	cfg := s.genericConfig(a)
	factory, err := storageFactory(cfg, store.endpoint())
	if err != nil {
		return nil, err
	}
	a.storages = newStorages(cfg.RESTOptionsGetter, store.client(), store.guard)
	cfg.RESTOptionsGetter = a.storages
	if err := s.secureConfig(ctx, cfg, a); err != nil {
		return nil, err
	}
	server, err := cfg.Complete(a.informers).New("holdfast", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("make the API server: %w", err)
	}
	server.ShutdownTimeout = shutdownTimeout
	if err := s.install(server, cfg, factory, a); err != nil {
		server.Destroy()
		return nil, errors.Join(err, a.storages.close())
	}
	// Only installing needed the schemas of every type there is, 6 MiB. They are
	// cleared too, because something of upstream's keeps the map.
	clear(cfg.OpenAPIV3Config.Definitions)
	cfg.OpenAPIV3Config.Definitions = nil
	s.documents().install(server)
	prepared := server.PrepareRun()
	a.prepared = preparedServer{prepared.GenericAPIServer, prepared.RunWithContext}
	return a, nil
}

// genericConfig is the API server's configuration without storage and
// without who may do what.
func (s *Server) genericConfig(a *api) *genericapiserver.Config {
	cfg := genericapiserver.NewConfig(legacyscheme.Codecs)
	cfg.EffectiveVersion = effectiveVersion()
	cfg.SecureServing = a.secure
	cfg.LoopbackClientConfig = a.loopback
	cfg.ExternalAddress = s.Address()
	cfg.EnableProfiling = false
	cfg.ShutdownWatchTerminationGracePeriod = shutdownTimeout / 2
	cfg.StorageObjectCountTracker = nil // feeds priority and fairness, which one node does not need
	cfg.MergedResourceConfig = resources()
	cfg.LongRunningFunc = filters.BasicLongRunningRequestCheck(
		sets.NewString("watch", "proxy"),
		sets.NewString("attach", "exec", "proxy", "log", "portforward"),
	)
	cfg.SkipOpenAPIInstallation = true // documents serves them
	cfg.OpenAPIV3Config = s.documents().v3Config()
	return cfg
}

func (s *Server) documents() documents {
	d := documents{schemes: []*runtime.Scheme{legacyscheme.Scheme}, version: KubernetesVersion}
	for _, group := range s.cfg.Groups {
		d.schemes = append(d.schemes, group.Scheme)
	}
	return d
}

func (s *Server) secureServing() (*genericapiserver.SecureServingInfo, error) {
	ca, err := dynamiccertificates.NewStaticCAContent("client-ca", s.pki.CertPEM())
	if err != nil {
		return nil, fmt.Errorf("use the authority's certificate: %w", err)
	}
	return &genericapiserver.SecureServingInfo{Listener: s.listeners[0], Cert: s.serving, ClientCA: ca}, nil
}

// loopbackConfig is how the server's own parts call it. The token is known to
// this process alone and lives as long.
func (s *Server) loopbackConfig() *rest.Config {
	return &rest.Config{
		Host:               "https://" + s.Address(),
		BearerToken:        rand.Text(),
		TLSClientConfig:    rest.TLSClientConfig{CAData: s.pki.CertPEM()},
		QPS:                -1, // no limit on calls within one process
		DisableCompression: true,
		ContentConfig:      protobuf(),
	}
}

// protobuf prefers the format that is cheaper for both ends.
func protobuf() rest.ContentConfig {
	return rest.ContentConfig{
		ContentType:        runtime.ContentTypeProtobuf,
		AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
	}
}

// startInformers starts those that were registered since the last call. They
// live as long as the server: it authorizes by them.
func (a *api) startInformers() { a.informers.Start(a.stop) }

// trim drops what no informer here reads and what is most of a small object.
func trim(obj any) (any, error) {
	if accessor, err := meta.Accessor(obj); err == nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}

// waitReady waits until the server says that it is ready; false: ctx is done.
func (a *api) waitReady(ctx context.Context) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var status int
		a.client.RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status)
		if status == http.StatusOK {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}
