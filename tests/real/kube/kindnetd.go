package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	cniConfig      = "/etc/cni/net.d/10-kindnet.conflist"
	nodesReadEvery = 3 * time.Second
)

// kindnetd stands in for kind's network of the same name, whose module no proxy has. It runs on every
// node with kind's own manifest: Pods of other nodes get a route, Pods of this one a CNI configuration,
// and what Pods send elsewhere leaves under the node's address, because other clusters have the same
// Pod range. It knows IPv4 and no NetworkPolicies.
func kindnetd() {
	if err := masquerade(os.Getenv("POD_SUBNET")); err != nil {
		log.Fatal(err)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	// The address of a Service, which the configuration has, needs a network first.
	if endpoint := os.Getenv("CONTROL_PLANE_ENDPOINT"); endpoint != "" {
		config.Host = "https://" + endpoint
	}
	client := kubernetes.NewForConfigOrDie(config)
	for ; ; time.Sleep(nodesReadEvery) {
		if err := configure(client, os.Getenv("HOST_IP")); err != nil {
			log.Print(err)
		}
	}
}

func masquerade(pods string) error {
	pods, _, _ = strings.Cut(pods, ",")
	command := exec.Command("nft", "-f", "-")
	command.Stdin = strings.NewReader(fmt.Sprintf(`table ip kindnet
delete table ip kindnet
table ip kindnet {
	chain outbound {
		type nat hook postrouting priority srcnat + 5;
		ip saddr %[1]s ip daddr != %[1]s fib daddr type != local masquerade
	}
}
`, pods))
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, output)
	}
	return nil
}

func configure(client kubernetes.Interface, self string) error {
	nodes, err := client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, node := range nodes.Items {
		address := internalAddress(&node)
		if node.Spec.PodCIDR == "" || address == "" {
			continue
		}
		if address == self {
			err = writeConfig(node.Spec.PodCIDR)
		} else {
			err = replaceRoute(node.Spec.PodCIDR, address)
		}
		if err != nil {
			return fmt.Errorf("node %s: %w", node.Name, err)
		}
	}
	return nil
}

func internalAddress(node *corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}

func replaceRoute(pods, gateway string) error {
	_, destination, err := net.ParseCIDR(pods)
	if err != nil {
		return err
	}
	return netlink.RouteReplace(&netlink.Route{Dst: destination, Gw: net.ParseIP(gateway)})
}

// writeConfig writes the file once: containerd reads it again whenever it changes.
func writeConfig(pods string) error {
	config := fmt.Appendf(nil, `{"cniVersion": "0.4.0", "name": "kindnet", "plugins": [
  {"type": "ptp", "ipMasq": false, "mtu": 1500, "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam-state",
    "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": %q}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`, pods)
	if present, err := os.ReadFile(cniConfig); err == nil && bytes.Equal(present, config) {
		return nil
	}
	partial := filepath.Join(filepath.Dir(cniConfig), ".partial")
	if err := os.WriteFile(partial, config, 0o644); err != nil {
		return err
	}
	return os.Rename(partial, cniConfig)
}
