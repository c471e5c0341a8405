package main

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// fresh returns a pod as a watch gives it: decoded from the API's protobuf, so
// that it shares no memory with any other. It is a web application of a
// Deployment with two sidecars, 5 KiB of protobuf, without the managedFields that
// a client may drop. version is its resourceVersion, generation that of its spec;
// the spec and the status differ with them.
func fresh(i int, version, generation int64) *corev1.Pod {
	data, err := template(i, version, generation).Marshal()
	if err != nil {
		panic(err) // a mistake of ours: the template is fixed
	}
	pod := &corev1.Pod{}
	if err := pod.Unmarshal(data); err != nil {
		panic(err)
	}
	return pod
}

func template(i int, version, generation int64) *corev1.Pod {
	name := fmt.Sprintf("web-7d4b9c6f5d-%05d", i)
	start := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", i%10), Name: name, GenerateName: "web-7d4b9c6f5d-",
			UID:             types.UID(fmt.Sprintf("4fd0b3a8-0c5e-4f6d-9a51-%012d", i)),
			ResourceVersion: strconv.FormatInt(version, 10), Generation: generation, CreationTimestamp: start,
			Labels: map[string]string{
				"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web-prod", "app.kubernetes.io/version": "1.42.0",
				"app.kubernetes.io/component": "frontend", "app.kubernetes.io/managed-by": "Helm", "pod-template-hash": "7d4b9c6f5d",
			},
			Annotations: map[string]string{
				"checksum/config": "0e9c1ab25cf5cb3a3e0a1b7d4b9c6f5d7c1d8e0b6a3f4c2d9e8f7a6b5c4d3e2f", "prometheus.io/port": "9090", "prometheus.io/scrape": "true",
				"kubectl.kubernetes.io/restartedAt": "2026-01-02T03:04:05Z",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d4b9c6f5d", UID: "9d1c6a1e-54bb-4f5b-8d0e-2f9a4a0c7b11",
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-1", ServiceAccountName: "web", DeprecatedServiceAccount: "web", SchedulerName: "default-scheduler",
			RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, EnableServiceLinks: new(true),
			TerminationGracePeriodSeconds: new(int64(30)), Priority: new(int32(0)), PreemptionPolicy: new(corev1.PreemptLowerPriority),
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(1000)), FSGroup: new(int64(1000))},
			Tolerations: []corev1.Toleration{
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
				{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "web"}, DefaultMode: new(int32(420))}}},
				{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("1Gi"))}}},
				{Name: "kube-api-access-x7k2p", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
					DefaultMode: new(int32(420)),
					Sources: []corev1.VolumeProjection{
						{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
						{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
						{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
					},
				}}},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, HostIP: "10.0.0.1", HostIPs: []corev1.HostIP{{IP: "10.0.0.1"}}, PodIP: fmt.Sprintf("10.42.%d.%d", i/250, i%250),
			PodIPs: []corev1.PodIP{{IP: fmt.Sprintf("10.42.%d.%d", i/250, i%250)}}, StartTime: &start, QOSClass: corev1.PodQOSBurstable, ObservedGeneration: generation,
		},
	}
	for _, t := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: start, ObservedGeneration: generation})
	}
	for _, c := range []string{"web", "proxy", "log-shipper"} {
		pod.Spec.Containers = append(pod.Spec.Containers, container(c, generation))
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, containerStatus(c, version, start))
	}
	return pod
}

func container(name string, generation int64) corev1.Container {
	probe := func(path string) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:   corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTP}},
			TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
		}
	}
	c := corev1.Container{
		Name: name, Image: fmt.Sprintf("registry.example.com/team/%s:1.42.%d", name, generation), ImagePullPolicy: corev1.PullIfNotPresent,
		Args:  []string{"--listen=:8080", "--log-format=json", "--config=/etc/web/config.yaml"},
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}, {Name: "metrics", ContainerPort: 9090, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/web", ReadOnly: true},
			{Name: "cache", MountPath: "/var/cache/web"},
			{Name: "kube-api-access-x7k2p", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
		},
		LivenessProbe: probe("/healthz"), ReadinessProbe: probe("/readyz"),
		SecurityContext:        &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		TerminationMessagePath: corev1.TerminationMessagePathDefault, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		Env: []corev1.EnvVar{
			{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
			{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "web"}, Key: "password"}}},
		},
	}
	for i := range 6 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: fmt.Sprintf("value of setting %d", i)})
	}
	return c
}

// containerStatus differs with the version in its restart count, as if the
// container had been started again.
func containerStatus(name string, version int64, start metav1.Time) corev1.ContainerStatus {
	id := "containerd://5b9e1c0a7d2f4e6b8c0a1d3f5e7b9c2d4f6a8e0b1c3d5f7a9b0c2e4d6f8a1b"
	return corev1.ContainerStatus{
		Name: name, Image: "registry.example.com/team/" + name + ":1.42.1", ContainerID: fmt.Sprintf("%s%02x", id, version%256),
		ImageID: "registry.example.com/team/" + name + "@sha256:7c1d8e0b6a3f4c2d9e8f7a6b5c4d3e2f0e9c1ab25cf5cb3a3e0a1b7d4b9c6f5d",
		Ready:   true, Started: new(true), RestartCount: int32(version),
		State:        corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: start}},
		VolumeMounts: []corev1.VolumeMountStatus{{Name: "config", MountPath: "/etc/web", ReadOnly: true}, {Name: "cache", MountPath: "/var/cache/web"}},
	}
}
