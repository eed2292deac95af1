// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/tier"
)

// resolvedConf is where systemd-resolved keeps the name servers.
const resolvedConf = "/run/systemd/resolve/resolv.conf"

// runsResolved creates systemd-resolved's file, now and at each boot. The other machines don't have it.
func (m machine) runsResolved() {
	m.Helper()
	const atBoot = "/etc/tmpfiles.d/resolved.conf"
	m.write(atBoot, "C "+resolvedConf+" 0644 - - - /etc/resolv.conf\n")
	m.must("systemd-tmpfiles", "--create", atBoot)
}

// keepsHostFacts: the first node's Pods use its name servers, and the cluster's configuration doesn't say where they are.
func (m machine) keepsHostFacts() {
	m.Helper()
	if here := m.must("cat", "/var/lib/kubelet/config.yaml"); !strings.Contains(here, "resolvConf: "+resolvedConf) {
		m.Errorf("the kubelet's configuration of the first node:\n%s", here)
	}
	if text := m.storedText("kubelet-config", "kubelet"); strings.Contains(text, "resolvConf") {
		m.Errorf("kubelet-config has\n%s", text)
	}
}

// correctsHostFacts: a worker joins a cluster whose kubelet-config has another node's path, as earlier versions stored it, and
// runs Pods. If the path keeps the kubelet from creating sandboxes, join names the cause.
func (m machine) correctsHostFacts(w machine, args []string) {
	m.Helper()
	before := m.storedText("kubelet-config", "kubelet")
	m.editStored("kubelet-config", "kubelet", func(text string) string { return text + "resolvConf: " + resolvedConf + "\n" })
	w.must("mkdir", "-p", "/root/patches")
	w.write("/root/patches/kubeletconfiguration.yaml", "resolvConf: /none/resolv.conf\n")
	join := append([]string{"slipway", "join"}, args...)
	out, err := w.try(append(join, "--patches", "/root/patches", "--ignore-preflight-errors=ResolvConf")...)
	if err == nil {
		m.Errorf("join with name servers that don't exist succeeded:\n%s", out)
	}
	fact.In(m, out, "pod-sandbox", "/none/resolv.conf", w.node.Name())
	w.reset()
	m.kubectl("delete", "node", w.node.Name())

	if out, err = w.try(join...); err != nil {
		m.Fatalf("join: %v\n%s", err, out)
	}
	fact.In(m, out, "[WARNING]", "ConfigMap kube-system/kubelet-config", "resolvConf", resolvedConf, "/etc/resolv.conf")
	w.eventually("a Pod on the worker", readyLimit, func() error {
		if out := w.must("ctr", "-n", "k8s.io", "tasks", "ls", "-q"); strings.TrimSpace(out) == "" {
			return errors.New("nothing runs")
		}
		return nil
	})
	m.editStored("kubelet-config", "kubelet", func(string) string { return before })
	w.reset()
	w.must("rm", "-r", "/root/patches")
	m.kubectl("delete", "node", w.node.Name())
}

// readsFlagsEnv checks kubeadm-flags.env with a node's systemd: for any values, the process must get exactly these words. It also
// checks the unit tests' model of systemd with the same values.
func readsFlagsEnv(m machine) {
	m.write("/run/systemd/system/words@.service", `[Service]
Type=oneshot
EnvironmentFile=/run/words/%i.env
ExecStart=/usr/bin/printf '%%s\\0' $KUBELET_KUBEADM_ARGS
StandardOutput=truncate:/run/words/%i.out
`)
	const files = 60
	random := rand.New(rand.NewPCG(1, 2))
	var units []string
	wanted := make([][]string, files)
	for i := range files {
		n := config.Node{Name: "a", Hostname: "b", Machine: config.Machine{KubeletExtraArgs: []config.Arg{{Name: "last", Value: "1"}}}}
		for range 4 {
			n.KubeletExtraArgs = append(n.KubeletExtraArgs, config.Arg{Name: "v", Value: awkward(random)})
		}
		data, err := kubeletconfig.FlagsEnv(&n)
		if err != nil {
			m.Fatal(err)
		}
		m.write(fmt.Sprintf("/run/words/%d.env", i), string(data))
		wanted[i] = kubeletconfig.Flags(&n)
		units = append(units, fmt.Sprintf("words@%d", i))
	}
	m.must("systemctl", "daemon-reload")
	m.must(append([]string{"systemctl", "start"}, units...)...)
	for i, want := range wanted {
		out, err := m.node.ReadFile(fmt.Sprintf("/run/words/%d.out", i))
		if err != nil {
			m.Fatal(err)
		}
		got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		if !slices.Equal(got, want) {
			m.Errorf("systemd reads %q\nwant %q", got, want)
		}
	}
}

// awkward returns a value full of characters with a meaning for systemd or a shell.
func awkward(random *rand.Rand) string {
	parts := []string{" ", "  ", "'", `"`, `\`, `\\`, "$", "$$", "${HOME}", "$HOME", "%", "%n", "%%", "#", ";", "=", "`", "\u00a0", "é", "a", "b=c", "\\n", "\\x41", "\\ ", "{}", "|", "&", "*", "~", "@", "-", "!", "+", ":"}
	var b strings.Builder
	for range random.IntN(8) {
		b.WriteString(parts[random.IntN(len(parts))])
	}
	return b.String()
}

// The networks of clusters whose hosts have no IPv4 address.
const (
	podsIPv6       = "fd00:10:244::/56"
	networkingIPv6 = `networking: {podSubnet: "` + podsIPv6 + `", serviceSubnet: "fd00:10:96::/112"}`
)

// TestIPv6 creates a cluster of hosts without an IPv4 address: two control planes, one of which leaves again, and a worker. The
// only addresses in the configuration are the endpoint and the networks of Pods and Services.
func TestIPv6(t *testing.T) {
	tier.OnlyFull(t, "TestHA")
	cp1 := boot(t, podsIPv6)
	cp2, w1 := cp1.another("cp-2", podsIPv6), cp1.another("worker-1", podsIPv6)
	all := []machine{cp1, cp2, w1}
	for _, m := range all {
		m.hasOnlyIPv6(all)
	}
	before := cp2.host()
	cp1.init(document("", networkingIPv6+`
controlPlaneEndpoint: "[fd00:99::11]:6443"`))
	worker, plane := cp1.joinCommands()
	sideBySide(func() { cp2.runs("slipway", "join", plane) }, func() { w1.runs("slipway", "join", worker) })
	for _, m := range all[1:] {
		cp1.ready(m.node.Name())
	}
	cp1.healthy(everything)
	cp1.hasVoters(cp1, cp2)
	cp1.prints("fd00:99::11 fd00:99::12 fd00:99::21", "get", "nodes", "-o",
		`jsonpath={.items[*].status.addresses[?(@.type=="InternalIP")].address}`)
	cp1.prints("fd00:10:96::1", "get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")

	cp2.reset("--network")
	cp1.hasVoters(cp1)
	cp2.isAs(before)
	if rules := cp2.must("nft", "list", "ruleset"); strings.Contains(rules, "KUBE-") {
		t.Errorf("reset --network has left:\n%s", rules)
	}
}

// hasOnlyIPv6 removes the host's IPv4 addresses, and rewrites its hosts file, which resolves the control planes' endpoint.
func (m machine) hasOnlyIPv6(all []machine) {
	m.Helper()
	hosts := "::1 localhost\n"
	for _, other := range all {
		hosts += other.node.IPv6() + " " + other.node.Name() + "\n"
		if strings.HasPrefix(other.node.Name(), "cp-") {
			hosts += other.node.IPv6() + " " + sharedEndpoint + "\n"
		}
	}
	m.write("/etc/hosts", hosts)
	m.must("chmod", "0644", "/etc/hosts")
	m.must("ip", "-4", "address", "flush", "dev", "host0")
}
