// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/retry"
)

// How long a download may stall, and how often it's resumed.
const (
	downloadStalls  = 30 * time.Second
	downloadResumes = 5
)

// download fetches a file into the cache, where its name is its SHA-256. The next run resumes an unfinished download.
type download struct {
	cache, url, sha256 string
	say                func(format string, args ...any)
}

func (d download) run(ctx context.Context) (string, error) {
	if err := os.MkdirAll(d.cache, 0o755); err != nil {
		return "", errors.Wrap(err, "cannot make the cache")
	}
	path := filepath.Join(d.cache, d.sha256)
	part, err := lockedFile(ctx, path+".part")
	if err != nil {
		return "", errors.Wrap(err, "cannot open the cache")
	}
	defer part.Close()
	if got, err := fileSHA256(ctx, path); err == nil && got == d.sha256 {
		return path, errors.Wrap(os.Remove(part.Name()), "cannot tidy the cache")
	}
	if err := d.fetch(ctx, part); err != nil {
		return "", errors.Wrapf(err, "cannot download %s", d.url)
	}
	return path, errors.Wrap(os.Rename(part.Name(), path), "cannot put a download in its place")
}

// lockedFile opens a file for one run at a time. It waits for others.
func lockedFile(ctx context.Context, path string) (f *os.File, err error) {
	busy := func(err error) bool { return errors.Is(err, unix.EWOULDBLOCK) }
	err = retry.Policy{First: 100 * time.Millisecond, Retryable: busy}.Do(ctx, func(context.Context) error {
		if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
			return err
		}
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil && !isStillAt(f, path) {
			err = unix.EWOULDBLOCK
		}
		if err != nil {
			f.Close()
		}
		return err
	})
	return f, err
}

// isStillAt reports whether no other run renamed or removed the file before it was locked.
func isStillAt(f *os.File, path string) bool {
	here, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(here, there)
}

// fetch completes the file from its end. After downloadResumes attempts, each has to get further.
func (d download) fetch(ctx context.Context, f *os.File) error {
	for attempt := 1; ; attempt++ {
		before, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			return err
		}
		if err = d.attempt(ctx, f, before); err == nil {
			return d.verify(ctx, f, before)
		}
		var final *finalError
		after, _ := f.Seek(0, io.SeekEnd)
		if ctx.Err() != nil || errors.As(err, &final) || attempt > downloadResumes && after == before {
			return err
		}
		d.say("%s: %v; trying again", d.url, err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(min(attempt, downloadResumes)) * 200 * time.Millisecond):
		}
	}
}

// verify compares the file with its hash. If part of it is from an earlier answer, perhaps of another file, it starts over.
func (d download) verify(ctx context.Context, f *os.File, resumedAt int64) error {
	got, err := fileSHA256(ctx, f.Name())
	if err != nil || got == d.sha256 {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	if resumedAt > 0 {
		return d.fetch(ctx, f)
	}
	return fault.New(fmt.Sprintf("it has the SHA-256 %s, and the list says %s", got, d.sha256), "compare it with the publisher's; use the file only if they match")
}

// finalError is an error another attempt would get again.
type finalError struct{ error }

// attempt makes one request for the rest of the file.
func (d download) attempt(ctx context.Context, f *os.File, have int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(downloadStalls, func() { cancel(errors.Errorf("nothing came for %s", downloadStalls)) })
	defer stalled.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url, nil)
	if err != nil {
		return &finalError{err}
	}
	request.Header.Set("Accept-Encoding", "identity")
	if have > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return reason(ctx, err)
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return nil // the file is as long as the server's, or longer: verify decides
	case answer.StatusCode == http.StatusOK && have > 0: // the server does not resume
		if err := f.Truncate(0); err != nil {
			return &finalError{err}
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return &finalError{err}
		}
	case answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusPartialContent:
		return d.refused(answer)
	}
	return errors.Wrap(reason(ctx, copyAlive(f, answer.Body, stalled)), "the download broke off")
}

// reason is why a context ended, if that's the cause of an error.
func reason(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// refused reports the server's answer. Only temporary failures are tried again.
func (d download) refused(answer *http.Response) error {
	err := errors.Errorf("the server answers %s", answer.Status)
	if answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests {
		return err
	}
	return &finalError{err}
}

// copyAlive copies, and resets the timer with each piece.
func copyAlive(to io.Writer, from io.Reader, timer *time.Timer) error {
	buffer := make([]byte, 256<<10)
	for {
		n, err := from.Read(buffer)
		timer.Reset(downloadStalls)
		if _, err := to.Write(buffer[:n]); err != nil {
			return &finalError{err}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
