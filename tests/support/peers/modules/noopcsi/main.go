// Command noopcsi is a CSI driver that answers every call of Identity and Node with OK and does nothing.
//
// bench/bench_csi.py asks it what it asks gkm-csi, in the same run and through the same client: what a call costs in a
// Go server before any work is done is what our times are held against.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

type identity struct {
	csi.UnimplementedIdentityServer
}

func (identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: "noop.csi.gkm.io", VendorVersion: "1"}, nil
}

func (identity) GetPluginCapabilities(
	context.Context, *csi.GetPluginCapabilitiesRequest,
) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

type node struct {
	csi.UnimplementedNodeServer
}

func (node) NodePublishVolume(
	context.Context, *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	return &csi.NodePublishVolumeResponse{}, nil
}

func (node) NodeUnpublishVolume(
	context.Context, *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (node) NodeGetCapabilities(
	context.Context, *csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "noop"}, nil
}

func main() {
	endpoint := flag.String("endpoint", "", "path of the socket to listen on")
	flag.Parse()
	listener, err := net.Listen("unix", *endpoint)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, identity{})
	csi.RegisterNodeServer(server, node{})
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-ended
		server.Stop()
	}()
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}
