// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net"
	"strconv"

	"github.com/pkg/errors"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Names from flannel's own manifest, so that its documentation applies:
// https://github.com/flannel-io/flannel/blob/v0.28.10/Documentation/kubernetes.md
const (
	FlannelNamespace = "kube-flannel"
	FlannelDaemonSet = "kube-flannel-ds"
	// FlannelContainer is an init container, whose restart policy keeps it running.
	FlannelContainer = "kube-flannel"

	flannelName   = "flannel"
	flannelMap    = "kube-flannel-cfg"
	flannelDir    = "/etc/kube-flannel"
	flannelHealth = 8081

	// managedBy marks Slipway's objects where other tools make such objects, too.
	managedBy = "app.kubernetes.io/managed-by"
	slipway   = "slipway"
)

// Flannel returns the add-on flannel for the cluster's Pod network: Pods on different nodes reach each other in VXLAN packets.
func Flannel(n *config.Node, _ config.PatchSet) ([]Object, error) {
	settings, err := flannelConfig(n)
	if err != nil {
		return nil, err
	}
	accountName := serviceAccount(flannelName)
	accountName.SetNamespace(FlannelNamespace)
	subject := account(flannelName)
	subject.Namespace = FlannelNamespace
	objs := []Object{
		&corev1.Namespace{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{
				Name:   FlannelNamespace,
				Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"},
			},
		},
		accountName,
		clusterRole(flannelName,
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}}),
		clusterBinding(flannelName, flannelName, subject),
		configMap(FlannelNamespace, flannelMap, settings),
		flannelDaemonSet(n),
	}
	for _, obj := range objs {
		labels := map[string]string{"k8s-app": flannelName, managedBy: slipway}
		maps.Copy(labels, obj.GetLabels())
		obj.SetLabels(labels)
	}
	return objs, nil
}

// ByFlannel reports whether a DaemonSet comes from Flannel, and not from another manifest.
func ByFlannel(d *appsv1.DaemonSet) bool { return d.Labels[managedBy] == slipway }

// flannelConfig returns the settings of flannel, and of the CNI plugins it installs.
func flannelConfig(n *config.Node) (map[string]string, error) {
	network := struct {
		Network        string            `json:",omitempty"`
		IPv6Network    string            `json:",omitempty"`
		EnableIPv4     bool              `json:""`
		EnableIPv6     bool              `json:""`
		EnableNFTables bool              `json:""`
		Backend        map[string]string `json:""`
	}{Backend: map[string]string{"Type": "vxlan"}, EnableNFTables: n.KubeProxy.Mode == "nftables"}
	for _, s := range n.PodSubnets() {
		if s.Addr().Is4() {
			network.Network, network.EnableIPv4 = s.String(), true
		} else {
			network.IPv6Network, network.EnableIPv6 = s.String(), true
		}
	}
	data, err := json.MarshalIndent(network, "", "  ")
	if err != nil {
		return nil, errors.Wrap(err, "cannot encode the settings of flannel")
	}
	return map[string]string{"net-conf.json": string(data) + "\n", "cni-conf.json": FlannelPlugins}, nil
}

// FlannelPlugins lists the CNI plugins that give Pods their network, for config.FlannelPluginsPath:
// https://github.com/flannel-io/cni-plugin#format-of-subnet-file
const FlannelPlugins = `{
  "name": "cbr0",
  "cniVersion": "1.0.0",
  "plugins": [
    {"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

func flannelDaemonSet(n *config.Node) Object {
	pod := metav1.ObjectMeta{
		Labels:      map[string]string{"app": flannelName},
		Annotations: map[string]string{"kubectl.kubernetes.io/default-container": FlannelContainer},
	}
	return nodeDaemonSet(metav1.ObjectMeta{Name: FlannelDaemonSet, Namespace: FlannelNamespace}, pod, corev1.PodSpec{
		InitContainers: []corev1.Container{flannelInstaller(n), flannelAgent(n), flannelConfigurer(n)},
		// Flannel itself runs as a sidecar, and a Pod needs a container besides those.
		Containers:         []corev1.Container{{Name: "pause", Image: n.Image("pause"), ImagePullPolicy: corev1.PullIfNotPresent}},
		ServiceAccountName: flannelName,
		// Where SELinux confines containers, only Pods of this type may write to the host's directories below.
		SecurityContext: &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"}},
		Volumes: []corev1.Volume{
			hostVolume("run", "/run/flannel", ptr.To(corev1.HostPathDirectoryOrCreate)),
			hostVolume("cni-plugin", "/opt/cni/bin", ptr.To(corev1.HostPathDirectoryOrCreate)),
			hostVolume("cni", "/etc/cni/net.d", ptr.To(corev1.HostPathDirectoryOrCreate)),
			configVolume("flannel-cfg", flannelMap),
			hostVolume("xtables-lock", "/run/xtables.lock", ptr.To(corev1.HostPathFileOrCreate)),
		},
	})
}

// flannelInstaller puts the CNI plugin on the node.
func flannelInstaller(n *config.Node) corev1.Container {
	return corev1.Container{
		Name:            "install-cni-plugin",
		Image:           n.Image(config.FlannelPluginImage),
		ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         []string{"cp", "-f", "/flannel", "/opt/cni/bin/flannel"},
		VolumeMounts:    []corev1.VolumeMount{{Name: "cni-plugin", MountPath: "/opt/cni/bin"}},
	}
}

// flannelConfigurer puts the CNI plugins' settings on the node, which makes it Ready. It runs once flannel is ready: after a Pod
// that came too early and failed, the kubelet would wait ten seconds or more.
func flannelConfigurer(n *config.Node) corev1.Container {
	return corev1.Container{
		Name:            "install-cni",
		Image:           n.Image(config.FlannelImage),
		ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         []string{"/opt/bin/install-conf", flannelDir + "/cni-conf.json", config.FlannelPluginsPath},
		VolumeMounts:    []corev1.VolumeMount{{Name: "cni", MountPath: "/etc/cni/net.d"}, {Name: "flannel-cfg", MountPath: flannelDir}},
	}
}

// flannelAgent is flannel itself, a sidecar: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/. Like
// kube-proxy, it uses the control plane's endpoint, so it doesn't have to wait for kube-proxy.
func flannelAgent(n *config.Node) corev1.Container {
	host, port, _ := net.SplitHostPort(n.Endpoint())
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	probe := func(path string, period, failures int32) *corev1.Probe {
		return &corev1.Probe{TimeoutSeconds: probeTimeout, PeriodSeconds: period, FailureThreshold: failures, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Path: path, Port: intstr.FromString("healthz")},
		}}
	}
	return corev1.Container{
		Name:            FlannelContainer,
		Image:           n.Image(config.FlannelImage),
		ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         append([]string{"/opt/bin/flanneld", "--ip-masq", "--kube-subnet-mgr", "--healthz-ip=127.0.0.1", "--healthz-port=" + strconv.Itoa(flannelHealth)}, flannelInterface(n)...),
		Resources:       corev1.ResourceRequirements{Requests: requests("100m", "50Mi")},
		Ports:           []corev1.ContainerPort{{Name: "healthz", ContainerPort: flannelHealth, Protocol: corev1.ProtocolTCP}},
		RestartPolicy:   ptr.To(corev1.ContainerRestartPolicyAlways),
		StartupProbe:    probe("/readyz", 1, 600),
		LivenessProbe:   probe("/healthz", 30, 3),
		ReadinessProbe:  probe("/readyz", 2, 3),
		SecurityContext: &corev1.SecurityContext{
			Privileged:   ptr.To(false),
			Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN", "NET_RAW"}},
		},
		Env: []corev1.EnvVar{
			field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"), field("NODE_ADDRESS", "status.hostIP"),
			{Name: serviceHost, Value: host}, {Name: servicePort, Value: port},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "run", MountPath: "/run/flannel"}, {Name: "flannel-cfg", MountPath: flannelDir}, {Name: "xtables-lock", MountPath: "/run/xtables.lock"},
		},
	}
}

// flannelInterface makes flannel use the interface with the node's address in the cluster, which may not be the default route's.
// In a dual-stack cluster, flannel takes only IPv4 addresses.
func flannelInterface(n *config.Node) []string {
	subnets := n.PodSubnets()
	if len(subnets) > 1 && n.AdvertiseAddress.Is6() {
		return nil
	}
	return []string{"--iface=$(NODE_ADDRESS)"}
}

func Network(n *config.Node, patches config.PatchSet) ([]Object, error) {
	switch {
	case n.NetworkAddOn.FromFile():
		objs, err := parse(n.NetworkAddOn.Manifest)
		return objs, errors.Wrapf(err, "--network %s", n.NetworkAddOn.File())
	case n.NetworkAddOn.Name == config.Flannel:
		return Flannel(n, patches)
	}
	return nil, nil
}

// parse reads a stream of YAML or JSON documents, as `kubectl apply` takes it. Objects without a namespace are in namespace
// default, if their kind has namespaces.
func parse(data []byte) ([]Object, error) {
	var objs []Object
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for count := 1; ; count++ {
		var fields map[string]any
		err := decoder.Decode(&fields)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, errors.Wrapf(err, "document %d is not an object of the API", count)
		}
		if len(fields) == 0 { // only comments
			continue
		}
		more, err := objectsOf(&unstructured.Unstructured{Object: fields})
		if err != nil {
			return nil, errors.WithMessagef(err, "document %d", count)
		}
		objs = append(objs, more...)
	}
	if len(objs) == 0 {
		return nil, errors.New("it contains no object; give a manifest as for `kubectl apply`")
	}
	return objs, nil
}

// objectsOf returns the object, or a list's objects.
func objectsOf(u *unstructured.Unstructured) ([]Object, error) {
	if u.IsList() {
		var objs []Object
		err := u.EachListItem(func(item runtime.Object) error {
			more, err := objectsOf(item.(*unstructured.Unstructured))
			objs = append(objs, more...)
			return err
		})
		return objs, err
	}
	switch {
	case u.GetAPIVersion() == "" || u.GetKind() == "":
		return nil, errors.New("it has no apiVersion or no kind")
	case u.GetName() == "":
		return nil, errors.Errorf("a %s without metadata.name", u.GetKind())
	case u.GetKind() == "Secret" && u.GetAPIVersion() == "v1": // typed, so that a plan hides its content
		secret := &corev1.Secret{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, secret, true); err != nil {
			return nil, errors.Wrapf(err, "Secret %s", u.GetName())
		}
		if secret.Namespace == "" {
			secret.Namespace = metav1.NamespaceDefault
		}
		return []Object{secret}, nil
	}
	return []Object{u}, nil
}
