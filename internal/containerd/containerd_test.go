// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/fact"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s; -update writes it again (-want +got):\n%s", file, diff)
	}
}

func mirror(t *testing.T, text string) Mirror {
	t.Helper()
	m, err := ParseMirror(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestGolden(t *testing.T) {
	settings := Settings{SandboxImage: "registry.k8s.io/pause:3.10.2", SystemdCgroup: true, Runc: "/usr/local/sbin/runc"}
	golden(t, "config-systemd.toml", Config(settings))
	settings.SystemdCgroup = false
	settings.SandboxImage = "mirror.example:5000/k8s/pause@sha256:" + strings.Repeat("0", 64)
	golden(t, "config-cgroupfs.toml", Config(settings))
	golden(t, "containerd.service", ServiceUnit("/usr/local/bin/containerd"))
	golden(t, "proxy.conf", ProxyDropIn())
	golden(t, "proxy.env", ProxyEnv([]string{
		"PATH=/bin", "https_proxy=http://u:50%25@[2001:db8::1]:3128", `HTTP_PROXY=http://a"b\c:1`, "no_proxy=10.0.0.0/8,\n.cluster.local",
	}))
	golden(t, "hosts.toml", mirror(t, "registry.k8s.io=https://mirror.example").Hosts())
	golden(t, "hosts-path.toml", mirror(t, "registry.example:5000=http://192.0.2.1:8080/v2/k8s").Hosts())
	golden(t, "crictl.yaml", CrictlConfig(Socket))
}

func TestProxyEnv(t *testing.T) {
	for name, test := range map[string]struct {
		environ []string
		want    string // empty for no file
	}{
		"nothing":        {},
		"other":          {environ: []string{"PATH=/bin", "ALL_PROXY=socks5://p", "MY_HTTP_PROXY=http://p", "HTTP_PROXY"}},
		"empty":          {environ: []string{"HTTP_PROXY=", "https_proxy="}},
		"only NO_PROXY":  {environ: []string{"NO_PROXY=localhost"}},
		"lower case":     {[]string{"http_proxy=http://p:1"}, `HTTP_PROXY="http://p:1"`},
		"an equals sign": {[]string{"HTTPS_PROXY=http://p/?a=b"}, `HTTPS_PROXY="http://p/?a=b"`},
		"a percent sign": {[]string{"HTTPS_PROXY=http://u:%40n%i@p"}, `HTTPS_PROXY="http://u:%40n%i@p"`},
		"quotes":         {[]string{`HTTPS_PROXY="p"`}, `HTTPS_PROXY="\"p\""`},
		"for a shell":    {[]string{"HTTPS_PROXY=$a`b`"}, "HTTPS_PROXY=\"\\$a\\`b\\`\""},
		"a backslash":    {[]string{`HTTPS_PROXY=\n`}, `HTTPS_PROXY="\\n"`},
		"a newline":      {[]string{"HTTPS_PROXY=p\nLD_PRELOAD=/x"}, `HTTPS_PROXY="p LD_PRELOAD=/x"`},
		"empty over set": {[]string{"http_proxy=http://p", "HTTP_PROXY="}, `HTTP_PROXY="http://p"`},
	} {
		t.Run(name, func(t *testing.T) {
			want := ""
			if test.want != "" {
				want = test.want + "\n"
			}
			got := ProxyEnv(test.environ)
			if diff := cmp.Diff(want, string(got)); diff != "" || (got == nil) != (want == "") {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestShownProxies(t *testing.T) {
	got := ShownProxies([]byte("[Service]\n" + `Environment="HTTP_PROXY=http://u:50%%25@a\"b\\c:1"` + "\n" + `Environment="NO_PROXY=x"` + "\n"))
	if diff := cmp.Diff([]string{`HTTP_PROXY=http://u:50%25@a"b\c:1`, "NO_PROXY=x"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := ShownProxies(ProxyDropIn()); got != nil {
		t.Errorf("the present drop-in shows %q", got)
	}
}

func TestParseMirror(t *testing.T) {
	for text, want := range map[string]Mirror{
		"registry.k8s.io=https://mirror.example":            {"registry.k8s.io", "https://mirror.example"},
		"localhost:5000=http://192.0.2.1:80/v2/k8s":         {"localhost:5000", "http://192.0.2.1:80/v2/k8s"},
		"docker.io=https://[2001:db8::1]:443/v2/a%20b=c":    {"docker.io", "https://[2001:db8::1]:443/v2/a%20b=c"},
		"my-registry.example:5000=HTTPS://Mirror.example/ü": {"my-registry.example:5000", "https://Mirror.example/%C3%BC"},
	} {
		got, err := ParseMirror(text)
		if err != nil || got != want {
			t.Errorf("%s: %v, error %v", text, got, err)
		}
		if file := path.Join(CertsDir, want.Registry, "hosts.toml"); got.Path() != file {
			t.Errorf("%s goes to %s, want %s", text, got.Path(), file)
		}
	}
}

// TestMirrorBelowAPath: with override_path, containerd asks below exactly this URL, and registries answer below /v2/.
func TestMirrorBelowAPath(t *testing.T) {
	for target, want := range map[string]string{
		"https://m.example":                  "https://m.example",
		"https://m.example/":                 "https://m.example/",
		"https://m.example/k8s":              "https://m.example/v2/k8s",
		"https://m.example/a%20b/k8s":        "https://m.example/v2/a%20b/k8s",
		"https://m.example:5000/v2/k8s":      "https://m.example:5000/v2/k8s",
		"https://m.example/v2":               "https://m.example/v2",
		"https://m.example/api/docker/x/v2":  "https://m.example/api/docker/x/v2",
		"http://[2001:db8::1]:5000/k8s/v2.0": "http://[2001:db8::1]:5000/v2/k8s/v2.0",
	} {
		hosts := string(mirror(t, "registry.k8s.io="+target).Hosts())
		if !strings.Contains(hosts, `[host."`+want+`"]`) {
			t.Errorf("%s: want %s in\n%s", target, want, hosts)
		}
	}
}

// TestMirrorKeepsTheRegistry: containerd finds the registry behind a mirror by itself, if the file names no server. https://docker.io
// has no API.
func TestMirrorKeepsTheRegistry(t *testing.T) {
	for _, registry := range []string{"docker.io", "localhost:5000", "registry.k8s.io"} {
		if hosts := string(mirror(t, registry+"=https://m.example").Hosts()); strings.Contains(hosts, "server") {
			t.Errorf("%s: another registry in\n%s", registry, hosts)
		}
	}
}

// TestParseMirrorRefuses: anything but a registry never becomes a path, and no error shows a password.
func TestParseMirrorRefuses(t *testing.T) {
	const form, target = "REGISTRY=URL", "r.example; https URL" // facts, each after "; "
	for text, want := range map[string]string{
		"":                                  form,
		"registry.k8s.io":                   "registry.k8s.io; https URL",
		"https://u:secret@mirror.example":   form,
		"https://u:sec=ret@mirror.example":  form,
		"=https://u:secret@mirror.example":  form,
		"r.example/k8s=https://u:secret@m":  form,
		"../../etc=https://m":               form,
		"..=https://m":                      form,
		".hidden=https://m":                 form,
		"a b=https://m":                     form,
		"a\nb=https://m":                    form,
		"a\x7f=https://m":                   form,
		`a"b=https://m`:                     form,
		"r.example:port=https://m":          form,
		"_default=https://m":                form,
		"r.example=":                        target,
		"r.example=mirror.example":          target,
		"r.example=mirror.example:5000":     target,
		"r.example=/var/mirror":             target,
		"r.example=ftp://m":                 target,
		"r.example=https://":                target,
		"r.example=https://:5000":           target,
		"r.example=https:m":                 target,
		"r.example=https://m/%zz?u:secret":  target,
		"r.example=https://m\n":             target,
		"r.example=https://m?ns=secret":     target,
		"r.example=https://m#secret":        target,
		"r.example=https://u:secret@m:port": target,
		"r.example=https://u:secret@m":      "r.example; password; URL; /etc/containerd/conf.d",
		"r.example=https://secret@m":        "r.example; password; URL",
	} {
		m, err := ParseMirror(text)
		if fact.Error(t, err, strings.Split(want, "; ")...); m != (Mirror{}) {
			t.Errorf("%q: %v", text, m)
		}
		if strings.Contains(fmt.Sprint(err), "sec") {
			t.Errorf("a secret in the error: %v", err)
		}
	}
}

// TestStrings: for every byte a path or mirror can have, Go's escapes in these files match TOML's:
// https://toml.io/en/v1.0.0#string
func TestStrings(t *testing.T) {
	for c := byte(' '); c < 0x7f; c++ {
		text := string(Config(Settings{Runc: "/opt/" + string(rune(c)) + "/runc"}))
		_, rest, _ := strings.Cut(text, "BinaryName = \"")
		value, _, _ := strings.Cut(rest, "\"\nSystemdCgroup")
		want := string(rune(c))
		if c == '"' || c == '\\' {
			want = `\` + want
		}
		if value != "/opt/"+want+"/runc" {
			t.Errorf("%q is written as %q", c, value)
		}
	}
}

func TestDirectories(t *testing.T) {
	for _, dir := range Directories() {
		if !path.IsAbs(dir) || path.Clean(dir) != dir || strings.Count(dir, "/") < 2 {
			t.Errorf("%s is not a directory of containerd's alone", dir)
		}
	}
}
