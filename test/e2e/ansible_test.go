// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// TestAnsible makes a cluster of three control planes and two workers with examples/ansible, over SSH, and finds nothing to do in
// a second run. It upgrades the cluster with a rolling play, and again a second run has nothing to do. Then it rebuilds a control
// plane. It needs ansible-core and OpenSSH's client, which `make examples` installs.
func TestAnsible(t *testing.T) {
	older := olderBundle(t)
	m := bare(t)
	all := []machine{m, m.anotherBare("cp-2"), m.anotherBare("cp-3"), m.anotherBare("worker-1"), m.anotherBare("worker-2")}
	a := ansible{machine: m, dir: t.TempDir()}
	a.takesKey(all)
	a.writeInventory(all)

	a.play("site.yaml", older, "--check")
	a.play("site.yaml", older)
	for _, n := range all {
		m.ready(n.node.Name())
	}
	m.runsVersion(m.node.VersionOf(olderKubernetes), "cp-1", "cp-2", "cp-3")
	m.reachAcross(all)
	a.changesNothing("site.yaml", older)
	a.changesNothing("site.yaml", older, "--check")

	newer := absolute(t, bundleHere(t))
	a.play("upgrade.yaml", newer)
	m.runsVersion(m.upgradesTo(), "cp-1", "cp-2", "cp-3")
	for _, n := range all {
		m.prints(m.upgradesTo(), "get", "node", n.node.Name(), "-o", "jsonpath={.status.nodeInfo.kubeletVersion}")
	}
	m.prints("", "get", "nodes", "-o", "jsonpath={.items[*].spec.unschedulable}")
	m.reachAcross(all)
	a.changesNothing("upgrade.yaml", newer)
	a.changesNothing("upgrade.yaml", newer, "--check")
	a.changesNothing("site.yaml", newer)

	a.rebuilds(all[2], newer)
	for _, n := range all {
		m.ready(n.node.Name())
	}
	first := a.inventoryBeginningWith("cp-2")
	a.play("site.yaml", newer, "--inventory", first) // cp-2 gets super-admin.conf
	a.changesNothing("site.yaml", newer, "--inventory", first)
}

// rebuilds resets a control plane to a bare machine and makes it a node again, without the other machines. Its old Node still
// exists.
func (a ansible) rebuilds(n machine, bundle string) {
	a.Helper()
	name := n.node.Name()
	n.must("slipway", "reset", "--force")
	a.eventually(name+" not to be Ready", readyLimit, func() error {
		out, err := a.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "node", name,
			"-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if err == nil && out == "True" {
			err = errors.New("it is")
		}
		return err
	})
	a.play("site.yaml", bundle, "--limit", name)
}

// inventoryBeginningWith writes an inventory of one control plane. Given before the full inventory, it makes that plane the
// first.
func (a ansible) inventoryBeginningWith(name string) string {
	a.Helper()
	path := a.path("first.json")
	if err := os.WriteFile(path, []byte(`{"control_planes": {"hosts": {"`+name+`": {}}}}`), 0o600); err != nil {
		a.Fatal(err)
	}
	return path
}

// ansible runs the playbooks from this machine, in the lab's network.
type ansible struct {
	machine
	dir string // for the key and the inventory
}

// takesKey makes a key and gives it to the machines at their first boot, as a cloud does.
func (a ansible) takesKey(all []machine) {
	a.Helper()
	here(a.T, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", a.path("key"))
	userData := "#cloud-config\nssh_authorized_keys: ['" + strings.TrimSpace(readFile(a.T, a.path("key.pub"))) + "']\n"
	for _, n := range all {
		n.must("mkdir", "--parents", seedDir)
		n.write(seedDir+"/user-data", userData)
		n.write(seedDir+"/meta-data", "instance-id: "+n.node.Name()+"\nlocal-hostname: "+n.node.Name()+"\n")
		n.must("rm", bundlePath) // the play brings it
		if err := n.node.Restart(a.Context()); err != nil {
			a.Fatal(err)
		}
	}
	for _, n := range all {
		n.must("cloud-init", "status", "--wait")
	}
}

func (a ansible) path(name string) string { return filepath.Join(a.dir, name) }

func (a ansible) writeInventory(all []machine) {
	a.Helper()
	type object = map[string]any
	var inventory map[string]object
	if err := yaml.Unmarshal([]byte(readFile(a.T, "../../examples/ansible/inventory.yaml")), &inventory); err != nil {
		a.Fatal(err)
	}
	vars := inventory["all"]["vars"].(object)
	vars["slipway_endpoint"] = all[0].node.IP() + ":6443"
	vars["slipway_program"] = absolute(a.T, programHere())
	for _, name := range []string{"slipway_arguments", "slipway_upgrade_arguments"} {
		vars[name] = []string{"--ignore-preflight-errors=" + nodes.IgnorePreflightErrors}
	}
	vars["slipway_drain_arguments"] = []string{"--drain-force"}
	vars["slipway_documents"] = []object{a.document(nodes.KubeletConfiguration), a.document(nodes.KubeProxyConfiguration)}
	vars["ansible_ssh_private_key_file"] = a.path("key")
	vars["ansible_ssh_common_args"] = "-F none -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile=" + a.path("known_hosts")
	hosts := map[string]object{}
	for _, group := range []string{"control_planes", "workers"} {
		for name, host := range inventory[group]["hosts"].(object) {
			hosts[name] = host.(object)
		}
	}
	for _, n := range all {
		host := hosts[n.node.Name()]
		if host == nil {
			a.Fatalf("the example has no machine %s", n.node.Name())
		}
		host["ansible_host"] = n.node.IP()
	}
	if len(hosts) != len(all) {
		a.Fatalf("the example has %d machines, want %d", len(hosts), len(all))
	}
	data, err := json.Marshal(inventory)
	if err == nil {
		err = os.WriteFile(a.path("inventory.json"), data, 0o600)
	}
	if err != nil {
		a.Fatal(err)
	}
}

func (a ansible) document(text string) (d map[string]any) {
	a.Helper()
	if err := yaml.Unmarshal([]byte(text), &d); err != nil {
		a.Fatal(err)
	}
	return d
}

// recap matches Ansible's summary of a machine.
var recap = regexp.MustCompile(`(?m)^(\S+) +: ok=(\d+) +changed=(\d+) +unreachable=0 +failed=0 `)

// changesNothing runs a playbook that mustn't change anything.
func (a ansible) changesNothing(book, bundle string, more ...string) {
	a.Helper()
	if changed := a.play(book, bundle, more...); changed != 0 {
		a.Errorf("%s %q changed %d things", book, more, changed)
	}
}

// play runs a playbook with more arguments, which must succeed, and returns the number of changes.
func (a ansible) play(book, bundle string, more ...string) (changed int) {
	a.Helper()
	started := time.Now()
	args := append([]string{"--net=" + a.node.NetworkNamespace(), "ansible-playbook"}, more...)
	cmd := exec.CommandContext(a.Context(), "nsenter",
		append(args, "--inventory", a.path("inventory.json"), "--extra-vars", "slipway_bundle="+bundle, book)...)
	cmd.Dir = "../../examples/ansible"
	cmd.Env = append(os.Environ(), "HOME="+a.dir, "ANSIBLE_NOCOLOR=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	lines := recap.FindAllStringSubmatch(out.String(), -1)
	machines := 5
	if slices.Contains(more, "--limit") {
		machines = 1
	}
	if err != nil || len(lines) != machines {
		a.Fatalf("%s %q: %v\n%s", book, more, err, out.String())
	}
	said := ""
	for _, line := range lines {
		count := 0
		if _, err := fmt.Sscan(line[3], &count); err != nil {
			a.Fatal(err)
		}
		changed += count
		said += fmt.Sprintf("\n  %s: ok=%s changed=%s", line[1], line[2], line[3])
	}
	a.Logf("%s %q took %.0fs%s", book, more, time.Since(started).Seconds(), said)
	if secretToken.MatchString(out.String()) {
		a.Errorf("%s printed a token:\n%s", book, out.String())
	}
	return changed
}
