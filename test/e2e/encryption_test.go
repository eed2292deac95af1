// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/tier"
)

const manySecrets, fewSecrets = 2000, 20

// TestEncryption encrypts 2,000 Secrets in etcd. A second control plane joins, and a third in the middle of a rotation. On all three, the
// key is rotated again, with a kill at each kind of step, the Secrets are decrypted, and encrypted once more.
func TestEncryption(t *testing.T) {
	tier.OnlyFull(t, "phases/encryption.TestLife")
	cp1 := boot(t)
	cp2, cp3 := cp1.another("cp-2"), cp1.another("cp-3")
	planes := []machine{cp1, cp2, cp3}
	for _, m := range planes {
		m.knowsEndpoint(planes)
	}
	cp1.init(document("", podSubnet+"\ncontrolPlaneEndpoint: "+sharedEndpoint+":6443"), "--upload-certs")
	cp1.hasSecrets(manySecrets)
	cp1.allWith("")
	cp1.row("enable", func(m machine) {
		m.changesEncryption("enable", []machine{m})
		m.allWith(m.encryption().Key)
		m.healthy(everything)
	})
	cp1.row("join", func(m machine) { cp2.joinsEncrypted(m) })
	cp1.row("join-between", func(m machine) {
		before := m.encryption().Key
		_, early := m.joinCommands()
		m.must("slipway", "encryption", "rotate", "--again") // cp-2 is next
		cp3.refusesEarlierKeys(m, early)
		cp3.joinsEncrypted(m)
		m.changesEncryption("rotate", planes)
		cp3.writesForAll(planes)
		if now := m.encryption(); now.Key == before || len(now.Kept) != 1 {
			m.Errorf("rotated from %s to %s, and kept %q", before, now.Key, now.Kept)
		}
		m.allWith(m.encryption().Key)
	})
	cp1.row("killed", func(m machine) {
		before := m.encryption().Key
		for _, kill := range rotationKills {
			m.killsEncryption("rotate", planes, kill)
		}
		m.changesEncryption("rotate", planes)
		if m.encryption().Key == before {
			m.Error("the key is the same")
		}
		m.allWith(m.encryption().Key)
	})
	cp1.row("disable", func(m machine) {
		m.killsEncryption("disable", planes, encryptionKill{0, "From now on", true})
		m.changesEncryption("disable", planes)
		m.allWith("")
	})
	cp1.row("enable-again", func(m machine) {
		m.killsEncryption("enable", planes, encryptionKill{0, "able to read", true})
		m.changesEncryption("enable", planes)
		m.allWith(m.encryption().Key)
		m.healthy(everything)
	})
}

// encryptionKill is a run of a command on a control plane: it's killed at a line, and then runs again. Without a line, it just runs.
type encryptionKill struct {
	on   int
	line string
	// continues is set if the next run is on the same control plane, and is killed, too.
	continues bool
}

// rotationKills are the runs of a rotation on three control planes, one after the other, until the first gives up the old key.
var rotationKills = []encryptionKill{
	{1, "able to read", false}, {0, "", false}, {2, "From now on", false}, {1, "", false}, {0, "Rewriting", true}, {0, "drops", false},
}

// killsEncryption: all API servers can read the Secrets after the kill, and the same command goes on. Only a run that had ended well
// can't be killed.
func (m machine) killsEncryption(goal string, planes []machine, kill encryptionKill) {
	m.Helper()
	on, command := machine{m.T, planes[kill.on].node}, []string{"slipway", "encryption", goal}
	if kill.line != "" {
		args := command
		if goal == "rotate" {
			args = append(args, "--again")
		}
		said, err := on.runUntil(instant{kill.line, 0}, nothingMore, args...)
		switch {
		case !strings.Contains(said, kill.line):
			m.Fatalf("it ended before %q (%v):\n%s", kill.line, err, said)
		case err == nil:
			m.Logf("it had ended before the kill at %q", kill.line)
		case !errors.Is(err, context.Canceled):
			m.Errorf("it was not killed at %q, but failed (%v):\n%s", kill.line, err, said)
		}
		m.canRead(planes)
	}
	if !kill.continues {
		on.must(command...)
	}
}

// joinsEncrypted joins a control plane. It gets the file with the keys among the other shared files.
func (m machine) joinsEncrypted(first machine) {
	m.Helper()
	m.T = first.T
	_, plane := first.joinCommands()
	m.runs("slipway", "join", plane)
	first.ready(m.node.Name())
	m.must("test", "-s", "/etc/kubernetes/encryption/keyring") // the keys of old snapshots have come along
	m.canRead([]machine{m, first})
}

// refusesEarlierKeys: the file that was uploaded before the last step of a rotation is gone.
func (m machine) refusesEarlierKeys(first machine, join []string) {
	m.Helper()
	m.T = first.T
	out, err := m.try(append([]string{"slipway", "join"}, join...)...)
	if err == nil {
		m.Error("it has joined with keys from before")
	}
	fact.In(m, out, "/etc/kubernetes/encryption/encryption.yaml", "`slipway token create --print-join-command --control-plane`")
}

// writesForAll: all API servers can read what this one writes.
func (m machine) writesForAll(planes []machine) {
	m.Helper()
	m.T = planes[0].T
	m.ownAPI("create", "secret", "generic", "written-last", "--from-literal=value=last")
	for _, reader := range planes {
		reader.T = m.T
		fact.In(m, reader.ownAPI("get", "secret", "written-last", "-o", "jsonpath={.data.value}"), base64.StdEncoding.EncodeToString([]byte("last")))
	}
}

// encryptsPlanes encrypts the Secrets of a cluster that has had several control planes without it: each restarts on trial, in turn.
func (m machine) encryptsPlanes(planes []machine) {
	m.Helper()
	m.hasSecrets(fewSecrets)
	m.changesEncryption("enable", planes)
	m.allWith(m.encryption().Key)
	planes[len(planes)-1].writesForAll(append([]machine{m}, planes[1:]...))
}

// canRead reads a Secret on each API server.
func (m machine) canRead(planes []machine) {
	m.Helper()
	for _, reader := range planes {
		reader.T = m.T
		fact.In(m, reader.ownAPI("get", "secret", "many-7", "-o", "jsonpath={.data.value}"), base64.StdEncoding.EncodeToString([]byte("text-7")))
	}
}

// ownAPI runs kubectl with this control plane's API server.
func (m machine) ownAPI(args ...string) string {
	m.Helper()
	return m.must(append([]string{"kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "--server", "https://" + m.node.IP() + ":6443"}, args...)...)
}

// hasSecrets creates Secrets.
func (m machine) hasSecrets(n int) {
	m.Helper()
	var list strings.Builder
	for i := range n {
		fmt.Fprintf(&list, "---\napiVersion: v1\nkind: Secret\nmetadata: {name: many-%d}\nstringData: {value: text-%d}\n", i, i)
	}
	m.write("/root/secrets.yaml", list.String())
	m.kubectl("create", "-f", "/root/secrets.yaml")
}

// encryptionStatus is the output of `encryption status`.
type encryptionStatus struct {
	State, Key string
	Secrets    int
	Others     int      `json:"secretsWithoutKey"`
	Kept       []string `json:"keptKeys"`
}

func (m machine) encryption() (s encryptionStatus) {
	m.Helper()
	out := m.must("slipway", "encryption", "status", "-o", "json")
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		m.Fatalf("%v:\n%s", err, out)
	}
	return s
}

// changesEncryption runs a command on the control planes, in turn, until nothing is left to do. All of them read Secrets meanwhile.
func (m machine) changesEncryption(goal string, planes []machine) {
	m.Helper()
	started := time.Now()
	for range 3 {
		for _, p := range planes {
			out, err := p.try("slipway", "encryption", goal)
			if err != nil {
				m.Fatalf("%v\n%s", err, out)
			}
			for line := range strings.Lines(out) {
				if strings.Contains(line, "Rewrote") {
					m.Logf("%s: %s", p.node.Name(), strings.TrimSpace(line))
				}
			}
			m.canRead(planes)
		}
		if s := m.encryption(); s.State != "changing" {
			m.Logf("%s: %s after %.1fs", goal, s.State, time.Since(started).Seconds())
			return
		}
	}
	m.Fatalf("%s has not ended: %+v", goal, m.encryption())
}

// allWith checks in etcd that all Secrets are encrypted with a key; an empty name is for none.
func (m machine) allWith(key string) {
	m.Helper()
	out, err := m.etcdctl("get", "/registry/secrets/", "--prefix", "-w", "json")
	if err != nil {
		m.Fatal(err)
	}
	var answer struct{ Kvs []struct{ Key, Value []byte } }
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		m.Fatal(err)
	}
	if len(answer.Kvs) < fewSecrets {
		m.Errorf("etcd has %d Secrets", len(answer.Kvs))
	}
	for _, kv := range answer.Kvs {
		prefix := "k8s:enc:secretbox:v1:" + key + ":"
		if strings.HasPrefix(string(kv.Value), prefix) == (key == "") || key == "" && strings.HasPrefix(string(kv.Value), "k8s:enc:") {
			m.Fatalf("%s begins with %.40q", kv.Key, kv.Value)
		}
	}
}
