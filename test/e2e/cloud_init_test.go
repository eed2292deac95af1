// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

const (
	seedDir       = "/var/lib/cloud/seed/nocloud"
	firstBootFile = "/etc/slipway/up.yaml"
)

// TestCloudInit makes a cluster of three machines at first boot alone, with the user-data of examples/cloud-init. They all boot
// at once, so the joining machines wait for the first.
func TestCloudInit(t *testing.T) {
	m := bare(t)
	userData := filepath.Join(t.TempDir(), "cluster")
	cmd := exec.Command("../../examples/cloud-init/user-data.sh", "192.168.99.11:6443", userData)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(absolute(t, "../../bin/slipway"))+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("user-data.sh: %v\n%s", err, out)
	}
	all := []machine{m, m.anotherBare("cp-2"), m.anotherBare("worker-1")}
	for i, file := range []string{"first-control-plane.yaml", "control-plane.yaml", "worker.yaml"} {
		all[i].hasProgram()
		all[i].seed(filepath.Join(userData, file))
	}
	started := time.Now()
	var boots []func()
	for _, n := range all {
		boots = append(boots, n.bootsWithSeed)
	}
	sideBySide(boots...)
	for _, n := range all {
		m.ready(n.node.Name())
	}
	m.Logf("three nodes are Ready %.0fs after they booted", time.Since(started).Seconds())
	m.prints("cp-1 cp-2", "get", "nodes", "-l", "node-role.kubernetes.io/control-plane", "-o", "jsonpath={.items[*].metadata.name}")
	m.reachAcross(all)
	token := secretToken.FindString(readFile(t, filepath.Join(userData, "worker.yaml")))
	for _, n := range all {
		if log := n.must("journalctl", "--no-pager"); token == "" || strings.Contains(log, token) {
			t.Errorf("the journal of %s has the token %q", n.node.Name(), token)
		}
		if err := n.node.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if out := n.must("systemctl", "show", "slipway-up", "-p", "ConditionResult,ActiveState"); !strings.Contains(out, "ActiveState=inactive") {
			t.Errorf("it ran again on %s:\n%s", n.node.Name(), out)
		}
	}
	restarted := time.Now()
	for _, n := range all {
		m.reportsAfter(restarted, n.node.Name())
		m.ready(n.node.Name())
	}
}

// reportsAfter waits until a node's kubelet has renewed its Lease after a moment: until then, the Node's status is old.
func (m machine) reportsAfter(moment time.Time, name string) {
	m.Helper()
	m.eventually("the kubelet of "+name+" to report", readyLimit, func() error {
		out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "lease", name, "--namespace=kube-node-lease",
			"-o", "jsonpath={.spec.renewTime}")
		if err != nil {
			return err
		}
		renewed, err := time.Parse(time.RFC3339, out)
		if err == nil && !renewed.After(moment) {
			err = fmt.Errorf("it has last reported at %s", out)
		}
		return err
	})
}

// secretToken matches a bootstrap token.
var secretToken = regexp.MustCompile(`[a-z0-9]{6}\.[a-z0-9]{16}`)

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// cloudConfig is the part of a user-data file that the test changes.
type cloudConfig struct {
	WriteFiles []map[string]string `json:"write_files"`
	RunCmd     [][]string          `json:"runcmd"`
}

// seed puts user-data where the source NoCloud looks for it, with the lab's settings, and the bundle where the example expects
// it.
func (m machine) seed(path string) {
	m.Helper()
	var config cloudConfig
	if err := yaml.UnmarshalStrict([]byte(readFile(m.T, path)), &config); err != nil {
		m.Fatal(err)
	}
	for _, file := range config.WriteFiles {
		if file["path"] != firstBootFile {
			continue
		}
		text := file["content"]
		for _, kind := range []string{"InitConfiguration", "JoinConfiguration"} {
			text = strings.Replace(text, "kind: "+kind+"\n", "kind: "+kind+"\nnodeRegistration: {ignorePreflightErrors: ["+nodes.IgnorePreflightErrors+"]}\n", 1)
		}
		if strings.Contains(text, "ClusterConfiguration") {
			text += "---\n" + nodes.KubeletConfiguration + "---\n" + nodes.KubeProxyConfiguration
		}
		file["content"] = text
	}
	data, err := yaml.Marshal(config)
	if err != nil {
		m.Fatal(err)
	}
	m.must("mkdir", "--parents", seedDir, "/opt/slipway")
	m.must("mv", bundlePath, "/opt/slipway/bundle.tar")
	m.write(seedDir+"/user-data", "#cloud-config\n"+string(data))
	m.write(seedDir+"/meta-data", "instance-id: "+m.node.Name()+"\nlocal-hostname: "+m.node.Name()+"\n")
}

// bootsWithSeed boots the machine, and waits until cloud-init is done.
func (m machine) bootsWithSeed() {
	m.Helper()
	if err := m.node.Restart(m.Context()); err != nil {
		m.Error(err)
		return
	}
	if out, err := m.try("cloud-init", "status", "--wait", "--long"); err != nil || !strings.Contains(out, "status: done") {
		log, _ := m.try("journalctl", "--no-pager", "-o", "cat", "-u", "slipway-up", "-u", "cloud-final", "-n", "60")
		m.Errorf("cloud-init on %s: %v\n%s\n%s", m.node.Name(), err, out, log)
	}
	if _, err := m.node.ReadFile(firstBootFile); err == nil {
		m.Errorf("%s has kept %s", m.node.Name(), firstBootFile)
	}
}
