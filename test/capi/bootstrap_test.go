// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/capi/provider"
)

// userData is the part of a cloud-config that Slipway reads, and the commands.
type userData struct {
	WriteFiles []struct {
		Path        string `json:"path"`
		Permissions string `json:"permissions"`
		Content     string `json:"content"`
	} `json:"write_files"`
	RunCmd []string `json:"runcmd"`
}

// bootstrapData reads the data that Cluster API's controller makes of testdata/cluster.yaml, as cloud-init does on machine-1:
// TestBootstrapGolden in controllers/ keeps it up to date.
func bootstrapData(t *testing.T, name string) userData {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "bootstrap", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, data, "machine-1")
}

// parse reads user-data as cloud-init does on a machine.
func parse(t *testing.T, data []byte, machine string) userData {
	t.Helper()
	if !strings.HasPrefix(string(data), "## template: jinja\n#cloud-config\n") {
		t.Fatalf("it begins with %.40q", data)
	}
	text := strings.ReplaceAll(string(data), "{{ ds.meta_data.instance_id }}", machine)
	var u userData
	if err := yaml.Unmarshal([]byte(text), &u); err != nil {
		t.Fatal(err)
	}
	return u
}

func (u userData) file(t *testing.T, path string) []byte {
	t.Helper()
	for _, f := range u.WriteFiles {
		if f.Path == path {
			return []byte(f.Content)
		}
	}
	t.Fatalf("the data has no %s", path)
	return nil
}

func options(machine string) config.Options {
	return config.Options{
		Facts: config.HostFacts{
			Hostname: machine, IPv4: netip.MustParseAddr("192.168.99.50"), Sockets: []string{"/var/run/containerd/containerd.sock"},
		},
		NewToken:          func() (string, string) { return "abcdef", "0123456789abcdef" },
		NewCertificateKey: func() string { return strings.Repeat("0", 64) },
	}
}

func providerID(machine string) config.Arg {
	return config.Arg{Name: "provider-id", Value: provider.ProviderID(machine)}
}

// TestReadsInit: Slipway reads the first control plane's data without a warning, and does all that it says.
func TestReadsInit(t *testing.T) {
	for name, version := range map[string]string{"first-control-plane": "v1.37.2", "first-control-plane-1.35": "v1.35.1"} {
		t.Run(name, func(t *testing.T) { bootstrapData(t, name).makesFirst(t, "machine-1", version) })
	}
}

func (u userData) makesFirst(t *testing.T, machine, version string) {
	t.Helper()
	// The second of preKubeadmCommands appends the file.
	data := slices.Concat(u.file(t, "/run/kubeadm/kubeadm.yaml"), u.file(t, "/etc/slipway/kube-proxy.yaml"))
	n, warnings, err := config.LoadInit(t.Context(), &config.Source{Name: "kubeadm.yaml", Data: data}, config.InitFlags{}, options(machine))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, with warnings %q", err, warnings)
	}
	c := n.Cluster
	if c.ClusterName != "lab" || c.ControlPlaneEndpoint != "192.168.99.1:6443" || c.KubernetesVersion != version ||
		c.Networking.PodSubnet != "10.244.0.0/16" || c.Networking.ServiceSubnet != "10.96.0.0/16" {
		t.Errorf("the cluster is %+v", c)
	}
	if n.Name != machine || !slices.Contains(n.KubeletExtraArgs, providerID(machine)) || len(n.Taints) != 1 {
		t.Errorf("the node is %s, with %+v and the taints %v", n.Name, n.KubeletExtraArgs, n.Taints)
	}
	if perCore := n.KubeProxy.Conntrack.MaxPerCore; perCore == nil || *perCore != 0 {
		t.Errorf("kube-proxy has %+v", n.KubeProxy.Conntrack)
	}
	for _, file := range []string{"ca", "etcd/ca", "front-proxy-ca", "sa"} {
		u.file(t, "/etc/kubernetes/pki/"+file+".key")
	}
	if limit := n.Timeouts.ControlPlaneComponentHealthCheck; limit != 15*time.Minute {
		t.Errorf("components have %s to become healthy", limit)
	}
	u.patched(t, n.PatchesDir)
	u.runs(t, "kubeadm init --config /run/kubeadm/kubeadm.yaml")
}

// TestReadsJoin: the same for machines that join.
func TestReadsJoin(t *testing.T) {
	for name, isControl := range map[string]bool{"control-plane": true, "worker": false} {
		t.Run(name, func(t *testing.T) {
			const file = "/run/kubeadm/kubeadm-join-config.yaml"
			u := bootstrapData(t, name)
			j, warnings, err := config.LoadJoin(&config.Source{Name: file, Data: u.file(t, file)}, config.JoinFlags{}, options("machine-1"))
			if err != nil || len(warnings) > 0 {
				t.Fatalf("%v, with warnings %q", err, warnings)
			}
			d := j.Discovery.BootstrapToken
			if d == nil || d.APIServerEndpoint != "192.168.99.1:6443" || !config.IsToken(d.Token) || len(d.CACertHashes) != 1 || d.UnsafeSkipCAVerification {
				t.Errorf("it finds the cluster by %+v", d)
			}
			if (j.ControlPlane != nil) != isControl || !slices.Contains(j.NodeRegistration.KubeletExtraArgs, providerID("machine-1")) {
				t.Errorf("it's %+v with %+v", j.ControlPlane, j.NodeRegistration)
			}
			u.patched(t, j.Patches.Directory)
			u.runs(t, "kubeadm join --config "+file)
		})
	}
}

// patched checks the patches in a directory.
func (u userData) patched(t *testing.T, dir string) {
	t.Helper()
	var files []config.PatchFile
	for _, f := range u.WriteFiles {
		if path.Dir(f.Path) == dir {
			files = append(files, config.PatchFile{Name: path.Base(f.Path), Data: []byte(f.Content)})
		}
	}
	patches, err := config.ParsePatches(files)
	if err != nil {
		t.Fatal(err)
	}
	before := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: true\n"
	got, err := patches.Apply(config.PatchKubelet, []byte(before), &kubelet.KubeletConfiguration{})
	if err != nil || !strings.Contains(string(got), "failCgroupV1: false") {
		t.Errorf("the patches give %v:\n%s", err, got)
	}
}

// runs checks that the command follows the preparation of the host, and that Cluster API learns of its success.
func (u userData) runs(t *testing.T, command string) {
	t.Helper()
	at := slices.IndexFunc(u.RunCmd, func(c string) bool { return strings.HasPrefix(c, command) })
	if at < 1 || !strings.HasPrefix(u.RunCmd[0], "slipway host prepare ") || !strings.HasSuffix(u.RunCmd[at], "/run/cluster-api/bootstrap-success.complete") {
		t.Errorf("it runs %q", u.RunCmd)
	}
}
