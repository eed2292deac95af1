// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/test/tier"
)

const contentionEnv = "SLIPWAY_CONTENTION_STAGE"

// TestContention races two real processes for one node, 20 or 200 times: one does the work; the other reports the node's holder
// within a second, or comes too late and finds everything done. Every pair is good, regardless of the winner.
func TestContention(t *testing.T) {
	if os.Getenv(contentionEnv) == "" {
		if os.Geteuid() != 0 {
			t.Skip("only root may make namespaces")
		}
		if raceDetector {
			t.Skip("`make unit` runs it without the race detector, too")
		}
		out := reexec(t, []string{contentionEnv + "=1"}, unix.CLONE_NEWNS) // the node's lock is this stage's own
		t.Log(string(regexp.MustCompile(`(?m)^raced .*$`).Find(out)))
		return
	}
	ownDirectories(t)
	refused, slowest, waits := 0, time.Duration(0), []time.Duration(nil)
	rounds := len(tier.Sample(t, 20, 200))
	for round := range rounds {
		pki := fmt.Sprintf("/etc/kubernetes/pki-%d", round)
		put(t, "/tmp/init.yaml", canaryInit+"certificatesDir: "+pki+"\n", 0o600)
		runs := [2]*racer{start(t), start(t)}
		winners := 0
		for i, r := range runs {
			if r.wait(t) == nil {
				winners++
				continue
			}
			refused++
			waits = append(waits, r.took)
			slowest = max(slowest, r.took)
			holder := fmt.Sprintf("(`slipway init phase certs all`, pid %d)", runs[1-i].cmd.Process.Pid)
			if !strings.Contains(r.said.String(), holder) {
				t.Errorf("round %d: want %s in %s", round, holder, &r.said)
			}
		}
		if winners == 0 {
			t.Errorf("round %d: nobody did the work", round)
		}
		goodPairs(t, pki)
		must(t, os.RemoveAll(pki))
	}
	slices.Sort(waits)
	if refused < rounds/4 { // a process that waits for the other isn't refused
		t.Fatalf("%d of %d were refused", refused, rounds)
	}
	fmt.Printf("raced %d times: %d were refused, after %s in the median, %s at most; every pair is good\n",
		rounds, refused, waits[refused/2].Round(time.Millisecond), slowest.Round(time.Millisecond))
}

type racer struct {
	cmd   *exec.Cmd
	said  bytes.Buffer
	began time.Time
	ended chan error
	took  time.Duration // until it ended
}

func start(t *testing.T) *racer {
	t.Helper()
	r := &racer{cmd: exec.CommandContext(t.Context(), "/proc/self/exe", "init", "phase", "certs", "all", "--config=/tmp/init.yaml"), ended: make(chan error, 1)}
	r.cmd.Args[0], r.cmd.Env = "slipway", []string{"PATH=/usr/bin", "TMPDIR=/tmp"}
	r.cmd.Stdout, r.cmd.Stderr = &r.said, &r.said
	r.began = time.Now()
	must(t, r.cmd.Start())
	go func() {
		err := r.cmd.Wait()
		r.took = time.Since(r.began)
		r.ended <- err
	}()
	return r
}

func (r *racer) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("a run does not end: %s", &r.said)
		return nil
	}
}

// goodPairs fails unless each certificate has its key and is signed by its CA, and nothing else is left.
func goodPairs(t *testing.T, pki string) {
	t.Helper()
	signers := map[string]string{
		"ca": "ca", "apiserver": "ca", "apiserver-kubelet-client": "ca", "front-proxy-ca": "front-proxy-ca", "front-proxy-client": "front-proxy-ca",
		"etcd/ca": "etcd/ca", "etcd/server": "etcd/ca", "etcd/peer": "etcd/ca", "etcd/healthcheck-client": "etcd/ca", "apiserver-etcd-client": "etcd/ca",
	}
	expected := []string{"sa.key", "sa.pub"}
	for name, signer := range signers {
		expected = append(expected, name+".crt", name+".key")
		pair, err := tls.LoadX509KeyPair(filepath.Join(pki, name+".crt"), filepath.Join(pki, name+".key"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ca, err := os.ReadFile(filepath.Join(pki, signer+".crt"))
		must(t, err)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca)
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	private, err := os.ReadFile(filepath.Join(pki, "sa.key"))
	must(t, err)
	public, err := os.ReadFile(filepath.Join(pki, "sa.pub"))
	must(t, err)
	must(t, certs.CheckServiceAccountPair(private, public))
	must(t, filepath.WalkDir(pki, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(pki, path)
		if err == nil && !d.IsDir() && !slices.Contains(expected, name) {
			t.Errorf("%s is left", path)
		}
		return err
	}))
}
