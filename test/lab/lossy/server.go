// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package lossy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/journal"
)

// fileName is the disk's name in the directory that its server mounts.
const fileName = "disk"

// serverVariable has the directory with the files of a disk, in the environment of its server.
const serverVariable = "SLIPWAY_LOSSY_DISK"

// ready is a server's line of output once its disk is mounted. Any other line is an error.
const ready = "ready"

// init makes each program that has disks their server, too, in a process of its own. A program that served its own disk would wait
// for itself: while it starts another from that disk, Go's runtime stops, and with it the server that would read the file.
func init() {
	dir := os.Getenv(serverVariable)
	if dir == "" {
		return
	}
	if err := serve(&Disk{dir: dir}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// server is the process behind a disk's file.
type server struct {
	process *exec.Cmd
	life    io.Closer // the server ends with its standard input, and so with this process
}

// startServer returns once the disk's file is there.
func startServer(d *Disk) (*server, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, errors.Wrap(err, "cannot find this program, which serves disks")
	}
	s := &server{process: exec.Command(program)}
	s.process.Env = append(os.Environ(), serverVariable+"="+d.dir)
	if s.life, err = s.process.StdinPipe(); err != nil {
		return nil, errors.Wrap(err, "cannot start a disk's server")
	}
	out, err := s.process.StdoutPipe()
	if err != nil {
		return nil, errors.Wrap(err, "cannot start a disk's server")
	}
	if err := s.process.Start(); err != nil {
		return nil, errors.Wrap(err, "cannot start a disk's server")
	}
	if said, err := bufio.NewReader(out).ReadString('\n'); said != ready+"\n" {
		s.end()
		return nil, errors.Errorf("cannot serve a disk by FUSE: %q, %v", said, err)
	}
	return s, nil
}

// end ends the server, whether or not its disk is still mounted.
func (s *server) end() {
	_ = s.life.Close()
	_ = s.process.Wait()
}

// serve mounts a directory with a file that's the disk: each write to the file goes to the disk and into the journal, and each
// fsync becomes a flush. It ends with its standard input, or when the directory is unmounted.
func serve(d *Disk) error {
	disk, err := os.OpenFile(d.now(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return errors.WithStack(err)
	}
	log, err := os.OpenFile(d.journal(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return errors.WithStack(err)
	}
	writes, err := journal.NewWriter(log)
	if err != nil {
		return err
	}
	root := &fs.Inode{}
	options := &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true, MaxWrite: 1 << 20, FsName: "lossy", Name: "lossy"},
		OnAdd: func(ctx context.Context) {
			root.AddChild(fileName, root.NewPersistentInode(ctx, &device{disk: disk, writes: writes}, fs.StableAttr{}), false)
		},
	}
	fuseServer, err := fs.Mount(d.served(), root, options)
	if err != nil {
		return errors.WithStack(err)
	}
	fmt.Println(ready)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // the kernel then refuses the disk's requests
	}()
	fuseServer.Wait()
	return nil
}
