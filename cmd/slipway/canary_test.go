// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/test/fakeapi"
)

// The given secrets. A control plane's files add theirs, if any.
const (
	nodeToken      = "canary.q7w3e5r9t1y2u4i6"
	discoveryToken = "canary.z8x6c4v2b1n3m5k7"
	bootstrapToken = "tlsone.p0o9i8u7y6t5r4e3"
	certificateKey = "5ec2e7a9d41b08f36c7a52e19b0d84f75ec2e7a9d41b08f36c7a52e19b0d84f7"
	proxyPassword  = "Pr0xyW0rdOfTheHost"
	barePassword   = "Pr0xyW0rdWithoutAScheme"
	variable       = "ValueOfAVariable"
	fileToken      = "T0kenOfTheDiscoveryFile"
	urlPassword    = "PasswordOfTheDiscoveryURL"
	urlSignature   = "SignatureOfTheDiscoveryURL"
)

func fixedCanaries() []canary {
	secret := func(token string) []byte { return []byte(token[len("canary."):]) }
	return []canary{
		newCanary("token", secret(nodeToken)), newCanary("discovery token", secret(discoveryToken)),
		newCanary("TLS bootstrap token", secret(bootstrapToken)), newCanary("certificate key", []byte(certificateKey)),
		newCanary("proxy password", []byte(proxyPassword)), newCanary("bare proxy's password", []byte(barePassword)),
		newCanary("variable", []byte(variable)), newCanary("discovery file", []byte(fileToken)),
		newCanary("discovery URL's password", []byte(urlPassword)), newCanary("discovery URL's signature", []byte(urlSignature)),
	}
}

// results are the secrets commands are meant to print, on standard output only. Each must be seen, to prove that the scan works.
var results = map[string][]string{
	"slipway token create":            {"TLS bootstrap token", "certificate key"},
	"slipway token list":              {"token"},
	"slipway init phase upload-certs": {"certificate key"},
	"slipway config migrate":          {"token", "certificate key", "discovery token", "TLS bootstrap token", "variable"},
	"slipway kubeconfig user":         {"token"},
}

// TestCanary runs every command in every way that may make it talk, and looks for every secret in anything it leaves where others
// can read. Several stages share the commands, because a run mostly waits.
func TestCanary(t *testing.T) {
	const stages = 8
	if number := os.Getenv(stageEnv); number != "" {
		s := newScan(t)
		count := 0
		walkCommands(newRoot("slipway", cli.Streams{}, nil), func(cmd *cobra.Command) {
			if count++; strconv.Itoa(count%stages) == number {
				s.command(t, cmd)
			}
		})
		s.report()
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may make namespaces")
	}
	if raceDetector {
		t.Skip("`make unit` runs it without the race detector, too")
	}
	var said [stages]string
	var group sync.WaitGroup
	for i := range said {
		group.Go(func() { said[i] = onStage(t, i) })
	}
	group.Wait()
	lines := strings.Split(strings.Join(said[:], "\n"), "\n")
	for path, names := range results {
		for _, name := range names {
			if !slices.Contains(lines, seenLine(path, name)) {
				t.Errorf("%s never prints the %s, so the scan does not see what it should", path, name)
			}
		}
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "scanned ") {
			t.Log(line)
		}
	}
}

func seenLine(path, name string) string { return "seen: " + path + ": " + name }

func newScan(t *testing.T) *scan {
	return &scan{stage: newStage(t), environ: os.Environ(), seen: map[string]bool{}}
}

// report passes the results on to the parent.
func (s *scan) report() {
	fmt.Println()
	for line := range s.seen {
		fmt.Println(line)
	}
	fmt.Printf("scanned %d runs of %d commands for %d secrets: %d seen where they should not be\n", s.runs, s.commands, len(s.given), s.hits)
}

func walkCommands(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, c := range cmd.Commands() {
		walkCommands(c, visit)
	}
}

type scan struct {
	*stage
	environ []string
	seen    map[string]bool // seenLine of each result

	commands, runs, hits int
}

// command runs a command in all ways. The log level goes round, so that each command meets all levels.
func (s *scan) command(t *testing.T, cmd *cobra.Command) {
	path := strings.Fields(cmd.CommandPath())
	s.commands++
	asks := false // the API, so that its faults matter
	for i, w := range ways(t, cmd) {
		if w.fault != nil && !asks {
			continue
		}
		s.reset(t, w.fresh)
		for name, text := range w.files {
			put(t, name, text, 0o600)
		}
		s.api.Spoil = func(*http.Request) fakeapi.Fault {
			asks = true
			return w.fault
		}
		args := slices.Concat(path[1:], w.args, []string{fmt.Sprintf("-v=%d", i%11)})
		s.runs++
		s.look(t, strings.Join(path, " "), args, w, s.run(t, args, w.limit(results[strings.Join(path, " ")] != nil)))
	}
}

// look searches everything a run has left.
func (s *scan) look(t *testing.T, path string, args []string, w way, o outcome) {
	t.Helper()
	secrets := slices.Clone(s.given)
	left := snapshot(t)
	for file, data := range left { // the run's own files
		if s.files[file] == nil && w.files[file] == "" && file != children {
			secrets = append(secrets, keyCanaries(file, data)...)
			secrets = append(secrets, userCanaries(file, data)...)
		}
	}
	hit := func(where string, names []string, data []byte) {
		if len(names) > 0 {
			s.hits++
			t.Errorf("%q: %v in %s\n%.3000s", args, names, where, data)
		}
	}
	var forbidden []string
	for _, name := range spotted(secrets, o.stdout) {
		if slices.Contains(results[path], name) {
			s.seen[seenLine(path, name)] = true
		} else {
			forbidden = append(forbidden, name)
		}
	}
	hit("standard output", forbidden, o.stdout)
	hit("standard error", spotted(secrets, o.stderr), o.stderr)
	for file, data := range left {
		if w.files[file] == string(data) {
			continue
		}
		info, err := os.Lstat(file)
		must(t, err)
		temporary := strings.HasPrefix(file, "/tmp") && !strings.HasPrefix(file, "/tmp/out/") || strings.Contains(file, "tmp")
		if file == children {
			data = []byte(strings.NewReplacer(os.Getenv("HTTPS_PROXY"), "", os.Getenv("HTTP_PROXY"), "").Replace(string(data))) // inherited
		}
		if temporary || info.Mode().Perm()&0o077 != 0 {
			hit(fmt.Sprintf("file %s, mode %s", file, info.Mode()), spotted(secrets, data), nil)
		}
	}
	if !slices.Equal(os.Environ(), s.environ) {
		t.Errorf("%q changes the environment", args)
	}
}

type way struct {
	args  []string
	fresh bool // on a host without files
	files map[string]string
	fault fakeapi.Fault
}

// limit bounds a run: most wait for something that never comes, but commands with a result don't.
func (w way) limit(ends bool) time.Duration {
	switch {
	case w.fault != nil:
		return 60 * time.Millisecond
	case ends:
		return 10 * time.Second
	}
	return 300 * time.Millisecond
}

// ways lists all ways to run a command that its flags allow.
func ways(t *testing.T, cmd *cobra.Command) []way {
	has := func(name string) bool { return lookup(cmd, name) != nil }
	flags, malformed := givenFlags(t, cmd)
	list := []way{{}, {args: flags}, {args: flags, fresh: true}, {args: malformed}, {args: []string{nodeToken}}, {args: []string{nodeToken + "x", "--tokn=" + nodeToken, "--no-such", certificateKey}}}
	plan := func(args ...string) way { return way{args: slices.Concat(flags, args)} }
	if has("dry-run") {
		list = append(list, plan("--dry-run"), way{args: slices.Concat(flags, []string{"--dry-run"}), fresh: true})
	}
	if has("output") {
		list = append(list, plan("-o", "json"), plan("-o", "yaml"), plan("-o", nodeToken))
	}
	if has("output") && has("dry-run") {
		list = append(list, plan("--dry-run", "-o", "json"), plan("--dry-run", "-o", "yaml"))
	}
	if has("diff") {
		list = append(list, plan("--diff"))
	}
	if has("discovery-file") {
		for _, password := range []string{urlPassword, urlPassword + "#", urlPassword + "/"} {
			location := "--discovery-file=https://user:" + password + "@127.0.0.1:1/x?X-Amz-Signature=" + urlSignature
			list = append(list, way{args: []string{location, "--ignore-preflight-errors=all"}}, way{args: []string{location, "--dry-run"}}, way{args: []string{location, "-o", "json"}})
		}
	}
	if has("timeline") {
		list = append(list, plan("--timeline", "/tmp/out/timeline"))
	}
	if file := configFlag(cmd); file != "" {
		list = append(list, configWays(cmd, file)...)
	}
	for _, fault := range []fakeapi.Fault{fakeapi.Forbidden, fakeapi.Trouble, fakeapi.Reset, repeats} {
		w := plan()
		w.fault = fault
		list = append(list, w)
	}
	list = append(list, unreadable(flags)...)
	// A secret behind the wrong flag.
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() != "string" { // others may be paths, which errors name
			list = append(list, way{args: []string{"--" + f.Name + "=" + nodeToken}})
		}
	})
	return list
}

// configFlag names the flag for a configuration file.
func configFlag(cmd *cobra.Command) string {
	for _, name := range []string{"config", "old-config"} {
		if lookup(cmd, name) != nil {
			return "--" + name + "="
		}
	}
	return ""
}

func configWays(cmd *cobra.Command, flag string) []way {
	kind := "init.yaml"
	for _, k := range []string{"join", "reset"} {
		if strings.HasPrefix(cmd.CommandPath(), "slipway "+k) {
			kind = k + ".yaml"
		}
	}
	list := []way{{args: []string{flag + inputs + "/" + kind}}, {args: []string{flag + inputs + "/" + kind}, fresh: true}}
	for _, path := range []string{inputs + "/all.yaml", inputs, inputs + "/token"} { // the last two are no configuration
		list = append(list, way{args: []string{flag + path}})
	}
	if lookup(cmd, "dry-run") != nil {
		list = append(list, way{args: []string{flag + inputs + "/" + kind, "--dry-run"}})
	}
	for _, text := range badConfigs {
		list = append(list, way{args: []string{flag + "/tmp/in-bad"}, files: map[string]string{"/tmp/in-bad": text}})
	}
	return list
}

func unreadable(flags []string) []way {
	const pki = "/etc/kubernetes/pki/"
	cut := "-----BEGIN EC PRIVATE KEY-----\n" + nodeToken + "\n" + certificateKey + "\n"
	broken := "users: [{name: a, user: {token: " + fileToken + ", token: " + nodeToken + "}}]\n"
	return []way{
		{args: flags, files: map[string]string{pki + "ca.key": cut, pki + "sa.key": cut, pki + "etcd/ca.key": cut}},
		{args: flags, files: map[string]string{pki + "ca.crt": cut, pki + "apiserver.crt": cut}},
		{args: flags, files: map[string]string{"/etc/kubernetes/admin.conf": broken, "/etc/kubernetes/kubelet.conf": broken, "/etc/kubernetes/super-admin.conf": broken}},
		{args: flags, files: map[string]string{"/etc/kubernetes/admin.conf": cut, inputs + "/discovery.conf": broken}},
		{args: flags, files: map[string]string{"/etc/kubernetes/manifests/etcd.yaml": broken, "/etc/kubernetes/manifests/kube-apiserver.yaml": cut}},
	}
}
