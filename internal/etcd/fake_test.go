// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slipway-k8s/slipway/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// fakeCluster follows etcd's membership rules. fault may answer a call before it's executed, or lose its answer afterwards.
type fakeCluster struct {
	pb.UnimplementedClusterServer
	pb.UnimplementedMaintenanceServer

	mu      sync.Mutex
	members []*pb.Member
	next    uint64
	leader  uint64
	cluster uint64 // its ID in a status
	calls   []string
	url     string // set once it serves
	// notReady is how many promotions are refused because the learner hasn't caught up.
	notReady int
	// clients are the CAs of accepted clients. nil admits everybody.
	clients *x509.CertPool
	tls     *tls.Config // of its servers
	// status is each member's report on itself, by ID, if the member has its own server.
	status map[uint64]*pb.StatusResponse
	// hashes are the answers to HashKV by ID, all since compaction 30; hashedTo is the last revision asked for.
	hashes   map[uint64]uint32
	hashedTo int64
	// alarms are the cluster's, defragmented the members that were.
	alarms       []*pb.AlarmMember
	defragmented []uint64
	// snapshot is sent in parts. After cut bytes, the stream ends with an error; after stuck bytes, it hangs.
	snapshot   []byte
	cut, stuck int
	keys       *fakeKeys
	before     func(call string) error
	after      func(call string) error
}

func (f *fakeCluster) enter(call string) (leave func(), err error) {
	f.mu.Lock()
	f.calls = append(f.calls, call)
	if f.before != nil {
		err = f.before(call)
	}
	return f.mu.Unlock, err
}

func (f *fakeCluster) end(call string) error {
	if f.after == nil {
		return nil
	}
	return f.after(call)
}

func (f *fakeCluster) MemberList(context.Context, *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	leave, err := f.enter("list")
	defer leave()
	if err != nil {
		return nil, err
	}
	now := &pb.MemberListResponse{Header: &pb.ResponseHeader{ClusterId: fakeClusterID}, Members: f.members}
	return proto.CloneOf(now), f.end("list") // it's sent after others may change the members
}

const fakeClusterID = 77

// Status returns the first member's status.
func (f *fakeCluster) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	leave, err := f.enter("status")
	defer leave()
	if err != nil {
		return nil, err
	}
	return &pb.StatusResponse{Header: &pb.ResponseHeader{MemberId: f.members[0].ID, ClusterId: f.cluster}, Leader: f.leader}, nil
}

func (f *fakeCluster) MemberAdd(_ context.Context, r *pb.MemberAddRequest) (*pb.MemberAddResponse, error) {
	leave, err := f.enter("add")
	defer leave()
	if err != nil {
		return nil, err
	}
	for _, m := range f.members {
		if m.IsLearner {
			return nil, rpctypes.ErrGRPCTooManyLearners
		}
		if slices.Equal(m.PeerURLs, r.PeerURLs) {
			return nil, rpctypes.ErrGRPCPeerURLExist
		}
	}
	f.next++
	f.members = append(f.members, &pb.Member{ID: 100 + f.next, PeerURLs: r.PeerURLs, IsLearner: r.IsLearner})
	return &pb.MemberAddResponse{}, f.end("add")
}

func (f *fakeCluster) find(id uint64) int {
	return slices.IndexFunc(f.members, func(m *pb.Member) bool { return m.ID == id })
}

func (f *fakeCluster) MemberPromote(_ context.Context, r *pb.MemberPromoteRequest) (*pb.MemberPromoteResponse, error) {
	leave, err := f.enter("promote")
	defer leave()
	if err != nil {
		return nil, err
	}
	i := f.find(r.ID)
	switch {
	case i < 0:
		return nil, rpctypes.ErrGRPCMemberNotFound
	case !f.members[i].IsLearner:
		return nil, rpctypes.ErrGRPCMemberNotLearner
	case f.notReady > 0:
		f.notReady--
		return nil, rpctypes.ErrGRPCLearnerNotReady
	}
	f.members[i].IsLearner = false
	return &pb.MemberPromoteResponse{}, f.end("promote")
}

func (f *fakeCluster) MemberUpdate(_ context.Context, r *pb.MemberUpdateRequest) (*pb.MemberUpdateResponse, error) {
	leave, err := f.enter("update")
	defer leave()
	if err != nil {
		return nil, err
	}
	f.members[f.find(r.ID)].PeerURLs = r.PeerURLs
	return &pb.MemberUpdateResponse{}, f.end("update")
}

func (f *fakeCluster) MemberRemove(_ context.Context, r *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse, error) {
	leave, err := f.enter("remove")
	defer leave()
	if err != nil {
		return nil, err
	}
	i := f.find(r.ID)
	if i < 0 {
		return nil, rpctypes.ErrGRPCMemberNotFound
	}
	f.members = slices.Delete(f.members, i, i+1)
	return &pb.MemberRemoveResponse{}, f.end("remove")
}

// peer is the peer URL of the member with this name.
func peer(name string) string { return "https://" + name + ".example:2380" }

func voters(names ...string) *fakeCluster {
	f := &fakeCluster{}
	for i, name := range names {
		f.members = append(f.members, &pb.Member{ID: uint64(i + 1), Name: name, PeerURLs: []string{peer(name)}})
	}
	return f
}

// serve lets the cluster answer at its own address, and returns a client for it, with other endpoints first.
func (f *fakeCluster) serve(t *testing.T, timeout time.Duration, others ...string) *Real {
	t.Helper()
	dir := t.TempDir()
	pair := certificate(t, dir)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if f.clients != nil {
		cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, f.clients
	}
	f.tls = cfg
	f.url = f.listen(t, listener, f)
	return New(Options{
		Endpoints: func(context.Context) ([]string, error) {
			return append(others, f.url), nil
		},
		CA: filepath.Join(dir, "crt"), Cert: filepath.Join(dir, "crt"), Key: filepath.Join(dir, "key"),
		ReadFile: os.ReadFile, Timeout: timeout,
	})
}

func (f *fakeCluster) listen(t *testing.T, listener net.Listener, maintenance pb.MaintenanceServer) (url string) {
	creds := insecure.NewCredentials()
	if f.tls != nil {
		creds = credentials.NewTLS(f.tls)
	}
	server := grpc.NewServer(grpc.Creds(creds))
	pb.RegisterClusterServer(server, f)
	pb.RegisterMaintenanceServer(server, maintenance)
	if f.keys != nil {
		pb.RegisterKVServer(server, f.keys)
		pb.RegisterWatchServer(server, f.keys)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return "https://" + listener.Addr().String()
}

// fakeMember is a member with its own address.
type fakeMember struct {
	*fakeCluster
	id uint64
}

// serveMembers gives each member with a status its own address. The first member serves already.
func (f *fakeCluster) serveMembers(t *testing.T) {
	t.Helper()
	for _, m := range f.members {
		if f.status[m.ID] == nil {
			continue
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f.status[m.ID].Header = &pb.ResponseHeader{MemberId: m.ID, Revision: 42}
		m.ClientURLs = []string{f.listen(t, listener, fakeMember{f, m.ID})}
	}
}

func (f fakeMember) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	leave, err := f.enter("status")
	defer leave()
	if err != nil {
		return nil, err
	}
	return proto.Clone(f.status[f.id]).(*pb.StatusResponse), nil
}

func (f *fakeCluster) Alarm(_ context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	leave, err := f.enter("alarm")
	defer leave()
	if r.Action == pb.AlarmRequest_DEACTIVATE {
		f.alarms = slices.DeleteFunc(f.alarms, func(a *pb.AlarmMember) bool { return a.MemberID == r.MemberID && a.Alarm == r.Alarm })
	}
	return &pb.AlarmResponse{Alarms: slices.Clone(f.alarms)}, err
}

func (f fakeMember) Defragment(context.Context, *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	leave, err := f.enter("defragment")
	defer leave()
	f.defragmented = append(f.defragmented, f.id)
	return &pb.DefragmentResponse{}, err
}

func (f fakeMember) HashKV(_ context.Context, r *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	leave, err := f.enter("hash")
	defer leave()
	f.hashedTo = r.Revision
	return &pb.HashKVResponse{Hash: f.hashes[f.id], CompactRevision: 30}, err
}

func (f fakeMember) MoveLeader(_ context.Context, r *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	leave, err := f.enter("move")
	defer leave()
	switch {
	case err != nil:
		return nil, err
	case f.status[f.id].Leader != f.id:
		return nil, rpctypes.ErrGRPCNotLeader
	}
	for _, s := range f.status {
		s.Leader = r.TargetID
	}
	return &pb.MoveLeaderResponse{}, f.end("move")
}

func (f fakeMember) Snapshot(_ *pb.SnapshotRequest, to grpc.ServerStreamingServer[pb.SnapshotResponse]) error {
	leave, err := f.enter("snapshot")
	defer leave()
	if err != nil {
		return err
	}
	for sent := 0; sent < len(f.snapshot); sent += 1000 {
		if f.cut > 0 && sent >= f.cut {
			return status.Error(codes.Unavailable, "transport is closing")
		}
		if f.stuck > 0 && sent >= f.stuck {
			<-to.Context().Done()
			return to.Context().Err()
		}
		part := f.snapshot[sent:min(sent+1000, len(f.snapshot))]
		if err := to.Send(&pb.SnapshotResponse{Blob: part, Version: "3.6.0", RemainingBytes: 1}); err != nil {
			return err
		}
	}
	return nil
}

// certificate writes a self-signed pair, for either side.
func certificate(t *testing.T, dir string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
	for name, data := range map[string][]byte{"crt": crt, "key": private} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(crt, private)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
