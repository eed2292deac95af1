// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"reflect"
	"testing"
)

const (
	versionOneCgroup = "4:memory:/session\n2:cpu,cpuacct:/\n1:name=systemd:/\n0::/\n"
	versionOneMounts = `30 24 0:26 / /sys/fs/cgroup rw shared:9 - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/systemd rw shared:11 - cgroup cgroup rw,xattr,name=systemd
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:12 - cgroup cgroup rw,cpu,cpuacct
34 30 0:30 / /sys/fs/cgroup/memory rw shared:13 - cgroup cgroup rw,memory
`
	versionTwoCgroup = "0::/user.slice/session-1.scope\n"
	versionTwoMounts = "30 24 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
)

func TestCgroupDirs(t *testing.T) {
	tests := []struct {
		name, cgroup, mounts string
		want                 []string
	}{
		{"version 1, below this program's own", versionOneCgroup, versionOneMounts, []string{
			"/sys/fs/cgroup/memory/session/lab", "/sys/fs/cgroup/cpu,cpuacct/lab",
			"/sys/fs/cgroup/systemd/lab", "/sys/fs/cgroup/unified/lab",
		}},
		{"version 2 alone, at the top", versionTwoCgroup, versionTwoMounts, []string{"/sys/fs/cgroup/lab"}},
		{"a controller that is not mounted", "3:pids:/\n1:name=systemd:/\n", versionOneMounts, []string{"/sys/fs/cgroup/systemd/lab"}},
		{"nothing", "", "", nil},
	}
	for _, test := range tests {
		got := cgroupDirs(hierarchies(test.cgroup, test.mounts), "lab")
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestControllers(t *testing.T) {
	got := controllers(hierarchies(versionOneCgroup, versionOneMounts))
	if want := []string{"cpu,cpuacct", "memory", "systemd"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMountsBelow(t *testing.T) {
	mounts := "1 0 8:1 / / rw - ext4 x rw\n2 1 0:5 / /lab/a rw - tmpfs t rw\n3 2 0:6 / /lab/a/b rw - tmpfs t rw\n4 1 0:7 / /laboratory rw - tmpfs t rw\n"
	if got, want := mountsBelow(mounts, "/lab/"), []string{"/lab/a", "/lab/a/b"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
