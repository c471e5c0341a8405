package podfiles

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// WantsServices reports whether a pod's environment depends on the services of
// the API.
func (n *Node) WantsServices(pod *v1.Pod) bool { return n.ServiceHost == "" || links(pod) }

func links(pod *v1.Pod) bool {
	return pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks
}

// serviceEnv returns the variables by which a pod finds services: the API
// server's always, those of its own namespace if it asks for service links. A
// service "kubernetes" of its own namespace hides the API server's, as
// upstream's kubelet has it.
func (n *Node) serviceEnv(pod *v1.Pod, services []*v1.Service) map[string]string {
	var api *v1.Service
	var linked []*v1.Service
	for _, s := range services {
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == v1.ClusterIPNone || len(s.Spec.Ports) == 0 {
			continue
		}
		if s.Namespace == v1.NamespaceDefault && s.Name == apiServiceName {
			api = s
		} else if s.Namespace == pod.Namespace && links(pod) {
			linked = append(linked, s)
		}
	}
	if n.ServiceHost != "" {
		api = n.apiService()
	}
	out := map[string]string{}
	if api != nil && !slices.ContainsFunc(linked, func(s *v1.Service) bool { return s.Name == apiServiceName }) {
		addService(out, api)
	}
	for _, s := range linked {
		addService(out, s)
	}
	return out
}

// apiServiceName is the API server's service in the namespace "default".
const apiServiceName = "kubernetes"

// apiService returns the service "kubernetes" as pods on this node reach it.
func (n *Node) apiService() *v1.Service {
	port, err := strconv.ParseInt(n.ServicePort, 10, 32)
	if err != nil {
		port = 443
	}
	s := &v1.Service{Spec: v1.ServiceSpec{ClusterIP: n.ServiceHost, Ports: []v1.ServicePort{{Name: "https", Port: int32(port)}}}}
	s.Name = apiServiceName
	return s
}

// addService adds one service's variables: NAME_SERVICE_HOST and _PORT, one
// for each named port, and the older NAME_PORT family.
func addService(out map[string]string, s *v1.Service) {
	prefix, host := envName(s.Name), s.Spec.ClusterIP
	out[prefix+"_SERVICE_HOST"] = host
	out[prefix+"_SERVICE_PORT"] = strconv.Itoa(int(s.Spec.Ports[0].Port))
	for i, p := range s.Spec.Ports {
		number := strconv.Itoa(int(p.Port))
		if p.Name != "" {
			out[prefix+"_SERVICE_PORT_"+envName(p.Name)] = number
		}
		protocol := p.Protocol
		if protocol == "" {
			protocol = v1.ProtocolTCP
		}
		lower := strings.ToLower(string(protocol))
		url := lower + "://" + net.JoinHostPort(host, number)
		if i == 0 {
			out[prefix+"_PORT"] = url
		}
		port := fmt.Sprintf("%s_PORT_%s_%s", prefix, number, protocol)
		out[port] = url
		out[port+"_PROTO"] = lower
		out[port+"_PORT"] = number
		out[port+"_ADDR"] = host
	}
}

func envName(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "-", "_")) }
