// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fakeapi"
)

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUserKubeconfig: the files come in kubectl's order, with admin.conf last.
func TestUserKubeconfig(t *testing.T) {
	dir := t.TempDir()
	a, b := writeFile(t, filepath.Join(dir, "a"), ""), writeFile(t, filepath.Join(dir, "b"), "")
	missing := filepath.Join(dir, "missing")
	tests := []struct {
		name, variable string
		want           []string
	}{
		{"one file", a, []string{a}},
		{"a list", a + ":" + b, []string{a, b}},
		{"the same twice, and nothing", b + "::" + b, []string{b}},
		{"one is missing", missing + ":" + b, []string{b}},
		{"all are missing", missing, []string{"/admin.conf"}},
		{"below a file", a + "/config", []string{"/admin.conf"}},
	}
	for _, tt := range tests {
		t.Setenv("KUBECONFIG", tt.variable)
		if got := UserKubeconfig("/admin.conf"); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestHomeKubeconfig changes clientcmd's variable, because clientcmd looks up the home directory when the program starts.
func TestHomeKubeconfig(t *testing.T) {
	before := clientcmd.RecommendedHomeFile
	t.Cleanup(func() { clientcmd.RecommendedHomeFile = before })
	t.Setenv("KUBECONFIG", "")
	clientcmd.RecommendedHomeFile = filepath.Join(t.TempDir(), ".kube", "config")
	if got := UserKubeconfig("/admin.conf"); !slices.Equal(got, []string{"/admin.conf"}) {
		t.Errorf("without the file: %q", got)
	}
	writeFile(t, clientcmd.RecommendedHomeFile, "")
	if got := UserKubeconfig("/admin.conf"); !slices.Equal(got, []string{clientcmd.RecommendedHomeFile}) {
		t.Errorf("with the file: %q", got)
	}
	t.Chdir(t.TempDir())
	clientcmd.RecommendedHomeFile = ".kube/config" // without HOME
	writeFile(t, clientcmd.RecommendedHomeFile, "")
	if got := UserKubeconfig("/admin.conf"); !slices.Equal(got, []string{"/admin.conf"}) {
		t.Errorf("without HOME: %q", got)
	}
}

const (
	contextFile = "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
	userFile    = "apiVersion: v1\nkind: Config\nusers: [{name: u, user: {token: TOKEN}}, {name: other, user: {token: z}}]\n"
	clusterFile = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://192.0.2.1:6443', certificate-authority: pki/ca.crt}}]\n"
)

// TestLoadKubeconfig merges a context from three files. The first file with a value wins, and a path is relative to its file.
func TestLoadKubeconfig(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "c", "pki", "ca.crt"), "CA")
	data, err := LoadKubeconfig(
		writeFile(t, filepath.Join(dir, "a", "config"), contextFile),
		writeFile(t, filepath.Join(dir, "b", "config"), strings.Replace(userFile, "TOKEN", "first", 1)),
		writeFile(t, filepath.Join(dir, "b", "second"), strings.Replace(userFile, "TOKEN", "second", 1)+"current-context: other\n"),
		writeFile(t, filepath.Join(dir, "c", "config"), clusterFile))
	if err != nil {
		t.Fatal(err)
	}
	got, err := clientcmd.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	if got.CurrentContext != "x" || len(got.AuthInfos) != 1 || got.AuthInfos["u"].Token != "first" ||
		string(got.Clusters["c"].CertificateAuthorityData) != "CA" || got.Clusters["c"].Server != "https://192.0.2.1:6443" {
		t.Errorf("merged into\n%s", data)
	}
}

// TestLoadKubeconfigOnce: a process substitution, <(...), can be read only once.
func TestLoadKubeconfigOnce(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	text := contextFile + "users: [{name: u, user: {token: t}}]\nclusters: [{name: c, cluster: {server: 'https://192.0.2.1'}}]\n"
	if _, err := write.WriteString(text); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	if _, err := LoadKubeconfig(fmt.Sprintf("/proc/self/fd/%d", read.Fd())); err != nil {
		t.Error(err)
	}
}

// TestLoadKubeconfigFaults: errors name the file, but repeat nothing of its contents.
func TestLoadKubeconfigFaults(t *testing.T) {
	dir := t.TempDir()
	good := writeFile(t, filepath.Join(dir, "good"), contextFile)
	bad := writeFile(t, filepath.Join(dir, "bad"), "users: [{name: u, user: {password: *hunter2}}]\n")
	tests := []struct {
		name  string
		paths []string
		says  []string
	}{
		{"missing", []string{filepath.Join(dir, "none")}, []string{dir + "/none"}},
		{"malformed", []string{bad}, []string{"kubeconfig", "YAML"}},
		{"malformed in a list", []string{good, bad}, []string{bad, "YAML"}},
		{"a directory in a list", []string{good, dir}, []string{"read " + dir}},
		{"no current context", []string{writeFile(t, filepath.Join(dir, "u"), userFile)}, []string{"current-context"}},
		{"no such cluster", []string{good}, []string{"cluster c"}},
	}
	for _, tt := range tests {
		_, err := LoadKubeconfig(tt.paths...)
		fact.Error(t, err, tt.says...)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if _, err := LoadKubeconfig(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a missing file must be recognizable")
	}
}

// TestURLPasswords: no error from a kubeconfig or a connection repeats a password in a URL.
func TestURLPasswords(t *testing.T) {
	tests := []struct{ server, proxy, says string }{
		{"https://u:hunter2@127.0.0.1:1", "", "connection refused"},
		{"https://u:hun ter2@127.0.0.1:1", "", "a URL"},
		{"https://u:hun/ter2@127.0.0.1:1", "", "a URL"},
		{"https://u:hunter2%zz@127.0.0.1:1", "", "a URL"},
		{"https://127.0.0.1:1", "http://u:hunter2@127.0.0.1:1", "connection refused"},
		{"https://127.0.0.1:1", "http://u:hun ter2@127.0.0.1:1", `proxy-url of cluster "c"`},
		{"https://127.0.0.1:1", "ftp://u:hunter2@127.0.0.1:1", `proxy-url of cluster "c"`},
	}
	for _, tt := range tests {
		text := contextFile + "users: [{name: u, user: {token: t}}]\nclusters: [{name: c, cluster: {server: '" + tt.server + "', proxy-url: '" + tt.proxy + "'}}]\n"
		c, err := dial("admin.conf", []byte(text), "", "")
		if err == nil {
			_, err = c.do(t.Context(), c.client.Get().AbsPath("/readyz"))
			c.client.Client.CloseIdleConnections()
		}
		if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "hun") || strings.Contains(err.Error(), "***") {
			t.Errorf("%s %s: %v, want %q", tt.server, tt.proxy, err, tt.says)
		}
	}
}

func TestURLUser(t *testing.T) {
	a := newAPI(t)
	asked := make(chan string, 1)
	a.hook = func(r *http.Request, _ string) fakeapi.Fault {
		name, password, _ := r.BasicAuth()
		asked <- name + " " + password
		return answers(200, "", "ok")
	}
	path := a.kubeconfig(t, "admin") // with a token
	kubeconfig, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := dial(path, bytes.Replace(kubeconfig, []byte("https://"), []byte("https://u:p%40ss@"), 1), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.client.Client.CloseIdleConnections()
	if _, err := c.do(t.Context(), c.client.Get().AbsPath("/readyz")); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; got != "u p@ss" {
		t.Errorf("asked as %q", got)
	}
}
