// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestKubeletFlagsAsWritten: the kubelet takes a value after a space, and underscores for dashes, wherever a flag is.
func TestKubeletFlagsAsWritten(t *testing.T) {
	const env, defaults, dropIn = "/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/systemd/system/kubelet.service.d/20.conf"
	for name, put := range map[string]func(s *stage, flag, value string){
		"in kubeadm-flags.env": func(s *stage, f, v string) { fixture.Put(t, s.root, env, `KUBELET_KUBEADM_ARGS="--v=2 --`+f+"="+v+`"`) },
		"there, after a space": func(s *stage, f, v string) { fixture.Put(t, s.root, env, `KUBELET_KUBEADM_ARGS="--v=2 --`+f+" "+v+`"`) },
		"an administrator's":   func(s *stage, f, v string) { fixture.Put(t, s.root, defaults, "KUBELET_EXTRA_ARGS=--"+f+"="+v) },
		"in a drop-in of its unit": func(s *stage, f, v string) {
			fixture.Put(t, s.root, dropIn, "[Service]\nEnvironment=\"X=--"+f+" "+v+"\"\n")
		},
		"in the node's description": func(s *stage, f, v string) { s.node.KubeletExtraArgs = []config.Arg{{Name: f, Value: v}} },
	} {
		t.Run(name, func(t *testing.T) {
			for _, form := range []struct{ dir, name, port string }{{"cert-dir", "hostname-override", "healthz-port"}, {"cert_dir", "hostname_override", "healthz_port"}} {
				s := newStage(t)
				put(s, form.dir, "/srv/k")
				if got := KubeletClientPEM(s.host, &s.node.Machine); filepath.Dir(got) != "/srv/k" {
					t.Errorf("--%s: %s", form.dir, got)
				}
				put(s, form.name, "other")
				if got := RegisteredName(s.host, s.node); got != "other" {
					t.Errorf("--%s: %s", form.name, got)
				}
				put(s, form.port, "10300")
				if got, err := KubeletSettings(s.host, &s.node.Machine); err != nil || got.HealthzPort == nil || *got.HealthzPort != 10300 {
					t.Errorf("--%s: %v, %v", form.port, got.HealthzPort, err)
				}
			}
		})
	}
	s := newStage(t)
	fixture.Put(t, s.root, env, `KUBELET_KUBEADM_ARGS="--container_runtime_endpoint unix:///srv/c.sock"`)
	for _, step := range []struct{ path, text, want string }{
		{want: "unix:///srv/c.sock"},
		{dropIn, "[Service]\nEnvironment=\"X=--container-runtime-endpoint unix:///srv/d.sock\"\n", "unix:///srv/d.sock"},
		{defaults, "KUBELET_EXTRA_ARGS=--container-runtime-endpoint=unix:///srv/e.sock\n", "unix:///srv/e.sock"},
		{defaults, "KUBELET_EXTRA_ARGS=--container-runtime-endpoint=$SOCKET\n", "unix:///srv/d.sock"},
	} {
		if step.path != "" {
			fixture.Put(t, s.root, step.path, step.text)
		}
		if got := KubeletSocket(s.host); got != step.want {
			t.Errorf("socket %s, want %s", got, step.want)
		}
	}
}

// TestFlagsOfOtherPrograms: only the kubelet's own words count in its unit's commands.
func TestFlagsOfOtherPrograms(t *testing.T) {
	s := newStage(t)
	fixture.Put(t, s.root, "/etc/systemd/system/kubelet.service.d/20.conf", `[Service]
ExecStartPre=/sbin/modprobe --all br_netfilter
ExecStart=
ExecStart=/usr/bin/numactl --cpunodebind=0 -- /usr/bin/kubelet --v=3 --root-dir=/srv/kubelet --max-pods 90
ExecStartPost=/bin/touch --no-create /run/kubelet
ExecStopPost=-/usr/bin/logger --tag kubelet
`)
	var names []string
	for _, f := range AdministratorsFlags(s.host) {
		names = append(names, f.Name)
	}
	if !slices.Equal(names, []string{"v", "root-dir", "max-pods"}) {
		t.Errorf("flags %q", names)
	}
}

// TestUnitFiles: only the files that systemd reads count. A later directory's file of the same name is hidden.
func TestUnitFiles(t *testing.T) {
	const unit = "/system/kubelet.service"
	for name, tt := range map[string]struct {
		files  map[string]string
		masked string // a link to /dev/null
		want   string // --v
	}{
		"a backup":                    {map[string]string{"/etc/systemd" + unit + ".d/20.conf.bak": "2"}, "", ""},
		"a pair, in /etc":             {map[string]string{"/etc/systemd" + unit + ".d/20.conf": "2", "/usr/lib/systemd" + unit + ".d/20.conf": "3"}, "", "2"},
		"a pair, in /run":             {map[string]string{"/run/systemd" + unit + ".d/20.conf": "2", "/usr/local/lib/systemd" + unit + ".d/20.conf": "3"}, "", "2"},
		"a link to /dev/null":         {map[string]string{"/usr/lib/systemd" + unit + ".d/20.conf": "3"}, "/etc/systemd" + unit + ".d/20.conf", ""},
		"the last name":               {map[string]string{"/etc/systemd" + unit + ".d/20.conf": "2", "/usr/lib/systemd" + unit + ".d/30.conf": "3"}, "", "3"},
		"the unit":                    {map[string]string{"/usr/lib/systemd" + unit: "1"}, "", "1"},
		"a drop-in after the unit":    {map[string]string{"/etc/systemd" + unit: "1", "/usr/lib/systemd" + unit + ".d/10.conf": "3"}, "", "3"},
		"a unit that hides another":   {map[string]string{"/etc/systemd" + unit: "1", "/usr/lib/systemd" + unit: "2"}, "", "1"},
		"a unit of another component": {map[string]string{"/etc/systemd/system/kubelet.socket": "1"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			for path, value := range tt.files {
				fixture.Put(t, s.root, path, "[Service]\nEnvironment=\"X=--v="+value+"\"\n")
			}
			if tt.masked != "" {
				fixture.Put(t, s.root, tt.masked, "")
				if err := os.Remove(s.root + tt.masked); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink("/dev/null", s.root+tt.masked); err != nil {
					t.Fatal(err)
				}
			}
			got := ""
			for _, f := range AdministratorsFlags(s.host) {
				got = f.Value
			}
			if got != tt.want {
				t.Errorf("--v=%s, want %s", got, tt.want)
			}
		})
	}
}

// TestReplacedFlags: a variable's last assignment counts, even an empty one, and the files' more than the unit's.
func TestReplacedFlags(t *testing.T) {
	const defaults, sysconfig, dropIn = "/etc/default/kubelet", "/etc/sysconfig/kubelet", "/etc/systemd/system/kubelet.service.d/20.conf"
	const deb = "[Service]\nEnvironmentFile=-" + defaults + "\n"
	const flag, empty = "KUBELET_EXTRA_ARGS=--cert-dir=/srv/1\n", "KUBELET_EXTRA_ARGS=\n"
	for name, tt := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"one file":                         {map[string]string{defaults: flag}, []string{"cert-dir=/srv/1 " + defaults}},
		"an empty one of the rpm":          {map[string]string{defaults: flag, sysconfig: empty}, nil},
		"a comment in it":                  {map[string]string{defaults: flag, sysconfig: "#" + empty}, []string{"cert-dir=/srv/1 " + defaults}},
		"another variable":                 {map[string]string{defaults: flag, sysconfig: "MORE=\"--v=2\"\n"}, []string{"cert-dir=/srv/1 " + defaults, "v=2 " + sysconfig}},
		"other flags":                      {map[string]string{defaults: flag, sysconfig: "KUBELET_EXTRA_ARGS='--v=2'\n"}, []string{"v=2 " + sysconfig}},
		"the rpm's alone":                  {map[string]string{defaults: empty, sysconfig: flag}, []string{"cert-dir=/srv/1 " + sysconfig}},
		"twice":                            {map[string]string{defaults: flag + " KUBELET_EXTRA_ARGS = --v=2\n"}, []string{"v=2 " + defaults}},
		"twice, the last empty":            {map[string]string{defaults: flag + "KUBELET_EXTRA_ARGS=\"\"\n"}, nil},
		"across lines":                     {map[string]string{defaults: empty + "KUBELET_EXTRA_ARGS=\"--v=2 \\\n  --node-labels=a=b\n--max-pods=9\"\n"}, []string{"v=2 " + defaults, "node-labels=a=b " + defaults, "max-pods=9 " + defaults}},
		"a drop-in's":                      {map[string]string{dropIn: "[Service]\nEnvironment=" + flag, sysconfig: empty}, nil},
		"a drop-in's, twice":               {map[string]string{dropIn: "[Service]\nEnvironment=" + flag + "Environment=" + empty}, nil},
		"a drop-in's two":                  {map[string]string{dropIn: "[Service]\nEnvironment=\"A=--v=2 --node-labels a=b\" 'B=--max-pods 9' A=\n"}, []string{"max-pods=9 " + dropIn}},
		"a command's":                      {map[string]string{dropIn: "[Service]\nExecStart=/usr/bin/kubelet --v=2\n", defaults: "A=--v=3\n", sysconfig: "A=\n"}, []string{"v=2 " + dropIn}},
		"a file that the unit leaves out":  {map[string]string{dropIn: deb, defaults: flag, sysconfig: empty}, []string{"cert-dir=/srv/1 " + defaults}},
		"files in the order of the unit's": {map[string]string{dropIn: "[Service]\nEnvironmentFile=" + sysconfig + "\n" + deb, defaults: flag, sysconfig: empty}, []string{"cert-dir=/srv/1 " + defaults}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			for path, text := range tt.files {
				fixture.Put(t, s.root, path, text)
			}
			var got []string
			for _, f := range AdministratorsFlags(s.host) {
				got = append(got, f.Name+"="+f.Value+" "+f.From)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("flags %q, want %q", got, tt.want)
			}
			dir := filepath.Dir(KubeletClientPEM(s.host, &s.node.Machine))
			if moved := dir == "/srv/1"; moved != strings.Contains(strings.Join(tt.want, " "), "cert-dir") {
				t.Errorf("flags %q, and certificates in %s", tt.want, dir)
			}
		})
	}
	if got := KubeadmFlags([]byte("KUBELET_KUBEADM_ARGS=--v=2\nKUBELET_KUBEADM_ARGS=\"--v=3\"\n")); len(got) != 1 || got[0].Value != "3" {
		t.Errorf("flags of kubeadm-flags.env: %v", got)
	}
}

// TestKubeletProgram: the last command counts, in the order of systemd.
func TestKubeletProgram(t *testing.T) {
	const unit, first, last = "/usr/lib/systemd/system/kubelet.service", "/etc/systemd/system/kubelet.service.d/20.conf", "/usr/lib/systemd/system/kubelet.service.d/kubeadm.conf"
	packaged := "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet $A\n"
	own := strings.ReplaceAll(packaged, "/usr/bin", "-/usr/local/bin")
	for name, tt := range map[string]struct {
		files      map[string]string
		unreadable string
		path, file string
	}{
		"no unit":            {},
		"a unit":             {map[string]string{unit: packaged}, "", "/usr/bin/kubelet", unit},
		"a drop-in":          {map[string]string{unit: packaged, first: own}, "", "/usr/local/bin/kubelet", first},
		"a later drop-in":    {map[string]string{unit: packaged, first: own, last: packaged}, "", "/usr/bin/kubelet", last},
		"other settings":     {map[string]string{unit: packaged, first: own, last: "[Service]\nNice=1\n"}, "", "/usr/local/bin/kubelet", first},
		"a wrapper":          {map[string]string{unit: packaged, last: "[Service]\nExecStart=\nExecStart=/usr/bin/numactl -N 0 -- '/opt/kubelet' --v=2\n"}, "", "/opt/kubelet", last},
		"a script":           {map[string]string{unit: packaged, last: "[Service]\nExecStart=\nExecStart=/opt/start\n"}, "", "", last},
		"an unreadable file": {map[string]string{unit: packaged, first: own}, first, "", ""},
		"an unreadable unit": {map[string]string{unit: packaged, first: own}, unit, "/usr/local/bin/kubelet", first},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			for path, text := range tt.files {
				fixture.Put(t, s.root, path, text)
			}
			if path := s.root + tt.unreadable; tt.unreadable != "" { // not even root can read a directory
				if err := errors.Join(os.Remove(path), os.Symlink(s.root, path)); err != nil {
					t.Fatal(err)
				}
			}
			if path, file := KubeletProgram(s.host); path != tt.path || file != tt.file {
				t.Errorf("%q in %q, want %q in %q", path, file, tt.path, tt.file)
			}
		})
	}
}

// TestKubeletSettingsOfFlags: a flag overrides config.yaml, and a value that the kubelet wouldn't accept doesn't count.
func TestKubeletSettingsOfFlags(t *testing.T) {
	s := newStage(t)
	fixture.Put(t, s.root, "/var/lib/kubelet/config.yaml", "failSwapOn: true\nfailCgroupV1: true\ncgroupDriver: systemd\nrotateCertificates: true\n")
	fixture.Put(t, s.root, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--fail-swap-on=false --fail_cgroupv1=false --cgroup-driver=cgroupfs "+
		"--resolv-conf=/run/resolv.conf --protect-kernel-defaults --register-node=false --rotate-certificates=maybe\n")
	got, err := KubeletSettings(s.host, &s.node.Machine)
	if err != nil {
		t.Fatal(err)
	}
	want := kubeletconfig.New()
	want.FailSwapOn, want.FailCgroupV1, want.RegisterNode = new(false), new(false), new(false)
	want.CgroupDriver, want.ResolverConfig = "cgroupfs", new("/run/resolv.conf")
	want.ProtectKernelDefaults, want.RotateCertificates = true, true
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

// TestUnseenFlagsInComments: a commented line of an environment file sets no variable.
func TestUnseenFlagsInComments(t *testing.T) {
	for line, seen := range map[string]bool{"MORE=--v=2": true, "# MORE=--v=2": false, "  ;MORE=--v=2": false} {
		s := newStage(t)
		fixture.Put(t, s.root, "/etc/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS $MORE\n")
		fixture.Put(t, s.root, "/etc/default/kubelet", line+"\n")
		if why := UnseenFlags(s.host, &s.node.Machine); strings.Contains(why, "$MORE") == seen {
			t.Errorf("%q: %q", line, why)
		}
	}
}
