// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package support

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

// random returns a canary of n letters and digits, mixed as in a token.
func (c canaries) random(place string, n int) string {
	const letters = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
	b := []byte("aB3")
	for len(b) < n {
		b = append(b, letters[rand.IntN(len(letters))])
	}
	c[place] = string(b[:n])
	return c[place]
}

// upper returns a canary of n letters and digits that AWS uses.
func (c canaries) upper(place string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[rand.IntN(32)]
	}
	c[place] = string(b)
	return c[place]
}

func (c canaries) base64(place, text string) string {
	encoded := base64.StdEncoding.EncodeToString([]byte(text))
	c[place+", encoded"] = encoded[4 : len(encoded)-4]
	return encoded
}

// kinds are texts with a secret, as anybody may write or log them anywhere.
var kinds = map[string]func(c canaries, place string) string{
	"bootstrap token": func(c canaries, p string) string { return "token " + c.token(p) },
	"certificate key": func(c canaries, p string) string { return "key " + c.hexKey(p) },
	"JSON Web Token":  func(c canaries, p string) string { return "got eyJhbGciOiJSUzI1NiJ9.eyJ" + c.random(p, 60) + ".c2ln" },
	"private key": func(c canaries, p string) string {
		_, key := c.pem(p)
		return strings.ReplaceAll(key, "\n", `\n`)
	},
	"base64 of a private key": func(c canaries, p string) string {
		cert, key := c.pem(p)
		return base64.StdEncoding.EncodeToString([]byte(cert + key))
	},
	"password":        func(c canaries, p string) string { return "password=" + c.random(p, 12) },
	"key in JSON":     func(c canaries, p string) string { return `{"apiKey":"` + c.random(p, 12) + `"}` },
	"flag":            func(c canaries, p string) string { return "run --client-secret=" + c.random(p, 12) },
	"flag and value":  func(c canaries, p string) string { return "run --token " + c.random(p, 12) },
	"password in URL": func(c canaries, p string) string { return "from https://me:" + c.random(p, 12) + "@x.example.org/y" },
	"token in URL":    func(c canaries, p string) string { return "from https://" + c.random(p, 12) + "@git.example.org/y" },
	"proxy":           func(c canaries, p string) string { return "https_proxy=me:" + c.random(p, 12) + "@x.example.org" },
	"Authorization":   func(c canaries, p string) string { return "Authorization: Digest " + c.random(p, 12) },
	"header of curl":  func(c canaries, p string) string { return `curl -H "authorization: ` + c.random(p, 12) + `" https://x` },
	"headers in JSON": func(c canaries, p string) string { return `{"Authorization":["Basic ` + c.random(p, 12) + `"]}` },
	"cookie":          func(c canaries, p string) string { return "Cookie: a=1; session=" + c.random(p, 12) },
	"cookie of curl":  func(c canaries, p string) string { return `curl -H 'Cookie: a="` + c.random(p, 12) + `"' https://x` },
	"user of curl":    func(c canaries, p string) string { return "curl -u me:" + c.random(p, 12) + " https://x" },
	"AWS access key":  func(c canaries, p string) string { return "AKIA" + c.upper(p, 16) },
	"AWS secret key":  func(c canaries, p string) string { return "with " + c.random(p, 40) },
	"AWS session":     func(c canaries, p string) string { return "IQoJb3JpZ2lu" + c.random(p, 100) },
	"AWS signed URL":  func(c canaries, p string) string { return "https://b.example.org/k?X-Amz-Signature=" + c.random(p, 64) },
	"GCP API key":     func(c canaries, p string) string { return "AIza" + c.random(p, 35) },
	"GCP OAuth token": func(c canaries, p string) string { return "ya29." + c.random(p, 60) },
	"Azure SAS": func(c canaries, p string) string {
		return "https://a.example.org/c?sv=2022-11-02&sig=" + c.random(p, 40) + "%3D"
	},
	"Azure storage":    func(c canaries, p string) string { return "AccountName=a;AccountKey=" + c.random(p, 86) + "==" },
	"Azure key alone":  func(c canaries, p string) string { return "with " + c.random(p, 86) + "==" },
	"DigitalOcean":     func(c canaries, p string) string { return "dop_v1_" + c.hexKey(p) },
	"GitHub":           func(c canaries, p string) string { return "ghp_" + c.random(p, 36) },
	"GitHub's new one": func(c canaries, p string) string { return "github_pat_" + c.random(p, 82) },
	"GitLab":           func(c canaries, p string) string { return "glpat-" + c.random(p, 20) },
	"Slack":            func(c canaries, p string) string { return "xoxb-123456789012-" + c.random(p, 24) },
	"Slack's hook":     func(c canaries, p string) string { return "https://hooks.slack.com/services/T0/B0/" + c.random(p, 24) },
	"npm":              func(c canaries, p string) string { return "npm_" + c.random(p, 36) },
	"PyPI":             func(c canaries, p string) string { return "pypi-AgEIcHlwaS5vcmc" + c.random(p, 70) },
	"Vault":            func(c canaries, p string) string { return "hvs." + c.random(p, 90) },
	"registry": func(c canaries, p string) string {
		return `{"auths":{"r":{"auth":"` + c.base64(p, "me:"+c.random(p, 12)) + `"}}}`
	},
	"base64 of a token": func(c canaries, p string) string { return c.base64(p, "my token is ghp_"+c.random(p, 36)) },
	"environment in JSON": func(c canaries, p string) string {
		return `[{"name":"MINE","value":"` + c.random(p, 12) + `"}]`
	},
}

// opaque is a secret without a recognizable form, known as a secret only where the values of environment variables are.
func opaque(c canaries, p string) string { return c.password(p) }

// inFiles lists the places in files. Each line is repeated for each text: %s is the text, %q the text in double quotes.
var inFiles = []struct {
	path, before, line string
	environment        bool // hides opaque texts, too
}{
	{"/etc/default/kubelet", "", "A%d=%q\n", true},
	{"/var/lib/kubelet/kubeadm-flags.env", "", "export A%d=%q\n", true},
	{"/etc/sysconfig/kubelet", "", "PATH=/bin\n# A%d=%q\nKUBELET_EXTRA_ARGS=\"--v=2\"\n", true},
	{"/etc/systemd/system/kubelet.service", "[Service]\n", "Environment=\"A%d=%q\"\n", true},
	{"/usr/lib/systemd/system/kubelet.service", "[Service]\n", "ExecStart=/bin/sh -c 'A%d=%q kubelet'\n", true},
	{"/run/systemd/system/kubelet.service", "[Service]\n", "#Environment=PATH=/bin \\\n#  A%d=%q\n", true},
	{"/etc/systemd/system/kubelet.service.d/10-many.conf", "[Service]\n", "Environment=PATH=/bin \"A%d=%q\" B=c\n", true},
	{"/etc/systemd/system/kubelet.service.d/11-lines.conf", "[Service]\n", "Environment=PATH=/bin \\\n# note\n  \"A%d=%q\" \\\n  LANG=C\n", true},
	{"/etc/systemd/system/kubelet.service.d/12-blanks.conf", "[Service]\n", "Environment = PATH=/bin \\ \n  A%d=%q\n", true},
	{"/etc/systemd/system/containerd.service.d/13-command.conf", "[Service]\n", "ExecStart=/usr/bin/env A%d=%q containerd\n", true},
	{"/etc/systemd/system/containerd.service.d/14-prose.conf", "", "# %d %s\nDescription=%[2]s\n", false},
	{"/etc/systemd/system/containerd.service.d/15-credential.conf", "[Service]\n", "SetCredential=a%d:%s\n", true},
	{"/etc/kubernetes/manifests/arguments.yaml", "kind: Pod\nspec:\n  containers:\n  - args:\n", "    - --x%d\n    - %q\n", false},
	{"/etc/kubernetes/manifests/annotations.yaml", "kind: Pod\nmetadata:\n  annotations:\n", "    a%d: %q\n", false},
	{"/etc/kubernetes/manifests/environment.yaml", "kind: Pod\nspec:\n  containers:\n  - env:\n", "    - name: A%d\n      value: %q\n", true},
	{"/etc/kubernetes/manifests/probe.yaml", "kind: Pod\nspec:\n  livenessProbe:\n    httpHeaders:\n", "    - name: A%d\n      value: %q\n", true},
	{"/etc/kubernetes/manifests/script.yaml", "kind: Pod\nspec:\n  command: [sh, -c]\n  args:\n", "  - |\n    set -e\n    export A%d=%q\n    run\n", true},
	{"/etc/kubernetes/manifests/document.yaml", "kind: ConfigMap\ndata:\n", "  a%d: |\n    env:\n    - name: A\n      value: %q\n", true},
	{"/etc/kubernetes/manifests/secret.yaml", "kind: Secret\nstringData:\n", "  a%d: %q\n", true},
	{"/etc/kubernetes/user.conf", "kind: Config\nusers:\n", "- name: a%d\n  user: {password: %q}\n", true},
	{"/etc/kubernetes/exec.conf", "kind: Config\nusers:\n", "- name: a%d\n  user: {exec: {command: get, args: [%q]}}\n", true},
	{"/etc/kubernetes/cluster.conf", "kind: Config\nclusters:\n", "- name: a%d\n  cluster: {server: %q}\n", false},
	{"/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\nstaticPodURLHeader:\n", "  A%d: [%q]\n", true},
	{"/var/lib/kubelet/instance-config.yaml", "kind: KubeletConfiguration\n", "field%d: %q\n", false},
	{"/etc/hosts", "", "# %d %s\n", false},
	{"/etc/resolv.conf", "", "# %d %s\n", false},
	{"/etc/kubernetes/pki/front-proxy-ca.crt", "", "%d %s\n", true},
	{"/var/log/pods/a/a.log", "", "2026-11-21T09:00:0%d stderr F %s\n", false},
}

// TestBundleMatrix puts each kind of secret into each place the bundle reads.
func TestBundleMatrix(t *testing.T) {
	c, s := canaries{}, newStage(t)
	s.all = true
	for _, place := range inFiles {
		text := place.before
		for i, written := range c.each(place.path, place.environment) {
			line := strings.Replace(place.line, "%q", quoted(place.path, written), 1)
			if strings.Contains(place.line, "%q") {
				text += strings.Replace(line, "%d", fmt.Sprint(i), 1)
				continue
			}
			text += fmt.Sprintf(line, i, written)
		}
		s.put(t, place.path, text)
	}
	s.logs(c.each("journal", false)...)
	for i, message := range c.each("message", false) {
		s.Has.Containers = append(s.Has.Containers, host.ContainerState{
			ID: fmt.Sprintf("%064d", i), Name: "a", Namespace: "default", State: "exited", Created: time.Now(), Message: message, LogPath: "/var/log/pods/a/a.log",
		})
	}
	files := collect(t, s)
	c.absent(t, files)
	for _, place := range inFiles { // or the test checked nothing
		if !strings.Contains(place.path, "/pki/") && !taken(files, place.path) {
			t.Errorf("the bundle does not have %s", place.path)
		}
	}
}

// taken reports whether the bundle has a file of this name, with something hidden.
func taken(files map[string]string, path string) bool {
	for name, text := range files {
		if strings.HasSuffix(name, filepath.Base(path)) && strings.Contains(text, "[redacted]") {
			return true
		}
	}
	return false
}

// each returns each kind's text for one place.
func (c canaries) each(place string, withOpaque bool) []string {
	var texts []string
	for name, text := range kinds {
		texts = append(texts, text(c, place+": "+name))
	}
	if withOpaque {
		texts = append(texts, opaque(c, place+": opaque"), "two words "+opaque(c, place+": words"))
	}
	return texts
}

// quoted returns text in double quotes, in the file's language. In a unit, these are already inside quotes, or inside a shell's.
func quoted(path, text string) string {
	if strings.Contains(path, "systemd") {
		return strings.NewReplacer(`"`, `\"`, `'`, `\'`, " ", `\x20`).Replace(text)
	}
	data, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(data)
}
