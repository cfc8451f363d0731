package main

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

const (
	etcdStartTimeout = 60 * time.Second
	etcdQuotaBytes   = 2 << 30
)

// runEtcd serves one member on loopback until SIGTERM. It never syncs to disk: a test's data dies
// with the test.
func runEtcd(args []string) int {
	flags := flag.NewFlagSet("etcd", flag.ExitOnError)
	dir := flags.String("data-dir", "", "where the data goes")
	client := flags.String("listen-client-url", "", "where the API server finds it, as in http://127.0.0.1:2379")
	peer := flags.String("listen-peer-url", "", "a second address, of no use to a single member but required")
	_ = flags.Parse(args)

	server, err := startEtcd(*dir, *client, *peer)
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		return 1
	}
	defer server.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-stop:
		return 0
	case err := <-server.Err():
		fmt.Fprintln(os.Stderr, "etcd:", err)
		return 1
	}
}

func startEtcd(dir, client, peer string) (*embed.Etcd, error) {
	clientURL, err := url.Parse(client)
	if err != nil {
		return nil, err
	}
	peerURL, err := url.Parse(peer)
	if err != nil {
		return nil, err
	}
	config := embed.NewConfig()
	config.Dir = dir
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*clientURL}, []url.URL{*clientURL}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peerURL}, []url.URL{*peerURL}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.UnsafeNoFsync = true
	config.QuotaBackendBytes = etcdQuotaBytes
	config.LogLevel = "error"
	server, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	select {
	case <-server.Server.ReadyNotify():
		return server, nil
	case <-time.After(etcdStartTimeout):
		server.Close()
		return nil, fmt.Errorf("not ready after %s", etcdStartTimeout)
	}
}
