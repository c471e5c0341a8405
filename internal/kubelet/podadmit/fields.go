package podadmit

import "reflect"

// A rule says what becomes of a field.
type rule struct {
	whole   bool // what is below the field needs no rule of its own
	refuses func(value reflect.Value, have Features) (why string)
}

func never(reflect.Value, Features) string { return "" }

// yes: the kubelet acts on it; what is below has rules of its own.
var yes = rule{refuses: never}

// all: the kubelet acts on it and on all below.
var all = rule{whole: true, refuses: never}

// others: not the kubelet's to act on, upstream's neither: the scheduler's, the
// API server's or a controller's.
var others = rule{whole: true, refuses: never}

// no: this version does not do it.
var no = rule{whole: true, refuses: func(reflect.Value, Features) string { return "this version does not support it" }}

// windows: means nothing on this operating system, upstream's kubelet takes it
// all the same, so that one pod can be for both.
var windows = rule{whole: true, refuses: never}

// needs: this version does it where a feature is there.
func needs(has func(Features) bool) rule {
	return rule{whole: true, refuses: func(_ reflect.Value, have Features) string {
		if has(have) {
			return ""
		}
		return "this node does not support it"
	}}
}

// fields says of every field of a pod's specification what becomes of it. A
// test holds that none is missing, so that a field that a later API version
// adds is refused until somebody decides. Fields of containers of all kinds
// stand under "container", those of lifecycle hooks under "hook".
var fields = map[string]rule{
	"volumes":             {whole: true, refuses: never}, // package podvolumes judges them
	"initContainers":      yes,
	"containers":          yes,
	"ephemeralContainers": yes,
	"ephemeralContainers.targetContainerName": yes,
	"restartPolicy":                            yes,
	"terminationGracePeriodSeconds":            yes,
	"activeDeadlineSeconds":                    needs(func(f Features) bool { return f.ActiveDeadline }),
	"dnsPolicy":                                yes,
	"nodeSelector":                             yes,
	"serviceAccountName":                       yes,
	"serviceAccount":                           others, // the older name of serviceAccountName
	"automountServiceAccountToken":             others, // whoever admits the pod adds the volume
	"nodeName":                                 yes,
	"hostNetwork":                              yes,
	"hostPID":                                  yes,
	"hostIPC":                                  yes,
	"shareProcessNamespace":                    yes,
	"securityContext":                          yes,
	"securityContext.seLinuxOptions":           all,
	"securityContext.windowsOptions":           windows,
	"securityContext.runAsUser":                yes,
	"securityContext.runAsGroup":               yes,
	"securityContext.runAsNonRoot":             yes,
	"securityContext.supplementalGroups":       yes,
	"securityContext.supplementalGroupsPolicy": yes,
	"securityContext.fsGroup":                  yes,
	"securityContext.sysctls":                  all,
	"securityContext.fsGroupChangePolicy":      yes,
	"securityContext.seccompProfile":           all,
	"securityContext.appArmorProfile":          all,
	"securityContext.seLinuxChangePolicy":      yes,
	"imagePullSecrets":                         all,
	"hostname":                                 yes,
	"subdomain":                                yes,
	"affinity":                                 yes,
	"affinity.nodeAffinity":                    all,
	"affinity.podAffinity":                     others,
	"affinity.podAntiAffinity":                 others,
	"schedulerName":                            others,
	"tolerations":                              all,
	"hostAliases":                              all,
	"priorityClassName":                        others, // whoever admits the pod sets priority by it
	"priority":                                 yes,
	"dnsConfig":                                all,
	"readinessGates":                           needs(func(f Features) bool { return f.ReadinessGates }),
	"runtimeClassName":                         yes,
	"enableServiceLinks":                       yes,
	"preemptionPolicy":                         others,
	"overhead":                                 yes,
	"topologySpreadConstraints":                others,
	"setHostnameAsFQDN":                        yes,
	"os":                                       all,
	"hostUsers":                                yes,
	"schedulingGates":                          others,
	"resourceClaims":                           no,
	"resources":                                yes,
	"resources.limits":                         yes,
	"resources.requests":                       yes,
	"resources.claims":                         no,
	"hostnameOverride":                         yes,
	"schedulingGroup":                          others,
	"evictionResponders":                       others,

	"container.name":                                     yes,
	"container.image":                                    yes,
	"container.command":                                  yes,
	"container.args":                                     yes,
	"container.workingDir":                               yes,
	"container.ports":                                    yes,
	"container.ports.name":                               yes,
	"container.ports.hostPort":                           yes,
	"container.ports.containerPort":                      yes,
	"container.ports.protocol":                           yes,
	"container.ports.hostIP":                             yes,
	"container.envFrom":                                  yes,
	"container.envFrom.prefix":                           yes,
	"container.envFrom.configMapRef":                     all,
	"container.envFrom.secretRef":                        all,
	"container.env":                                      yes,
	"container.env.name":                                 yes,
	"container.env.value":                                yes,
	"container.env.valueFrom":                            yes,
	"container.env.valueFrom.fieldRef":                   all,
	"container.env.valueFrom.resourceFieldRef":           all,
	"container.env.valueFrom.configMapKeyRef":            all,
	"container.env.valueFrom.secretKeyRef":               all,
	"container.env.valueFrom.fileKeyRef":                 all,
	"container.resources":                                yes,
	"container.resources.limits":                         yes,
	"container.resources.requests":                       yes,
	"container.resources.claims":                         no,
	"container.resizePolicy":                             yes,
	"container.resizePolicy.resourceName":                yes,
	"container.resizePolicy.restartPolicy":               yes,
	"container.restartPolicy":                            yes,
	"container.restartPolicyRules":                       yes,
	"container.restartPolicyRules.action":                yes,
	"container.restartPolicyRules.exitCodes":             all,
	"container.volumeMounts":                             yes,
	"container.volumeMounts.name":                        yes,
	"container.volumeMounts.readOnly":                    yes,
	"container.volumeMounts.recursiveReadOnly":           yes,
	"container.volumeMounts.mountPath":                   yes,
	"container.volumeMounts.subPath":                     yes,
	"container.volumeMounts.mountPropagation":            yes,
	"container.volumeMounts.subPathExpr":                 yes,
	"container.volumeMounts.bindMountOptions":            no,
	"container.volumeDevices":                            all,
	"container.livenessProbe":                            needs(func(f Features) bool { return f.Probes }),
	"container.readinessProbe":                           needs(func(f Features) bool { return f.Probes }),
	"container.startupProbe":                             needs(func(f Features) bool { return f.Probes }),
	"container.lifecycle":                                yes,
	"container.lifecycle.postStart":                      yes,
	"container.lifecycle.preStop":                        yes,
	"container.lifecycle.stopSignal":                     yes,
	"container.terminationMessagePath":                   yes,
	"container.terminationMessagePolicy":                 yes,
	"container.imagePullPolicy":                          yes,
	"container.securityContext":                          yes,
	"container.securityContext.capabilities":             all,
	"container.securityContext.privileged":               yes,
	"container.securityContext.seLinuxOptions":           all,
	"container.securityContext.windowsOptions":           windows,
	"container.securityContext.runAsUser":                yes,
	"container.securityContext.runAsGroup":               yes,
	"container.securityContext.runAsNonRoot":             yes,
	"container.securityContext.readOnlyRootFilesystem":   yes,
	"container.securityContext.allowPrivilegeEscalation": yes,
	"container.securityContext.procMount":                yes,
	"container.securityContext.seccompProfile":           all,
	"container.securityContext.appArmorProfile":          all,
	"container.stdin":                                    yes,
	"container.stdinOnce":                                yes,
	"container.tty":                                      yes,

	"hook.exec":                all,
	"hook.httpGet":             yes,
	"hook.httpGet.path":        yes,
	"hook.httpGet.port":        yes,
	"hook.httpGet.host":        yes,
	"hook.httpGet.scheme":      yes,
	"hook.httpGet.httpHeaders": all,
	"hook.httpGet.protocol":    no,
	"hook.tcpSocket":           all, // upstream's fails when it is to run, and so does ours
	"hook.sleep":               all,
}
