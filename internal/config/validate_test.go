// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/pkg/errors"
)

// contradiction is a setting that contradicts a new cluster's foundations, or looks as if it did.
type contradiction struct {
	name          string
	init, cluster string
	// fault and warning are the reported field; empty for none.
	fault, warning string
}

func apiServer(args ...string) string { return component("apiServer", args...) }

func component(name string, args ...string) string {
	var list []string
	for i := 0; i < len(args); i += 2 {
		list = append(list, fmt.Sprintf("{name: %s, value: %q}", args[i], args[i+1]))
	}
	return name + ": {extraArgs: [" + strings.Join(list, ", ") + "]}\n"
}

func kubeletArg(name, value string) string {
	return fmt.Sprintf("nodeRegistration: {name: n1, kubeletExtraArgs: [{name: %s, value: %q}]}\n", name, value)
}

func etcdFlags(args ...string) string {
	return "etcd:\n  local: {dataDir: /var/lib/etcd, " + strings.TrimPrefix(strings.TrimSpace(component("x", args...)), "x: {") + "\n"
}

const patches = "patches: {directory: /p}\n"

var contradictions = []contradiction{
	{"RBAC alone", "", apiServer("authorization-mode", "RBAC"), "apiServer.extraArgs[0].value", ""},
	{"RBAC alone, with an underscore", "", apiServer("authorization_mode", "RBAC"), "apiServer.extraArgs[0].value", ""},
	{"RBAC alone, and a patch that may add Node", patches, apiServer("authorization-mode", "RBAC"), "", "apiServer.extraArgs[0].value"},
	{"RBAC alone, for a static Pod that another writes", "skipPhases: [control-plane/apiserver]\n", apiServer("authorization-mode", "RBAC"), "", "apiServer.extraArgs[0].value"},
	{"RBAC alone, for the phases of control planes", "skipPhases: [control-plane]\n", apiServer("authorization-mode", "RBAC"), "", "apiServer.extraArgs[0].value"},
	{"RBAC alone, over the data of an earlier cluster", "nodeRegistration: {ignorePreflightErrors: [DirAvailable--var-lib-etcd]}\n", apiServer("authorization-mode", "RBAC"), "", "apiServer.extraArgs[0].value"},
	{"Node alone", "", apiServer("authorization-mode", "Node"), "apiServer.extraArgs[0].value", ""},
	{"Node and RBAC, the other way round", "", apiServer("authorization-mode", "RBAC,Node"), "", ""},
	{"a list in two parts", "", apiServer("authorization-mode", "RBAC", "authorization-mode", "Node"), "", ""},
	{"a webhook that may know nodes", "", apiServer("authorization-mode", "RBAC,Webhook"), "", "apiServer.extraArgs[0].value"},
	{"a file of attributes", "", apiServer("authorization-mode", "Node,ABAC"), "", "apiServer.extraArgs[0].value"},
	{"everything is allowed", "", apiServer("authorization-mode", "AlwaysAllow"), "", "apiServer.extraArgs[0].value"},
	{"a file of authorizers", "", apiServer("authorization-config", "/etc/kubernetes/authz.yaml"), "", ""},
	{"a file of authorizers, and modes", "", apiServer("authorization-config", "/a.yaml", "authorization-mode", "Node,RBAC"), "apiServer.extraArgs[1].value", ""},
	{"without NodeRestriction", "", apiServer("enable-admission-plugins", "PodSecurity"), "", "apiServer.extraArgs[0].value"},
	{"with NodeRestriction and another", "", apiServer("enable-admission-plugins", "PodSecurity,NodeRestriction"), "", ""},
	{"NodeRestriction off", "", apiServer("disable-admission-plugins", "NodeRestriction"), "", "apiServer.extraArgs[0].value"},
	{"another plugin off", "", apiServer("disable-admission-plugins", "StorageObjectInUseProtection"), "", ""},
	{"nobody is anonymous", "", apiServer("anonymous-auth", "false"), "apiServer.extraArgs[0].value", ""},
	{"nobody is anonymous, in capitals", "", apiServer("anonymous-auth", "False"), "apiServer.extraArgs[0].value", ""},
	{"nobody is anonymous, and the probes are patched", patches, apiServer("anonymous-auth", "false"), "", "apiServer.extraArgs[0].value"},
	{"anonymous, said twice", "", apiServer("anonymous-auth", "true"), "", ""},
	{"a file of authenticators", "", apiServer("authentication-config", "/etc/kubernetes/authn.yaml"), "", ""},
	{"another port", "", apiServer("secure-port", "7443"), "apiServer.extraArgs[0].value", ""},
	{"the same port", "localAPIEndpoint: {bindPort: 7443}\n", apiServer("secure-port", "7443"), "", ""},
	{"the same port, in hexadecimal", "", apiServer("secure-port", "0x192b"), "", ""},
	{"another port, and the probes are patched", patches, apiServer("secure-port", "7443"), "", "apiServer.extraArgs[0].value"},
	{"another address", "localAPIEndpoint: {advertiseAddress: 192.0.2.11}\n", apiServer("advertise-address", "192.0.2.12"), "", "apiServer.extraArgs[0].value"},
	{"another network of Services", "", apiServer("service-cluster-ip-range", "10.97.0.0/16"), "apiServer.extraArgs[0].value", ""},
	{"no network of Services", "", apiServer("service-cluster-ip-range", "x"), "apiServer.extraArgs[0].value", ""},
	{"a network in that of Services", "", apiServer("service-cluster-ip-range", "10.96.0.0/16"), "", "apiServer.extraArgs[0].value"},
	{"a network around that of Services", "", "networking: {serviceSubnet: 10.96.0.0/16}\n" + apiServer("service-cluster-ip-range", "10.96.0.0/12"), "", "apiServer.extraArgs[0].value"},
	{"a network in that of Services, without its DNS", "", apiServer("service-cluster-ip-range", "10.96.0.0/29"), "apiServer.extraArgs[0].value", ""},
	{"a network in that of Services, for another DNS", "skipPhases: [addon/coredns]\n", apiServer("service-cluster-ip-range", "10.96.0.0/29"), "", "apiServer.extraArgs[0].value"},
	{"another network around that of Services", "", "networking: {serviceSubnet: 10.96.0.0/16}\n" + apiServer("service-cluster-ip-range", "10.0.0.0/8"), "apiServer.extraArgs[0].value", ""},
	{"another network around that of Services, in the certificate", "", "networking: {serviceSubnet: 10.96.0.0/16}\n" +
		strings.Replace(apiServer("service-cluster-ip-range", "10.0.0.0/8"), "{", "{certSANs: [10.0.0.1], ", 1), "", "apiServer.extraArgs[0].value"},
	{"the same network of Services", "", apiServer("service-cluster-ip-range", "10.96.0.0/12"), "", ""},
	{"a second network of Services", "", apiServer("service-cluster-ip-range", "10.96.0.0/12,fd00:10::/112"), "", "apiServer.extraArgs[0].value"},
	{"the controllers' network of Services", "", component("controllerManager", "service-cluster-ip-range", "10.97.0.0/16"), "", "controllerManager.extraArgs[0].value"},
	{"the controllers' network of Pods", "", "networking: {podSubnet: 10.244.0.0/16}\n" + component("controllerManager", "cluster-cidr", "10.245.0.0/16"), "", "controllerManager.extraArgs[0].value"},
	{"etcd's name", "nodeRegistration: {name: n1}\n", etcdFlags("name", "other"), "etcd.local.extraArgs[0].value", ""},
	{"etcd's name, in a cluster of its own", "nodeRegistration: {name: n1}\n", etcdFlags("name", "o", "initial-cluster", "o=https://192.168.99.11:2380"), "", "etcd.local.extraArgs[0].value"},
	{"etcd's name, which a patch may change", patches + "nodeRegistration: {name: n1}\n", etcdFlags("name", "other"), "", "etcd.local.extraArgs[0].value"},
	{"etcd's name, in the data of an earlier cluster", "nodeRegistration: {name: n1, ignorePreflightErrors: [all]}\n", etcdFlags("name", "other"), "", "etcd.local.extraArgs[0].value"},
	{"etcd's name, which its file replaces", "nodeRegistration: {name: n1}\n", etcdFlags("name", "other", "config-file", "/var/lib/etcd/etcd.yaml"), "", ""},
	{"etcd's name is the node's", "nodeRegistration: {name: n1}\n", etcdFlags("name", "n1"), "", ""},
	{"etcd's directory", "", etcdFlags("data-dir", "/srv/etcd"), "etcd.local.extraArgs[0].value", ""},
	{"a directory in etcd's", "", etcdFlags("data-dir", "/var/lib/etcd/data"), "", "etcd.local.extraArgs[0].value"},
	{"a directory that a patch may mount", patches, etcdFlags("data-dir", "/srv/etcd"), "", "etcd.local.extraArgs[0].value"},
	{"a directory for a static Pod that another writes", "skipPhases: [etcd]\n", etcdFlags("data-dir", "/srv/etcd"), "", "etcd.local.extraArgs[0].value"},
	{"a directory beside etcd's certificates", "", etcdFlags("data-dir", "/etc/kubernetes/pki/etcd/data"), "", "etcd.local.extraArgs[0].value"},
	{"a directory that begins like etcd's", "", etcdFlags("data-dir", "/var/lib/etcd2"), "etcd.local.extraArgs[0].value", ""},
	{"the same directory", "", etcdFlags("data-dir", "/var/lib/etcd/"), "", ""},
	{"another name for the kubelet", kubeletArg("hostname-override", "n2"), "", "nodeRegistration.kubeletExtraArgs[0].value", ""},
	{"the same name for the kubelet", kubeletArg("hostname-override", "N1"), "", "", ""},
	{"no name for the kubelet, on a host with the node's", "nodeRegistration: {kubeletExtraArgs: [{name: hostname-override, value: ''}]}\n", "", "", ""},
	{"no name for the kubelet, on another host", kubeletArg("hostname-override", ""), "", "nodeRegistration.kubeletExtraArgs[0].value", ""},
	{"another name for a kubelet that is not started", "skipPhases: [kubelet-start]\n" + kubeletArg("hostname-override", "n2"), "", "", "nodeRegistration.kubeletExtraArgs[0].value"},
	{"a role", kubeletArg("node-labels", "a=b,node-role.kubernetes.io/worker="), "", "nodeRegistration.kubeletExtraArgs[0].value", ""},
	{"a role, for a kubelet that is not started", "skipPhases: [kubelet-start]\n" + kubeletArg("node-labels", "node-role.kubernetes.io/worker="), "", "", "nodeRegistration.kubeletExtraArgs[0].value"},
	{"a label of k8s.io", kubeletArg("node-labels", "k8s.io/x=y"), "", "nodeRegistration.kubeletExtraArgs[0].value", ""},
	{"a label that only administrators set", kubeletArg("node-labels", "example.com.node-restriction.kubernetes.io/x=y"), "", "nodeRegistration.kubeletExtraArgs[0].value", ""},
	{"labels that a kubelet sets", kubeletArg("node-labels", "a=b,node.kubernetes.io/x=y,x.kubelet.kubernetes.io/y=z,topology.kubernetes.io/zone=a,notkubernetes.io/x=y"), "", "", ""},
	{"a name of 64 characters", "nodeRegistration: {name: " + strings.Repeat("n", 64) + "}\n", "", "nodeRegistration.name", ""},
	{"a name of 63 characters", "nodeRegistration: {name: " + strings.Repeat("n", 63) + "}\n", "", "", ""},
	{"a name of 64 characters, with a shorter label", "nodeRegistration: {name: " + strings.Repeat("n", 64) + ", kubeletExtraArgs: [{name: node-labels, value: kubernetes.io/hostname=n}]}\n", "", "", ""},
	{"an address that ends like a port", "", "controlPlaneEndpoint: fd00::5:6443\n", "controlPlaneEndpoint", ""},
	{"an address that ends like another port", "", "controlPlaneEndpoint: fd00::5:8443\n", "", "controlPlaneEndpoint"},
	{"an address that ends like a port, and is the API server's", "localAPIEndpoint: {advertiseAddress: 'fd00::5:6443'}\n", "networking: {serviceSubnet: 'fd01::/112'}\ncontrolPlaneEndpoint: fd00::5:6443\n", "", ""},
	{"an address that ends like a port, and is in the certificate", "", "controlPlaneEndpoint: fd00::5:6443\napiServer: {certSANs: ['fd00::5:6443']}\n", "", ""},
	{"an address that ends like a port, in brackets", "", "controlPlaneEndpoint: '[fd00::5:6443]:6443'\n", "", ""},
	{"an address and a port", "", "controlPlaneEndpoint: '[fd00::5]:6443'\n", "", ""},
	{"an address that ends otherwise", "", "controlPlaneEndpoint: fd00::5\n", "", ""},
	{"an address with a last group only", "", "controlPlaneEndpoint: fd00::6443\n", "", ""},
	{"a network for one node", "", "networking: {podSubnet: 10.244.0.0/24}\n", "", "networking.podSubnet"},
	{"a network for one node, as nobody divides it", "", "networking: {podSubnet: 10.244.0.0/24}\n" + component("controllerManager", "allocate-node-cidrs", "false"), "", ""},
	{"a network for two nodes", "", "networking: {podSubnet: 10.244.0.0/23}\n", "", ""},
}

// located matches a message's FILE:LINE: FIELD.
var located = regexp.MustCompile(`^f\.yaml:[1-9]\d*: (\S+): `)

func TestContradictions(t *testing.T) {
	for _, c := range contradictions {
		t.Run(c.name, func(t *testing.T) {
			_, warnings, err := LoadInit(t.Context(), file(c.init, c.cluster), InitFlags{}, testOptions())
			var faults Faults
			if err != nil && !errors.As(err, &faults) {
				t.Fatal(err)
			}
			var texts []string
			for _, f := range faults {
				texts = append(texts, f.Error())
			}
			if got := fieldsOf(texts); got != c.fault {
				t.Errorf("faults of %q, want %q: %q", got, c.fault, texts)
			}
			if got := fieldsOf(warnings); got != c.warning {
				t.Errorf("warnings of %q, want %q: %q", got, c.warning, warnings)
			}
		})
	}
}

// TestContradictionsOfExistingCluster: single phases and certificate commands work with the configuration of a cluster that was
// changed after init, and evidently runs. Only a phase that starts the kubelet judges its settings.
func TestContradictionsOfExistingCluster(t *testing.T) {
	for _, c := range contradictions {
		if c.fault == "" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			opts := testOptions()
			opts.Existing = true
			_, warnings, err := LoadInit(t.Context(), file(c.init, c.cluster), InitFlags{}, opts)
			if err != nil || fieldsOf(warnings) != c.fault {
				t.Errorf("error %v, warnings %q", err, warnings)
			}
			if _, warnings, err = Migrate(t.Context(), *file(c.init, c.cluster), testOptions()); err != nil || fieldsOf(warnings) != c.fault {
				t.Errorf("migration: error %v, warnings %q", err, warnings)
			}
			opts.StartsKubelet = true
			_, _, err = LoadInit(t.Context(), file(c.init, c.cluster), InitFlags{}, opts)
			if ofKubelet := strings.HasPrefix(c.fault, "nodeRegistration."); ofKubelet != (err != nil) {
				t.Errorf("for a phase that starts the kubelet: %v", err)
			}
		})
	}
}

// TestContradictionsElsewhere: the host that validates a file needn't be the node, so its name doesn't count.
func TestContradictionsElsewhere(t *testing.T) {
	for _, c := range []contradiction{
		{"a name for the kubelet alone", "nodeRegistration: {kubeletExtraArgs: [{name: hostname-override, value: n1}]}\n", "", "", "nodeRegistration.kubeletExtraArgs[0].value"},
		{"no name for the kubelet", kubeletArg("hostname-override", ""), "", "", "nodeRegistration.kubeletExtraArgs[0].value"},
		{"etcd's name alone", "", etcdFlags("name", "n1"), "", "etcd.local.extraArgs[0].value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if warnings, err := Validate(t.Context(), *file(c.init, c.cluster), testOptions()); err != nil || fieldsOf(warnings) != c.warning {
				t.Errorf("error %v, warnings %q", err, warnings)
			}
		})
	}
}

func fieldsOf(messages []string) string {
	var fields []string
	for _, m := range messages {
		if found := located.FindStringSubmatch(m); found != nil {
			m = found[1]
		}
		fields = append(fields, m)
	}
	return strings.Join(fields, ", ")
}

// TestContradictionsOfJoin: a worker's kubelet may have another name than the node, because it's the name in its certificate.
func TestContradictionsOfJoin(t *testing.T) {
	const join = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\n" +
		"discovery: {bootstrapToken: {token: abcdef.0123456789abcdef, apiServerEndpoint: '192.0.2.1:6443', unsafeSkipCAVerification: true}}\n"
	const args = "nodeRegistration.kubeletExtraArgs[0].value"
	for _, c := range []contradiction{
		{"a worker", kubeletArg("hostname-override", "n2"), "", "", args},
		{"a control plane", "controlPlane: {localAPIEndpoint: {advertiseAddress: 192.0.2.12}}\n" + kubeletArg("hostname-override", "n2"), "", args, ""},
		{"a control plane that another marks", "skipPhases: [control-plane-join]\ncontrolPlane: {localAPIEndpoint: {advertiseAddress: 192.0.2.12}}\n" +
			kubeletArg("hostname-override", "n2"), "", "", args},
		{"a role", kubeletArg("node-labels", "node-role.kubernetes.io/worker="), "", args, ""},
		{"a long name", "nodeRegistration: {name: " + strings.Repeat("n", 64) + "}\n", "", "nodeRegistration.name", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, warnings, err := LoadJoin(&Source{Name: "f.yaml", Data: []byte(join + c.init)}, JoinFlags{}, testOptions())
			var texts []string
			if err != nil {
				texts = strings.Split(err.Error(), "\n")
			}
			if got := fieldsOf(texts); got != c.fault {
				t.Errorf("faults of %q, want %q: %q", got, c.fault, texts)
			}
			if got := fieldsOf(warnings); got != c.warning {
				t.Errorf("warnings of %q, want %q: %q", got, c.warning, warnings)
			}
		})
	}
}

// TestDataDirIsEtcdsOwn: neither a cluster's ConfigMap nor a typo may make Slipway lock or empty a system directory.
func TestDataDirIsEtcdsOwn(t *testing.T) {
	for dir, allowed := range map[string]bool{
		"/var/lib/etcd": true, "/data": true, "/etcd": true, "/mnt/disk/etcd": true, "/opt/etcd": true, "/srv/etcd": true, "/var/lib/other-etcd": true,
		"/": false, "/etc": false, "/etc/": false, "/var/lib": false, "/var/lib/kubelet": false, "/usr": false, "/usr/local/etcd": false,
		"/proc/1": false, "/etc/kubernetes": false, "/tmp": false, "/lib/x": false,
	} {
		stored := "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.37.2\netcd: {local: {dataDir: " + dir + "}}\n"
		_, _, err := LoadCluster([]byte(stored), nil, nil, nil, Options{Facts: HostFacts{Hostname: "a"}})
		refused := err != nil && strings.Contains(err.Error(), "etcd.local.dataDir: \""+dir+"\" ")
		if refused == allowed {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestEndpoint(t *testing.T) {
	for _, tt := range []struct{ given, want string }{
		{"", "10.0.0.9:6443"},
		{"api.example", "api.example:6443"},
		{"api.example:", "api.example:6443"},
		{"api.example:443", "api.example:443"},
		{"10.0.0.1", "10.0.0.1:6443"},
		{"fd00::1", "[fd00::1]:6443"},
		{"[fd00::1]", "[fd00::1]:6443"},
		{"[fd00::1]:443", "[fd00::1]:443"},
	} {
		t.Run(tt.given, func(t *testing.T) {
			n := mustLoad(t, file("localAPIEndpoint: {advertiseAddress: 10.0.0.9}", fmt.Sprintf("controlPlaneEndpoint: %q", tt.given)), InitFlags{}, testOptions())
			if got := n.Endpoint(); got != tt.want || n.LocalEndpoint() != "10.0.0.9:6443" {
				t.Errorf("got %s and %s, want %s", got, n.LocalEndpoint(), tt.want)
			}
			if want := tt.want; tt.given != "" && n.Cluster.ControlPlaneEndpoint != want {
				t.Errorf("stored as %s, want %s", n.Cluster.ControlPlaneEndpoint, want)
			}
		})
	}
}

func TestNetworks(t *testing.T) {
	networking := "networking: {serviceSubnet: '10.96.0.0/16,fd00:10:96::/112', podSubnet: '10.244.7.0/16'}"
	src := file("", networking)
	n, _, err := LoadInit(t.Context(), src, InitFlags{}, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintln(n.ServiceSubnets(), n.PodSubnets(), n.APIServiceIP(), n.ClusterDNSIPs())
	if want := "[10.96.0.0/16 fd00:10:96::/112] [10.244.0.0/16] 10.96.0.1 [10.96.0.10 fd00:10:96::a]\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
