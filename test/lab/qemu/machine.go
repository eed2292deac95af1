// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package qemu boots the lab's second kind of machine: a virtual machine with its own kernel, cgroup v2 and a disk that loses
// writes in a power cut, as real disks do. Commands reach it over SSH, and files on a second, read-only disk.
package qemu

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/journal"
	"github.com/slipway-k8s/slipway/test/lab/parts"
)

// Options describe a machine.
type Options struct {
	Name  string // also its host name
	Dir   string // keeps its files
	Disk  *parts.Disk
	From  string   // a directory of Save, with the first state of the disks; default the Disk, which has never booted
	Share string   // a disk of MakeShare, read-only at /mnt; optional
	Swap  bool     // adds a disk with one partition for swap, /dev/vdc1
	More  []string // further arguments for QEMU
	Boot  []string // further arguments for the kernel
}

// Machine is a virtual machine. While it's off, the file disk in its directory has its disk. While it runs, QEMU writes to an
// overlay, and notes each write in a journal; then the journal decides what gets to the disk, and the overlay goes away.
type Machine struct {
	Options
	accelerator string
	qemu        *exec.Cmd
	ended       chan error // gets QEMU's end
	ssh         *connection
}

// The files of a machine.
func (m *Machine) disk() string     { return filepath.Join(m.Dir, "disk") }
func (m *Machine) overlay() string  { return filepath.Join(m.Dir, "overlay") }
func (m *Machine) journal() string  { return filepath.Join(m.Dir, "journal") }
func (m *Machine) swapDisk() string { return filepath.Join(m.Dir, "swap") }

// Console is the file with everything the kernel and systemd wrote to the serial console since the last boot.
func (m *Machine) Console() string { return filepath.Join(m.Dir, "console") }

// New makes a machine, which is off.
func New(ctx context.Context, o Options) (*Machine, error) {
	m := &Machine{Options: o}
	var err error
	if m.accelerator, err = accelerator(ctx, o.Disk); err != nil {
		return nil, err
	}
	if o.From != "" {
		return m, m.copyDisks(ctx, o.From, o.Dir)
	}
	if err := copySparse(ctx, o.Disk.Image, m.disk()); err != nil || !o.Swap {
		return m, err
	}
	return m, errors.Wrap(makeSwap(m.swapDisk()), "cannot make the disk for swap")
}

// copySparse copies a disk. Holes stay holes, and on some file systems the copy costs nothing.
func copySparse(ctx context.Context, from, to string) error {
	return command(ctx, "cp", "--sparse=always", "--reflink=auto", from, to)
}

// Save copies the disks of a machine that's off to a directory.
func (m *Machine) Save(ctx context.Context, to string) error {
	if m.Running() {
		return errors.Errorf("%s is running", m.Name)
	}
	return m.copyDisks(ctx, m.Dir, to)
}

func (m *Machine) copyDisks(ctx context.Context, from, to string) error {
	names := []string{filepath.Base(m.disk())}
	if m.Swap {
		names = append(names, filepath.Base(m.swapDisk()))
	}
	for _, name := range names {
		if err := copySparse(ctx, filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

// Emulated reports whether QEMU emulates the machine's processors, about 15 times slower than this machine's.
func (m *Machine) Emulated() bool { return m.accelerator != "kvm" }

// Running reports whether the machine is on.
func (m *Machine) Running() bool { return m.qemu != nil }

// Boot switches the machine on, and waits until it lets root in.
func (m *Machine) Boot(ctx context.Context) error {
	if m.Running() {
		return errors.Errorf("%s is running", m.Name)
	}
	for _, path := range []string{m.overlay(), m.journal(), m.Console()} {
		if err := os.RemoveAll(path); err != nil {
			return errors.Wrap(err, "cannot remove a file of the last boot")
		}
	}
	if err := os.WriteFile(m.journal(), nil, 0o600); err != nil {
		return errors.Wrap(err, "cannot make the journal of writes")
	}
	if err := command(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-b", m.disk(), "-F", "raw", m.overlay()); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	if err := m.start(port); err != nil {
		return err
	}
	if m.ssh, err = connect(ctx, port, m.Disk.Key, m.alive); err != nil {
		return errors.Errorf("%s: %v%s", m.Name, err, m.consoleEnd())
	}
	return nil
}

// freePort returns a port of this machine's loopback interface that nobody uses.
func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, errors.Wrap(err, "cannot find a port")
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (m *Machine) start(port int) error {
	m.qemu = exec.Command(m.Disk.Platform.Emulator, m.arguments(port)...)
	m.qemu.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	said, err := os.Create(filepath.Join(m.Dir, "qemu"))
	if err != nil {
		return errors.Wrap(err, "cannot make QEMU's log")
	}
	defer said.Close()
	m.qemu.Stdout, m.qemu.Stderr = said, said
	if err := m.qemu.Start(); err != nil {
		m.qemu = nil
		return errors.Wrap(err, "cannot start QEMU")
	}
	m.ended = make(chan error, 1)
	go func(qemu *exec.Cmd, ended chan<- error) { ended <- qemu.Wait() }(m.qemu, m.ended)
	return nil
}

// arguments returns QEMU's. No packet leaves the machine but the answers of its SSH server.
func (m *Machine) arguments(port int) []string {
	kernel := "root=/dev/vda rw console=" + m.Disk.Platform.Console + " panic=-1 mitigations=off tsc=nowatchdog systemd.default_timeout_start_sec=900 systemd.default_device_timeout_sec=900 systemd.hostname=" + m.Name
	for _, word := range m.Options.Boot {
		kernel += " " + word
	}
	args := append(accelerated(m.Disk.Platform, m.accelerator), "-smp", "2", "-m", "4096", "-nodefaults", "-no-reboot", "-display", "none",
		"-serial", "file:"+m.Console(), "-kernel", m.Disk.Kernel, "-initrd", m.Disk.Initrd, "-append", kernel,
		// The guest's flushes reach the journal; this machine needn't flush for them. Zeros are written as such, because the
		// journal of some versions of QEMU mixes up a request for zeros with its neighbors. Requests aren't merged, because the
		// journal adds its own buffer to a request that may have as many as the kernel takes already.
		"-blockdev", "driver=file,node-name=overlay-file,cache.no-flush=on,filename="+m.overlay(),
		"-blockdev", "driver=qcow2,node-name=overlay,cache.no-flush=on,file=overlay-file",
		"-blockdev", "driver=file,node-name=journal,cache.no-flush=on,filename="+m.journal(),
		"-blockdev", "driver=blklogwrites,node-name=root,file=overlay,log=journal",
		"-device", "virtio-blk-pci,drive=root,write-cache=on,write-zeroes=off,discard=off,request-merging=off",
		"-netdev", fmt.Sprintf("user,id=n0,restrict=on,hostfwd=tcp:127.0.0.1:%d-:22", port),
		"-device", "virtio-net-pci,netdev=n0,romfile=,mac=52:54:00:00:00:01", "-device", "virtio-rng-pci")
	if m.Share != "" {
		args = append(args, "-drive", "file="+m.Share+",if=virtio,format=raw,readonly=on")
	}
	if m.Swap {
		args = append(args, "-drive", "file="+m.swapDisk()+",if=virtio,format=raw,cache=unsafe")
	}
	return append(args, m.More...)
}

// alive returns an error if QEMU has ended, or the guest's kernel has.
func (m *Machine) alive() error {
	select {
	case err := <-m.ended:
		m.ended <- err
		said, _ := os.ReadFile(filepath.Join(m.Dir, "qemu"))
		return errors.Errorf("QEMU has ended (%v): %s", err, said)
	default:
		return nil
	}
}

// PowerCut switches the machine off at once. Its memory is lost, and so is every write since the disk was last told to flush. It
// returns how many writes and flushes the disk kept since the boot.
func (m *Machine) PowerCut() (kept uint64, err error) {
	m.kill()
	kept, _, err = journal.Replay(m.journal(), m.disk(), 0)
	return kept, err
}

// Shutdown switches the machine off in order.
func (m *Machine) Shutdown(ctx context.Context) error {
	_ = m.ssh.run(ctx, Cmd{Args: []string{"systemctl", "poweroff"}}) // the connection may end first
	select {
	case err := <-m.ended:
		m.ended <- err
	case <-ctx.Done():
		return errors.Wrapf(ctx.Err(), "%s doesn't switch itself off%s", m.Name, m.consoleEnd())
	}
	_, err := m.PowerCut() // all it wrote is flushed
	return err
}

// Kill ends the machine without a thought for its disk.
func (m *Machine) Kill() { m.kill() }

func (m *Machine) kill() {
	if m.ssh != nil {
		m.ssh.close()
		m.ssh = nil
	}
	if m.qemu == nil {
		return
	}
	_ = m.qemu.Process.Kill() // it may have ended
	<-m.ended
	m.qemu = nil
}

const pollPeriod = 2 * time.Second
